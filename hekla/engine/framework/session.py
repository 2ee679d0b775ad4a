"""One cycle's view: the state, the policy's plugins, and the rules by which their answers combine.

Nothing is copied.  The session works on the state's own tables through statements, and what a cycle
promised without deciding it is undone when it closes.  Reference: scheduler-core 5.3,
plugins-fairness 0.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from hekla.engine.framework.faults import fault
from hekla.engine.framework.heap import AsThingsStand, Heap, LiveHeap
from hekla.engine.framework.joborder import OwnOrders
from hekla.engine.framework.plugin import (
    ABSTAIN,
    BETWEEN_PLACEMENTS,
    PERMIT,
    REJECT,
    Answer,
    Plugin,
    Victims,
    defines,
)
from hekla.engine.framework.policy import Policy
from hekla.engine.framework.statement import Statement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.decisions import Bind, Decisions, Event, Evict
from hekla.engine.model.explanations import Shortage, not_open, purpose_of
from hekla.engine.model.hypernodes import ROOT as CLUSTER
from hekla.engine.model.hypernodes import tree_of
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.resources import EPSILON, Amounts, Floats, add, empty
from hekla.engine.model.tasks import Group, Job, Status, SubJob, Task, is_allocated
from hekla.engine.model.transfers import IN_VAIN, OTHERS

if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.queues.balance import Claim
    from hekla.engine.model.state import State

_GATES = {
    "job_order": "enableJobOrder", "queue_order": "enableQueueOrder", "task_order": "enableTaskOrder",
    "sub_job_order": "enabledSubJobOrder", "victim_queue_order": None, "job_valid": None, "job_ready": "enableJobReady",
    "sub_job_ready": "enabledSubJobReady", "job_pipelined": "enableJobPipelined",
    "sub_job_pipelined": "enabledSubJobPipelined", "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued", "job_starving": "enableJobStarving", "overused": "enabledOverused",
    "preemptive": "enablePreemptive", "allocatable": "enabledAllocatable", "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable", "evictable": None, "balanced": None, "victim_tasks": "enabledVictim",
    "prefilter": "enablePredicate",
    "filters": "enablePredicate", "predicate": "enablePredicate", "scores": "enableNodeOrder", "score": "enableNodeOrder",
    "allocated": None, "deallocated": None, "hyper_node_gradient": "enabledHyperNodeGradient",
    "hyper_node_order": "enabledHyperNodeOrder",
}  # fmt: skip
_NOTHING: Mapping[str, Amounts] = {}
Part = TypeVar("Part")


class Hooks:
    """The plugins of a policy, made once, and for each hook who fills it, tier by tier."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plugins: list[Plugin] = []
        tiers: list[list[Plugin]] = []
        for tier in policy.tiers:
            made = [option.plugin(option.arguments, option.flags) for option in tier]
            tiers.append(made)
            self.plugins.extend(made)
        self.tiers: dict[str, list[list[Plugin]]] = {}
        self.flat: dict[str, list[Plugin]] = {}
        for hook, gate in _GATES.items():
            filled = [
                [
                    plugin
                    for plugin in tier
                    if defines(plugin, hook) and (gate is None or plugin.flags.get(gate, False))
                ]
                for tier in tiers
            ]
            self.tiers[hook] = [tier for tier in filled if tier]
            self.flat[hook] = [plugin for tier in filled for plugin in tier]
        self.time_dependent = any(plugin.time_dependent for plugin in self.plugins)
        self.minds_no_nodes = all(
            vars(type(plugin)).get("minds_no_nodes", False)
            for hook in BETWEEN_PLACEMENTS
            for plugin in self.flat[hook]
        )
        self.orders_queues_alone = all(
            vars(type(plugin)).get("orders_queues_alone", False)
            for plugin in self.flat["queue_order"]
        )
        self.told: dict[str, str] = {}
        """Queue -> what was said last about its annotations."""
        self._parts: dict[Callable[[Hooks], object], object] = {}

    def __call__(self, hook: str) -> list[Plugin]:
        return self.flat[hook]

    def part(self, kind: Callable[[Hooks], Part]) -> Part:
        """What a floor above keeps for these plugins (the placer), made when it is first asked for."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return cast(Part, found)


class Session:
    """Opened by `hekla.engine.cycle`; actions and plugins are handed it."""

    def __init__(self, state: State, hooks: Hooks, now: float, uid: str) -> None:
        self.state = state
        self.hooks = hooks
        self.policy = hooks.policy
        self.now = now
        self.uid = uid
        self.decisions = Decisions()
        self.stage: Callable[[str, str], None] | None = None
        """Told which step of an action begins, by callers that mind how long each takes."""
        self.promised: list[Statement] = []
        """Statements that hold room until the cycle ends, without being decided."""
        self.evicted: list[Task] = []
        self.evicted_for: set[str] = set()
        """Jobs for which this cycle evicted others."""
        self.live: list[Statement] = []
        """All statements of the cycle, so that what breaks off can be undone."""
        self.touched: dict[str, Job] = {}
        self.asking: dict[PodClass, int] = {}
        """For each class, how many jobs of one plain pod allocate has found waiting."""
        self.node_scope: Any = None
        """`[nodes]` mask of the nodes this scheduler may use, or None; `hard` is whether others are
        out of the question."""
        self.shard_mode = "none"
        self.blind = False
        """A plugin could not be opened, so nothing may be decided in this cycle."""
        self.total: Amounts = {}
        self.let_in_any = False
        self.tree = tree_of(state)
        self._room: tuple[Floats, Floats, Floats] | None = None
        self.lifts_gates = state.lifts_gates
        """Whether tasks gated by their queue alone are to be let go (gate
        SchedulingGatesQueueAdmission)."""
        self._job_orders = [plugin.job_order for plugin in hooks("job_order")]
        self._queue_orders = [plugin.queue_order for plugin in hooks("queue_order")]
        self._job_valids = [plugin.job_valid for plugin in hooks("job_valid")]
        self._enqueueable = [
            [(plugin, plugin.job_enqueueable) for plugin in tier]
            for tier in hooks.tiers["job_enqueueable"]
        ]
        self._enqueued = [plugin.job_enqueued for plugin in hooks("job_enqueued")]
        self._job_readies = [plugin.job_ready for plugin in hooks("job_ready")]
        self._until_ready = {
            hook: [
                plugin.tasks_until_ready
                for plugin in hooks(hook)
                if defines(plugin, "tasks_until_ready")
            ]
            for hook in ("job_ready", "sub_job_ready")
        }
        self._task_keys = hooks("task_order")
        self._sub_keys = hooks("sub_job_order")
        self._quotas = [
            (plugin, defines(plugin, "allocatable_count")) for plugin in hooks("allocatable")
        ]
        self._overused = hooks("overused")
        self._prefilters = [plugin.prefilter for plugin in hooks("prefilter")]
        self._allocated = hooks("allocated")
        self._told = [plugin.allocated for plugin in self._allocated]
        self._deallocated = hooks("deallocated")
        self._ranks: Rows | None = None
        self.orders = OwnOrders(self)
        self.no_victim: dict[str, str] = {}
        """Job -> why nobody was evicted for it in this cycle."""

    # --------------------------------------------------------------------------------- who is there

    def active_jobs(self) -> Iterator[Job]:
        """Jobs that have something to decide and whose queue exists, in the order in which they
        became active."""
        return iter(list(self.state.active.values()))

    def changed_jobs(self, resting: bool = False) -> list[Job]:
        """Jobs that have something to decide, or that changed since they were last reported; those
        that rest only if asked for."""
        state = self.state
        jobs = {**state.unreported, **state.active, **self.touched}.values()
        return (
            list(jobs)
            if resting
            else [job for job in jobs if job.rests_until <= self.now or not self.rests(job)]
        )

    def rests(self, job: Job) -> bool:
        """Whether nothing came to the job since its last report, and what that held back is not due
        yet."""
        return (
            job.rests_until > self.now
            and job.key not in self.touched
            and job.key not in self.state.active
        )

    def jobs(self) -> Iterator[Job]:
        """All jobs of the session, also those that run content."""
        return (job for job in self.state.jobs.values() if job.contribution is not None)

    def job(self, key: str) -> Job | None:
        job = self.state.jobs.get(key)
        return job if job is not None and job.contribution is not None else None

    def queue_of(self, job: Job) -> Queue:
        return self.state.queues[job.queue]

    def in_session(self, job: Job | None) -> bool:
        return job is not None and job.contribution is not None

    def has_action(self, name: str) -> bool:
        return name in self.policy.actions

    def argument(self, action: str, name: str, default: Any) -> Any:
        return self.policy.configurations.get(action, {}).get(name, default)

    # ---------------------------------------------------------------------------------------- order

    def rank(self, rows: Rows) -> Rows | None:
        """The order in which these nodes win ties; None where it is the order of the rows
        themselves."""
        seed = self.policy.tie_seed
        if not seed:
            return None
        if self._ranks is None or len(self._ranks) != len(self.state.nodes):
            self._ranks = np.random.default_rng(seed).permutation(len(self.state.nodes))
        return self._ranks[rows]

    def job_rank(self, job: Job) -> tuple[Any, ...]:
        """The plugins' order of jobs alone, without the tie-break by age."""
        return tuple([order(job) for order in self._job_orders])

    def job_order(self, job: Job) -> tuple[Any, ...]:
        """The plugins' order of jobs with its tie-break; a queue's own order is not asked, as
        whenever somebody is to be evicted."""
        return (*self.job_rank(job), job.creation, job.key)

    def job_key(self, job: Job) -> tuple[Any, ...]:
        """The order of a queue's jobs: its own where it names one, else the plugins'."""
        own = self.orders.key(job) if self.orders.of else None
        if own is not None:
            return (*own, job.creation, job.key)
        if len(self._job_orders) == 3:  # as in the policies that most have: asked of every job
            first, second, third = self._job_orders
            return first(job), second(job), third(job), job.creation, job.key
        return (*[order(job) for order in self._job_orders], job.creation, job.key)

    def queue_key(self, queue: Queue) -> tuple[Any, ...]:
        if len(self._queue_orders) == 1:  # asked at every turn
            return self._queue_orders[0](queue), queue.creation, queue.uid
        return (*[order(queue) for order in self._queue_orders], queue.creation, queue.uid)

    def queues_by_turn(self, names: Iterable[str]) -> Heap[Queue] | LiveHeap[Queue]:
        """The queues, whose turn it is first; for actions that serve one queue at a time and evict
        nobody."""
        queues = (self.state.queues[name] for name in names)
        if self.hooks.orders_queues_alone:
            return Heap(self.queue_key, queues)
        return LiveHeap(
            lambda one, other: bool(self.queue_key(one) < self.queue_key(other)), queues
        )

    def queues_as_they_stand(self, names: Iterable[str]) -> LiveHeap[Queue]:
        """The queues, whose turn it is first, for actions that evict: what one takes changes where
        another stands."""
        return LiveHeap(
            AsThingsStand(self.queue_key, self._changes),
            (self.state.queues[name] for name in names),
        )

    def jobs_as_they_stand(self, jobs: Iterable[Job] = ()) -> LiveHeap[Job]:
        """Jobs of a queue in the same way: one that waits may be another's victim meanwhile."""
        return LiveHeap(AsThingsStand(self.job_key, self._changes), jobs)

    def _changes(self) -> int:
        return self.state.nodes.version

    def task_key(self, task: Task) -> tuple[Any, ...]:
        return (*(plugin.task_order(task) for plugin in self._task_keys), _TaskAge(task))

    def sub_job_key(self, sub_job: SubJob) -> tuple[Any, ...]:
        return (
            *(plugin.sub_job_order(sub_job) for plugin in self._sub_keys),
            sub_job.match_index,
            sub_job.uid,
        )

    def sorted_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Tasks in the order in which they are served."""
        result = list(tasks)
        if len(result) < 2:
            return result
        if all(task.index is not None for task in result):
            result.sort(key=_index_and_age)
        elif any(task.index is not None for task in result):
            # With and without an index the order can go in a circle, so what plugins tell apart is
            # not compared by it.
            result.sort(key=self.task_key)
            return result
        else:
            result.sort(key=_age)
        for plugin in reversed(self._task_keys):
            result.sort(key=plugin.task_order)
        return result

    def victim_queue_key(self, queue: Queue, claimer: Queue) -> tuple[Any, ...]:
        """Smaller is evicted from first."""
        own = tuple(
            plugin.victim_queue_order(queue, claimer) for plugin in self.hooks("victim_queue_order")
        )
        return (*own, _Reversed(self.queue_key(queue)))

    # ----------------------------------------------------------------------------- verdicts on jobs

    def job_valid(self, job: Job) -> Answer | None:
        """None where the job is valid, else why not."""
        for valid in self._job_valids:
            answer = valid(job)
            if answer is not None:
                return answer
        return None

    def job_ready(self, job: Job) -> bool:
        for ready in self._job_readies:  # noqa: SIM110 (asked for each placement: a generator would cost more than it asks)
            if not ready(job):
                return False
        return True

    def sub_job_ready(self, sub_job: SubJob) -> bool:
        if not sub_job.job.policies:
            return self.job_ready(sub_job.job)
        return all(plugin.sub_job_ready(sub_job) for plugin in self.hooks("sub_job_ready"))

    def job_pipelined(self, job: Job) -> bool:
        return self._vote("job_pipelined", lambda plugin: plugin.job_pipelined(job))

    def sub_job_pipelined(self, sub_job: SubJob) -> bool:
        if not sub_job.job.policies:
            return self.job_pipelined(sub_job.job)
        return self._vote("sub_job_pipelined", lambda plugin: plugin.sub_job_pipelined(sub_job))

    def job_starving(self, job: Job) -> bool:
        for tier in self.hooks.tiers["job_starving"]:
            return all(plugin.job_starving(job) for plugin in tier)
        return False

    def job_enqueueable(self, job: Job) -> bool:
        job.enqueue_block, job.shortages = "", ()
        for tier in self._enqueueable:
            permitted = False
            for plugin, may_enter in tier:
                vote = may_enter(job)
                if vote == REJECT:
                    job.enqueue_block = (
                        job.enqueue_block or f"plugin {plugin.name} does not let it in"
                    )
                    return False
                permitted = permitted or vote == PERMIT
            if permitted:
                return True
        return True

    def job_enqueued(self, job: Job) -> None:
        for enqueued in self._enqueued:
            enqueued(job)

    def tasks_until_ready(self, sub_job: SubJob) -> int:
        """How many more tasks may be placed in one go before readiness has to be asked again; at
        least 1."""
        hook = "sub_job_ready" if sub_job.job.policies else "job_ready"
        longest = 1
        for until_ready in self._until_ready[hook]:
            longest = max(longest, until_ready(sub_job))
        return longest

    def let_in(self, job: Job) -> None:
        """The PodGroup may have its pods placed from now on."""
        job.phase = "Inqueue"
        self.let_in_any = True
        job.enqueue_block = ""
        job.shortages = ()
        self.touched[job.key] = job

    def prefilter(self, task: Task) -> str:
        """Why no node at all will do, or nothing."""
        for prefilter in self._prefilters:
            reason = prefilter(task)
            if reason:
                return reason
        return ""

    def preferred(self, rows: Rows) -> Rows:
        """The nodes inside this scheduler's shard, if there are any; all of them without shards."""
        if self.shard_mode != "soft" or self.node_scope is None:
            return rows
        inside = rows[self.node_scope[rows]]
        return inside if len(inside) else rows

    def shard_groups(self, rows: Rows) -> list[Rows]:
        """Nodes in the order of shards: one's own first, others' only where the mode is soft."""
        if self.shard_mode != "soft" or self.node_scope is None:
            return [rows]
        inside = self.node_scope[rows]
        return [rows[inside], rows[~inside]]

    # ------------------------------------------------------------------------------------- topology

    def gradient_of_job(self, job: Job, purpose: str) -> list[list[str]]:
        """Domains to try for a job, nearest kind first; without a plugin for it, the whole cluster."""
        for plugin in self.hooks("hyper_node_gradient"):
            return plugin.hyper_node_gradient(job, CLUSTER, purpose)
        return [[CLUSTER]]

    def gradient_of_sub_job(self, sub_job: SubJob, domain: str, purpose: str) -> list[list[str]]:
        for plugin in self.hooks("hyper_node_gradient"):
            return plugin.hyper_node_gradient(sub_job, domain, purpose)
        return [[domain]]

    def nodes_of_domain(self, domain: str) -> Bools | None:
        """`[nodes]` of a domain; None for the whole cluster."""
        return None if domain == CLUSTER else self.tree.mask(domain)

    def opening_room(self) -> tuple[Floats, Floats, Floats]:
        """Idle, future idle and allocatable, `[resources, nodes]`, as they were when first asked in
        this cycle."""
        if self._room is None:
            nodes = self.state.nodes
            self._room = nodes.idle(), nodes.future_idle(), nodes.allocatable.copy()
        return self._room

    def domain_scores(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]:
        total: dict[str, float] = {}
        for plugin in self.hooks("hyper_node_order"):
            for domain, score in plugin.hyper_node_order(sub_job, domains).items():
                total[domain] = total.get(domain, 0.0) + score
        return total

    def domain_ranks(self, sub_job: SubJob, domains: list[str]) -> list[tuple[float, float]] | None:
        """For each domain what `domain_scores` sorts it by, whichever others are compared with it;
        larger is better.

        The second part counts only where first parts are equal.  None where the order cannot be
        known before all are tried.
        """
        ordering = self.hooks("hyper_node_order")
        if len(ordering) != 1 or not defines(ordering[0], "hyper_node_rank"):
            return None
        return ordering[0].hyper_node_rank(sub_job, domains)

    def domain_bounds(
        self, sub_job: SubJob, tasks: Sequence[Task], domains: list[str]
    ) -> list[float] | None:
        """The most that `domain_scores` can give to a domain within each of these; None where that
        cannot be known."""
        ordering = self.hooks("hyper_node_order")
        if len(ordering) != 1 or not defines(ordering[0], "hyper_node_bounds"):
            return None
        return ordering[0].hyper_node_bounds(sub_job, domains, self._roomy(sub_job, tasks))

    def domains_with_room(
        self, group: Group, tasks: Sequence[Task], domains: list[str]
    ) -> list[bool]:
        """Which of the domains have room for as many of the tasks as the group lacks, counted by
        its smallest requests.

        Nodes are counted as empty of filters, so what is left out is certainly too small.
        """
        roomy = self._roomy(group, tasks)
        return [roomy is None or bool(roomy[self.tree.number[name]]) for name in domains]

    def _roomy(self, group: Group, tasks: Sequence[Task]) -> Bools | None:
        """`[domains]` of the tree, or None where room alone decides nothing."""
        lacking = self._lacking(group)
        if lacking <= 0 or not tasks or not self.tree.real:
            return None
        smallest: dict[int, float] | None = None
        for pods in {id(task.pods): task for task in tasks}.values():
            asked = dict(pods.request)
            smallest = (
                asked
                if smallest is None
                else {
                    key: min(value, asked[key]) for key, value in smallest.items() if key in asked
                }
            )
        future = self.state.nodes.future_idle()
        fit: Floats = np.where(self.state.nodes.ready, float(lacking), 0.0)
        for column, value in (smallest or {}).items():
            if value > 0:
                fit = np.minimum(fit, np.floor((future[column] + EPSILON) / value))
        return self.tree.sums(np.maximum(fit, 0.0)) >= lacking

    def _lacking(self, group: Group) -> int:
        """How many more pods the group needs before anybody calls it ready or pipelined; 0 where
        gang alone does not decide that."""
        parts = isinstance(group, SubJob) and bool(group.job.policies)
        ready = {plugin.name for plugin in self.hooks("sub_job_ready" if parts else "job_ready")}
        deciding = {
            plugin.name for plugin in self.hooks("sub_job_pipelined" if parts else "job_pipelined")
        }
        if deciding != {"gang"} or "gang" not in ready:
            return 0
        counts = group.counts
        return int(group.min_available) - counts.ready - counts.pending_best_effort - counts.waiting

    # --------------------------------------------------------------------------- verdicts on queues

    def overused(self, queue: Queue) -> bool:
        for plugin in self._overused:  # noqa: SIM110 (asked at every turn)
            if plugin.overused(queue):
                return True
        return False

    def allocatable(self, queue: Queue, task: Task) -> bool:
        return all(plugin.allocatable(queue, task) for plugin in self.hooks("allocatable"))

    def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
        """How many tasks like this one the queue may take in a row, at most `limit`."""
        for plugin, counts in self._quotas:
            if counts:
                limit = min(limit, plugin.allocatable_count(queue, task, limit))
            elif not plugin.allocatable(queue, task):
                return 0
            else:
                limit = min(limit, 1)
        return limit

    def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        return all(plugin.preemptive(queue, tasks) for plugin in self.hooks("preemptive"))

    def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
        """In numbers why the queue may not take so much more."""
        return [
            one
            for plugin in self.hooks("allocatable")
            if defines(plugin, "quota_shortages")
            for one in plugin.quota_shortages(queue, asked)
        ]

    def not_preemptive(self, queue: Queue, tasks: Sequence[Task]) -> str:
        """As a clause, why the queue may take nothing from others for these tasks."""
        if queue.state != OPEN:
            return not_open(queue)
        asked = empty()
        for task in tasks:
            add(asked, task.request.amounts)
        short = [
            one
            for plugin in self.hooks("preemptive")
            if defines(plugin, "reclaim_shortages")
            for one in plugin.reclaim_shortages(queue, asked)
        ]
        numbers = ", ".join(
            f"{one.resource}={one.held} held and {one.asked} asked of {one.limit} {one.most}"
            for one in short
        )
        return f"queue {queue.name} would hold more than its share" + (
            f": {numbers}" if numbers else ""
        )

    # -------------------------------------------------------------------------------------- victims

    def preemptable(self, claimer: Task, candidates: list[Task]) -> list[Task]:
        return self._victims("preemptable", lambda plugin: plugin.preemptable(claimer, candidates))

    def reclaimable(self, claimer: Task, candidates: list[Task]) -> list[Task]:
        return self._victims("reclaimable", lambda plugin: plugin.reclaimable(claimer, candidates))

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> list[Task]:
        return self._victims("evictable", lambda plugin: plugin.evictable(kind, job, candidates))

    def balanced(self, claim: Claim, victim: Task, going: Mapping[str, Amounts] = _NOTHING) -> bool:
        """Whether room may go from the victim's queue to the one that claims it.

        `going`: what queues are to lose beside that and hold still, by name.
        """
        return all(plugin.balanced(claim, victim, going) for plugin in self.hooks("balanced"))

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        """Of the first tier that names any, all that its plugins name; less those whom a plugin of
        any tier spares."""
        chosen: dict[str, Task] = {}
        for tier in self.hooks.tiers["victim_tasks"]:
            for plugin in tier:
                for task in () if plugin.spares_victims else plugin.victim_tasks(candidates):
                    chosen.setdefault(task.key, task)
            if chosen:
                break
        left = list(chosen.values()) if self.names_victims else candidates
        for plugin in self.hooks("victim_tasks"):
            if plugin.spares_victims:
                left = plugin.victim_tasks(left)
        return left

    @property
    def names_victims(self) -> bool:
        """Whether some plugin names victims of its own accord."""
        return any(not plugin.spares_victims for plugin in self.hooks("victim_tasks"))

    def _victims(self, hook: str, ask: Callable[[Plugin], Victims]) -> list[Task]:
        """Within a tier the lists intersect; the first tier that names somebody decides.

        A tier whose plugins agree on nobody names nobody: upstream lets the plugin after begin
        anew.  Decision 0165.
        """
        for tier in self.hooks.tiers[hook]:
            chosen: list[Task] | None = None
            for plugin in tier:
                answer = ask(plugin)
                if answer.vote == ABSTAIN:
                    continue
                named = {task.key for task in answer.tasks}
                chosen = (
                    list(answer.tasks)
                    if chosen is None
                    else [task for task in chosen if task.key in named]
                )
                if not chosen:
                    break
            if chosen:
                return chosen
        return []

    def _vote(self, hook: str, ask: Callable[[Plugin], int]) -> bool:
        for tier in self.hooks.tiers[hook]:
            permitted = False
            for plugin in tier:
                vote = ask(plugin)
                if vote == REJECT:
                    return False
                permitted = permitted or vote == PERMIT
            if permitted:
                return True
        return True

    # --------------------------------------------------------------------------------- consequences

    def statement(self) -> Statement:
        made = Statement(self)
        self.live.append(made)
        if len(self.live) > 1000:
            self.live = [one for one in self.live if one]
        return made

    def abandon(self) -> None:
        """Undo what is neither decided nor promised, after an action broke off."""
        promised = {id(one) for one in self.promised}
        for one in reversed(self.live):
            if one and id(one) not in promised:
                one.rollback(quietly=True)
        self.live = [one for one in self.live if one]

    def broke_off(self, what: str, error: Exception) -> None:
        """Something failed in the middle: what it had begun is undone, and whose fault it was is
        said."""
        self.abandon()
        self.decisions.problems.append(f"{what} broke off: {fault(error, self.hooks.plugins)}")

    def tell_allocated(self, tasks: Sequence[Task]) -> None:
        """Tasks of one class hold room from now on."""
        first = tasks[0]
        job = first.job
        if job is None:
            return
        self.touched[job.key] = job
        count = len(tasks)
        total = first.pods.request.amounts if count == 1 else _times(first, count)
        told = 0
        try:
            for allocated in self._told:
                allocated(job, first, total, count)
                told += 1
        except Exception:
            # The placement is undone; whoever had counted it already counts it no more.
            for plugin in self._deallocated:
                if plugin in self._allocated[:told]:
                    plugin.deallocated(job, first, total, count)
            raise

    def tell_deallocated(self, tasks: Sequence[Task]) -> None:
        """Tasks of one class hold room no longer."""
        first = tasks[0]
        job = first.job
        if job is None:
            return
        self.touched[job.key] = job
        total = _times(first, len(tasks))
        for plugin in self._deallocated:
            plugin.deallocated(job, first, total, len(tasks))

    def decide_bind(self, tasks: Sequence[Task], rows: Rows) -> None:
        """Allocated tasks become binds."""
        job = tasks[0].job
        assert job is not None
        job.set_status_many(tasks, Status.BINDING)
        self.state.transfers.placed(tasks)
        names, key, volumes, claims = (
            self.state.nodes.names,
            job.key,
            self.state.volumes,
            self.state.claims,
        )
        pods = tasks[0].pods
        if not pods.volumes and not pods.claims:
            self.decisions.binds.extend(
                Bind(task.key, task.uid, names[row], key, task.annotations)
                for task, row in zip(tasks, rows.tolist())
            )
            return
        self.decisions.binds.extend(
            Bind(
                task.key,
                task.uid,
                names[row],
                key,
                task.annotations,
                volumes.promised_to(task),
                claims.given_to(task),
                claims.implied_by(task),
            )
            for task, row in zip(tasks, rows.tolist())
        )

    def decide_evict(self, task: Task, reason: str, claimer: Job | None = None) -> None:
        """A task that is on its way out is to be evicted, for `claimer` where it is for somebody."""
        job = task.job
        node = self.state.nodes.names[task.row]
        purpose = "" if claimer is None else purpose_of(claimer, job)
        self.decisions.evictions.append(
            Evict(task.key, task.uid, node, job.key if job is not None else "", reason, purpose)
        )
        self.evicted.append(task)
        self.state.transfers.evicted(task, claimer)

    def allocate_now(self, task: Task, row: int) -> None:
        """Without a statement: once the job is ready, everything it holds is bound.  Used by
        backfill."""
        statement = self.statement()
        statement.allocate(task, row)
        job = task.job
        assert job is not None
        waiting: list[Statement] = job.plugin_state.setdefault("allocated_now", [])
        waiting.append(statement)
        if self.job_ready(job):
            for one in waiting:
                one.commit()
            waiting.clear()
        else:
            self.promised.append(statement)

    def unpromise(self, task: Task) -> None:
        """Take back what was promised to one task."""
        for statement in self.promised:
            statement.unplace(task)

    def evict_now(self, task: Task, reason: str) -> None:
        statement = self.statement()
        statement.evict(task, reason)
        statement.commit()

    def refuse(self, job: Job, message: str, lacks: Sequence[Shortage] = ()) -> None:
        """The job may not enter now; said on its PodGroup, once for the same words.  `lacks` gives
        the numbers."""
        detail = ", ".join(one.of_minimum(job.queue) for one in lacks)
        job.enqueue_block = f"{message} ({detail})" if detail else message
        job.shortages = tuple(lacks)
        if job.last_refusal != message:
            job.last_refusal = message
            self.event(job, "Normal", "Unschedulable", message)

    def hold_back(self, job: Job, takers: Iterable[str], action: str) -> None:
        """The job may not take back what these took from it: said once, until something outside
        changes."""
        told = self.state.transfers.told
        for taker in takers:
            if (job.key, taker) not in told:
                told.add((job.key, taker))
                self.metric("evictions_held_back_total", 1.0, action=action)
                whose = f"queue {job.queue}" if taker.startswith("queue ") else "it"
                gave = (
                    IN_VAIN
                    if taker == OTHERS
                    else f"{taker} took room from {whose}, and no queue, node or job has changed since"
                )
                self.event(
                    job, "Normal", "EvictionHeldBack", f"{action} evicts nobody for it: {gave}"
                )

    def event(self, job: Job, kind: str, reason: str, message: str) -> None:
        """An event on the job's PodGroup."""
        self.decisions.events.append(Event("PodGroup", job.key, job.pg_uid, kind, reason, message))

    def step(self, name: str) -> None:
        """A step of an action begins (`Predicate`, `Scoring`), or the last one has ended."""
        if self.stage is not None:
            self.stage("step", name)

    def metric(self, name: str, value: float, **labels: str) -> None:
        self.decisions.metrics.append((name, tuple(labels.items()), value))


def _times(task: Task, count: int) -> Amounts:
    amounts = task.request.amounts
    return amounts if count == 1 else {name: value * count for name, value in amounts.items()}


def _age(task: Task) -> tuple[float, str]:
    return task.creation, task.uid


def _index_and_age(task: Task) -> tuple[int, float, str]:
    return task.index or 0, task.creation, task.uid


class _Reversed:
    """A key that sorts the other way round."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.key < self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.key == other.key)


class _TaskAge:
    """Ties between tasks: by index where both have one, else by creation time, then UID.
    Reference: scheduler-core 5.4."""

    __slots__ = ("task",)

    def __init__(self, task: Task) -> None:
        self.task = task

    def __lt__(self, other: _TaskAge) -> bool:
        mine, theirs = self.task, other.task
        if mine.index is not None and theirs.index is not None and mine.index != theirs.index:
            return mine.index < theirs.index
        return _age(mine) < _age(theirs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TaskAge) and self.task is other.task


__all__ = ["Hooks", "Session", "is_allocated"]
