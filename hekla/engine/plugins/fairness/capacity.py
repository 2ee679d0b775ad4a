"""capacity: a queue deserves what it names, lends what it does not use, and takes it back.
Reference: plugins-fairness 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from hekla.engine.explain.explanation import BESIDE_GUARANTEES, shortages
from hekla.engine.framework.heap import Comparable, OrderKey
from hekla.engine.framework.plugin import PERMIT, REJECT, Arguments, Plugin, Reads, Source, Victims
from hekla.engine.framework.session import session_of
from hekla.engine.model.decisions import Event
from hekla.engine.model.explanations import not_open
from hekla.engine.model.queues import devicequota
from hekla.engine.model.queues.balance import Demand, balanced
from hekla.engine.model.queues.devicequota import Claimed, Exceeded, without_devices
from hekla.engine.model.queues.queues import OPEN, ROOT, Queue, held_by_queue
from hekla.engine.model.queues.queuetree import Branch, TreeError, flat, tree
from hekla.engine.model.reasons import Ceiling, Shortage
from hekla.engine.model.resources import (
    EPSILON,
    PODS,
    Amounts,
    above_capability,
    add,
    exceeding,
    exceeds_relevant,
    less_equal,
    less_equal_partly,
    minimum_present,
    names,
    plus,
    subtract,
)
from hekla.engine.model.tasks import QUEUE_GATE, Job, Status, Task, requests_of
from hekla.engine.placement.victims import in_order
from hekla.engine.plugins.fairness.guarantees import Guarantees
from hekla.engine.plugins.fairness.queuegauges import NOTHING, QueueGauges

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView


class CapacityArguments(Arguments, frozen=True):
    ancestor_levels: int = msgspec.field(default=0, name="ancestorReclaimLevel")
    dynamic_resources: bool = msgspec.field(
        default=True, name="capacity.DynamicResourceAllocationEnable"
    )
    consumable: bool = msgspec.field(default=True, name="capacity.DRAConsumableCapacityEnable")

    def __post_init__(self) -> None:
        if self.ancestor_levels < 0:
            raise ValueError(
                f"ancestorReclaimLevel = {self.ancestor_levels}: a whole number from 0 up"
            )


class Capacity(Plugin):
    """Queues by what they name, flat or as a tree (`enableHierarchy`)."""

    name = "capacity"
    reads = Reads(
        victims=Source.PREEMPTOR, queue_order=Source.OWN_JOBS, between_placements=Source.JOBS
    )
    Arguments = CapacityArguments
    arguments: CapacityArguments

    def __init__(self, arguments: CapacityArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.hierarchical = flags.get("enableHierarchy", False)
        self.gauges = QueueGauges()
        self.told: dict[str, str] = {}
        """Queue -> why it was left out, as it was told last."""

    def open(self, session: CycleView) -> None:
        self.session = session_of(session)
        self.trouble = ""
        self.branches: dict[str, Branch] = {}
        self.left_out: dict[str, str] = {}
        idle: dict[str, Branch] = {}
        if not self.hierarchical:
            self.branches, idle = flat(session.state.queues, session.total)
        else:
            try:
                self.branches, self.left_out = tree(session.state.queues, session.total)
            except TreeError as error:
                self.trouble = str(error)
                session.decisions.problems.append(f"capacity: {error}")
            self._tell()
        self.guarantees = self._guarantees(session, idle)
        self.reserved: dict[str, dict[str, Amounts]] = {}
        """Queue -> pods whose gate was lifted and that hold their place in the quota until they are
        placed."""
        if session.lifts_gates:
            for job in session.active_jobs():
                for task in job.pending():
                    if not task.gated and task.annotations.get(QUEUE_GATE) == "true":
                        self.reserved.setdefault(job.queue, {})[task.key] = dict(
                            task.request.amounts
                        )
        limited = [branch for branch in self.branches.values() if branch.ledger.limited]
        for branch in limited:
            branch.ledger.consumable = self.arguments.consumable
        if limited and self.arguments.dynamic_resources:
            self._count_devices(session)
        for branch in (*self.branches.values(), *idle.values()):
            self._gauges(session, branch, branch.name in idle)

    def _guarantees(self, session: CycleView, idle: Mapping[str, Branch]) -> Guarantees:
        """What is kept free for whom, in a tree below the queues that are above it; the root's is
        the cluster's."""
        queues = (*self.branches.values(), *idle.values())
        listed = sorted(
            (one for one in queues if not self.hierarchical or one.name != ROOT),
            key=lambda one: len(one.ancestors),
        )
        total = dict(session.total)
        if self.hierarchical and ROOT in self.branches:
            total = minimum_present(total, self.branches[ROOT].real_capability)
        return Guarantees(
            total,
            (
                (
                    one.name,
                    one.ancestors[-1].name if one.ancestors else "",
                    one.guarantee,
                    one.allocated,
                    one.real_capability,
                )
                for one in listed
            ),
        )

    def _tell(self) -> None:
        """On each queue that has no place in the tree, or that has jobs where none belong; once for
        the same words."""
        problems = dict(self.left_out)
        for name, branch in self.branches.items():
            if branch.children and branch.queue.jobs:
                problems[name] = (
                    f"queue {name} has jobs and queues below it; only a queue without children takes jobs"
                )
        for name, problem in problems.items():
            if self.told.get(name) != problem:
                self.session.decisions.events.append(
                    Event("Queue", name, "", "Warning", "LeftOut", problem)
                )
        self.told = problems

    def _gauges(self, session: CycleView, branch: Branch, idle: bool) -> None:
        """As they stand at the beginning; a queue without jobs takes part with what it states."""
        write, name = self.gauges.write, branch.name
        write(session, "deserved", name, branch.deserved)
        write(session, "request", name, NOTHING if idle else branch.request)
        write(session, "inqueue", name, NOTHING if idle else branch.inqueue)
        if idle:
            write(session, "allocated", name, NOTHING)
        if branch.queue.capability or self.hierarchical or not idle:
            write(session, "capacity", name, branch.capability)
        write(session, "real_capacity", name, branch.real_capability)

    def _count_devices(self, session: CycleView) -> None:
        for job in session.jobs():
            branch = self.branches.get(job.queue)
            if branch is None:
                continue
            for status in (Status.RUNNING, Status.BOUND, Status.BINDING):
                for task in job.counts.statuses[status].values():
                    self._claims(branch, task, hold=True)

    def _claims_of(self, task: Task) -> dict[str, Claimed]:
        if not task.claims or not self.arguments.dynamic_resources:
            return {}
        return devicequota.claims_of(self.session.state, task)

    def _claims(self, branch: Branch, task: Task, *, hold: bool) -> None:
        claims = self._claims_of(task)
        if claims:
            for one in branch.path():
                if hold:
                    one.ledger.hold(claims)
                else:
                    one.ledger.release(claims)

    # ---------------------------------------------------------------------------------------- order

    def queue_order(self, queue: Queue) -> Comparable:
        if self.trouble:
            return _NONE
        branch = self.branches.get(queue.name)
        if branch is None:
            return _Order(queue.priority, None)
        return _Order(queue.priority, branch, self.hierarchical)

    def victim_queue_order(self, queue: Queue, preemptor: Queue) -> int:
        """The nearest relatives of the preemptor are evicted from first."""
        if not self.hierarchical or self.trouble:
            return 0
        mine, theirs = self.branches.get(queue.name), self.branches.get(preemptor.name)
        return 0 if mine is None or theirs is None else -_common(mine, theirs)

    # ------------------------------------------------------------------------------------ admission

    def job_enqueueable(self, job: Job) -> int:
        branch = self.branches.get(job.queue)
        if self.trouble or branch is None or branch.children:
            job.enqueue_block = self._no_place(job.queue)
            return REJECT
        if branch.queue.state != OPEN:
            job.enqueue_block = not_open(branch.queue)
            return REJECT
        devices = self._minimum_devices(branch, job)
        if job.min_resources is None and (devices is None or not branch.ledger.limited):
            return PERMIT
        minimum = job.min_resources or {}
        for one in branch.path():
            held = held_by_queue(one, entering=True)
            short = exceeding(plus(minimum, held), one.real_capability, minimum)
            exceeded = (
                one.ledger.exceeded(devices, with_inqueue=True)
                if devices is not None and one.ledger.limited
                else []
            )
            if exceeded:
                short.append("dra-resource-exceeded")
            if short:
                message = ", ".join(f"insufficient {name}" for name in short)
                lacks = shortages(one.name, "capability", minimum, held, one.real_capability)
                lacks += [_device_shortage(one.name, over) for over in exceeded]
                self.session.refuse(job, f"queue resource quota insufficient: {message}", lacks)
                return REJECT
        return PERMIT

    def _no_place(self, queue: str) -> str:
        return (
            self.trouble
            or self.left_out.get(queue)
            or f"queue {queue} has queues below it and takes no jobs"
        )

    def _minimum_devices(self, branch: Branch, job: Job) -> Claimed | None:
        """What the job's minimum claims, where a queue on the way to the root has a quota of
        devices."""
        if not self.arguments.dynamic_resources or not any(
            one.ledger.limited for one in branch.path()
        ):
            return None
        return devicequota.minimum(self.session.state, job)

    def job_enqueued(self, job: Job) -> None:
        branch = self.branches.get(job.queue)
        if branch is None:
            return
        devices = self._minimum_devices(branch, job) if branch.ledger.limited else None
        for one in branch.path():
            if job.min_resources is not None:
                add(one.inqueue, job.deduct_gated(job.min_resources))
            if devices is not None and one.ledger.limited:
                devicequota.add(one.ledger.inqueue, devices)

    # ----------------------------------------------------------------------------------- allocation

    def allocatable(self, queue: Queue, task: Task) -> bool:
        branch = self.branches.get(queue.name)
        if self.trouble or branch is None or queue.state != OPEN or branch.children:
            return False
        asked = task.request.amounts
        claims = self._claims_of(task)
        for one in branch.path():
            future = plus(one.allocated, asked)
            for key, amounts in self.reserved.get(one.name, {}).items():
                if key != task.key:
                    add(future, amounts)
            if exceeding(future, one.real_capability, asked):
                return False
            if (
                claims
                and one.ledger.limited
                and not one.ledger.admits(one.ledger.fresh(claims), with_inqueue=False)
            ):
                return False
        if not self.guarantees.admits(queue.name, asked):
            return False
        if self.session.lifts_gates and task.annotations.get(QUEUE_GATE) == "true":
            self.reserved.setdefault(queue.name, {})[task.key] = dict(asked)
        return True

    def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
        """Where so much more would go past a ceiling on the way to the root.  Claimed devices are
        not among the amounts."""
        branch = self.branches.get(queue.name)
        if branch is None:
            return []
        result: list[Shortage] = []
        for one in branch.path():
            held = dict(one.allocated)
            for amounts in self.reserved.get(one.name, {}).values():
                add(held, amounts)
            result += shortages(one.name, "capability", asked, held, one.real_capability)
        if not result:
            most = self.guarantees.most(queue.name, branch.allocated)
            beside = {name: value for name, value in asked.items() if name in most}
            result += shortages(queue.name, BESIDE_GUARANTEES, beside, branch.allocated, most)
        return result

    def quota_ceilings(self, queue: Queue) -> list[Ceiling]:
        """On the way to the root; what guarantees of others leave is not among them."""
        branch = self.branches.get(queue.name)
        return [
            Ceiling(one.name, one.allocated, one.real_capability)
            for one in (branch.path() if branch is not None else ())
        ]

    def beyond_capability(self, queue: Queue, asked: Amounts, entering: bool) -> list[str]:
        """Where so much more goes past what the queue, or one above it, says that it may hold at
        most."""
        branch = self.branches.get(queue.name)
        if branch is None:
            return []
        found: list[str] = []
        for one in branch.path():
            capability = without_devices(one.queue.capability)
            found += above_capability(capability, asked, held_by_queue(one, entering))
        return found

    def reclaim_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
        """What keeps the queue from taking back: its own ceiling, or that of what it deserves
        nothing is left."""
        branch = self.branches.get(queue.name)
        if branch is None:
            return []
        over = shortages(queue.name, "capability", asked, branch.allocated, branch.real_capability)
        return over or shortages(queue.name, "deserved", asked, branch.allocated, branch.deserved)

    def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
        """How many of the same request fit in a row, on the whole path to the root."""
        if limit < 1 or not self.allocatable(queue, task):
            return 0
        if task.claims or self.reserved:
            return 1
        limit = self.guarantees.count(queue.name, task.request.amounts, limit)
        for one in self.branches[queue.name].path():
            for name, asked in task.request.amounts.items():
                if asked <= 0 or name == PODS:
                    continue
                held, ceiling = one.allocated.get(name, 0.0), one.real_capability.get(name, 0.0)
                count = max(int(min((ceiling - held) // asked, limit)), 0)
                while count > 0 and held + asked * count > ceiling:
                    count -= 1
                limit = min(limit, count)
        return limit

    # ---------------------------------------------------------------------------------- taking back

    def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        """Whether the queue may take from others for these tasks: some of what they ask for, it
        still deserves."""
        branch = self.branches.get(queue.name)
        if self.trouble or branch is None or queue.state != OPEN:
            return False
        asked = requests_of(tasks)
        future = plus(branch.allocated, asked)
        if exceeding(future, branch.real_capability, asked):
            return False
        if less_equal_partly(future, branch.deserved, asked):
            return True
        for level in range(1, self.arguments.ancestor_levels + 1 if self.hierarchical else 1):
            above = branch.above(level)
            if above is None:
                continue
            if less_equal_partly(plus(above.allocated, asked), above.deserved, asked):
                return True
        return False

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        job = preemptor.job
        branch = self.branches.get(job.queue) if self.session.in_session(job) else None
        if self.trouble or branch is None:
            return Victims([], REJECT)
        running: dict[str, Amounts] = {}
        chosen = []
        for task in in_order(self.session, candidates, preemptor):
            held_by = task.job
            if not self.session.in_session(held_by) or not _wanted(task) & _wanted(preemptor):
                continue
            theirs = self.branches.get(held_by.queue)
            if theirs is not None and self._may_take(branch, preemptor, theirs, task, running):
                chosen.append(task)
        return Victims(chosen)

    def _may_take(
        self,
        claiming: Branch,
        preemptor: Task,
        theirs: Branch,
        task: Task,
        running: dict[str, Amounts],
    ) -> bool:
        asked = task.request.amounts
        mine = running.setdefault(theirs.name, dict(theirs.allocated))
        if not _guarantee_holds(theirs, mine, asked):
            return False
        levels = self.arguments.ancestor_levels if self.hierarchical else 0
        if not _relevant(asked, theirs.deserved):
            if (
                levels
                and _related(claiming, theirs, levels)
                and not _relevant(preemptor.request.amounts, claiming.deserved)
            ):
                return False
        elif not exceeds_relevant(mine, theirs.deserved, asked):
            return False
        examined: list[Branch] = []
        for level in range(1, levels + 1):
            above = theirs.above(level)
            if above is None or claiming.above(level) is above:
                continue
            held = running.setdefault(above.name, dict(above.allocated))
            examined.append(above)
            if _relevant(asked, above.deserved) and not exceeds_relevant(
                held, above.deserved, asked
            ):
                return False
        for one in (theirs, *examined):
            subtract(running[one.name], asked)
        return True

    def balanced(self, demand: Demand, victim: Task, going: Mapping[str, Amounts]) -> bool:
        """Whether queues are no worse balanced when this pod leaves for the demand."""
        claiming = self.branches.get(demand.queue)
        theirs = self.branches.get(victim.job.queue) if victim.job is not None else None
        if claiming is None or theirs is None:
            return True
        levels = self.arguments.ancestor_levels if self.hierarchical else 0
        return balanced(
            demand, claiming, theirs, victim.request.amounts, going.get(theirs.name, {}), levels
        )

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        if kind == "gangpreempt":
            return Victims(list(candidates))
        if self.trouble:
            return Victims([], REJECT)
        running: dict[str, Amounts] = {}
        chosen = []
        for task in candidates:
            other = task.job
            branch = self.branches.get(other.queue) if self.session.in_session(other) else None
            if branch is None:
                continue
            asked = task.request.amounts
            mine = running.setdefault(branch.name, dict(branch.allocated))
            if not _guarantee_holds(branch, mine, asked):
                continue
            if not _relevant(asked, branch.deserved) or exceeds_relevant(
                mine, branch.deserved, asked
            ):
                subtract(mine, asked)
                chosen.append(task)
        return Victims(chosen)

    # ------------------------------------------------------------------------------------ following

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        branch = self.branches.get(job.queue)
        if branch is None:
            return
        for one in branch.path():
            add(one.allocated, total)
        self.guarantees.hold(job.queue, total, 1.0)
        if task.claims:
            self._claims(branch, task, hold=True)
        self.reserved.get(job.queue, {}).pop(task.key, None)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        branch = self.branches.get(job.queue)
        if branch is None:
            return
        for one in branch.path():
            subtract(one.allocated, total)
        self.guarantees.hold(job.queue, total, -1.0)
        if task.claims:
            self._claims(branch, task, hold=False)
        if (
            self.session.lifts_gates
            and task.status is Status.PENDING
            and task.annotations.get(QUEUE_GATE) == "true"
        ):
            # Taken back, not ended: it keeps its place in the quota.
            self.reserved.setdefault(job.queue, {})[task.key] = dict(task.request.amounts)

    def close(self, session: CycleView) -> None:
        for name, branch in self.branches.items():
            share = branch.share()
            self.gauges.write(session, "allocated", name, branch.allocated)
            session.metric("queue_share", share, queue_name=name)
            session.metric("queue_overused", float(share > 1), queue_name=name)
        self.gauges.keep(session.state.queues)


_NONE = (0,)
"""The place of every queue while there is no tree: all are equal, and others decide."""


def _device_shortage(queue: str, over: Exceeded) -> Shortage:
    left, missing = max(over.most - over.held, 0), over.held + over.asked - over.most
    beyond = str(over.asked - over.most) if over.asked > over.most else ""
    return Shortage(
        over.name,
        queue,
        "capability",
        str(over.asked),
        str(over.held),
        str(over.most),
        str(left),
        str(missing),
        beyond,
    )


class _Order:
    """How a queue compares with another: priority, then shares of where their branches part."""

    __slots__ = ("branch", "hierarchical", "priority")

    def __init__(self, priority: int, branch: Branch | None, hierarchical: bool = False) -> None:
        self.priority = priority
        self.branch = branch
        self.hierarchical = hierarchical

    def __lt__(self, other: _Order) -> bool:
        mine, theirs = self._ranks(other)
        return mine < theirs

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Order):
            return NotImplemented
        mine, theirs = self._ranks(other)
        return mine == theirs

    def _ranks(self, other: _Order) -> tuple[OrderKey, OrderKey]:
        left, right = self.branch, other.branch
        if left is None or right is None:
            return (-self.priority,), (-other.priority,)
        if not self.hierarchical:
            return (-self.priority, *left.rank(True)), (-other.priority, *right.rank(True))
        mine: OrderKey = (-self.priority, bool(left.children))
        theirs: OrderKey = (-other.priority, bool(right.children))
        if mine != theirs:
            return mine, theirs
        if not left.children:
            common = _common(left, right)
            left, right = _below(left, common), _below(right, common)
        return (*mine, *left.rank(not left.children)), (*theirs, *right.rank(not right.children))


def _common(left: Branch, right: Branch) -> int:
    """The index of the last ancestor that two queues share, counted from the root; 0 if there is
    none."""
    last = 0
    for index, (mine, theirs) in enumerate(zip(left.ancestors, right.ancestors)):
        if mine is not theirs:
            break
        last = index
    return last


def _below(branch: Branch, common: int) -> Branch:
    return branch.ancestors[common + 1] if common + 1 < len(branch.ancestors) else branch


def _wanted(task: Task) -> set[str]:
    return {name for name in names(task.request.amounts) if name != PODS}


def _relevant(asked: Amounts, deserved: Amounts) -> bool:
    return any(
        value >= EPSILON and deserved.get(name, 0.0) >= EPSILON for name, value in asked.items()
    )


def _guarantee_holds(branch: Branch, running: Amounts, asked: Amounts) -> bool:
    left = dict(running)
    subtract(left, asked)
    return less_equal(branch.guarantee, left)


def _related(left: Branch, right: Branch, levels: int) -> bool:
    """Whether two queues share an ancestor, the root aside, among their nearest ones."""
    mine = {one.name for one in left.ancestors[-levels:] if one.name != ROOT}
    return any(one.name in mine for one in right.ancestors[-levels:])
