"""allocate: gives pending tasks nodes, job by job, a gang as a whole or not at all.  Reference:
scheduler-core 6.2.

Tasks of one class that follow each other are placed in one call.  Before a gang is ready that is as
many as it still lacks; once it is ready, upstream serves one task a turn and asks again which queue
and job comes first.  Where nobody else waits, the answer is known beforehand, and the turns are
taken together.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hekla.engine.actions.one_pod_jobs import OnePodJobs, plain
from hekla.engine.actions.unschedulable_jobs import UnschedulableJobs
from hekla.engine.framework.faults import fault
from hekla.engine.framework.heap import Line, OrderKey
from hekla.engine.framework.statement import Operation, Placed, Statement
from hekla.engine.model.arrays import Bools
from hekla.engine.model.hypernodes import ROOT as CLUSTER
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.reasons import FitErrors
from hekla.engine.model.tasks import QUEUE_GATE, Job, Status, SubJob, Task
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.refused_nodes import Refused

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import LabelSet

MANY = 1 << 30


class Worksheet:
    """What a job has to place: its sub-jobs in the order in which they are served, and the tasks of
    each."""

    __slots__ = ("domain", "domains", "order", "required", "tasks")

    def __init__(
        self,
        order: list[SubJob],
        tasks: dict[str, list[Task]],
        required: frozenset[str] = frozenset(),
    ) -> None:
        self.order = order
        self.tasks = tasks
        self.required = required
        """The sub-jobs without which the minimum of sub-jobs is not reached."""
        self.domain = ""
        """Where the job was placed last, once that is decided; `domains` the same for its sub-jobs.
        """
        self.domains: dict[str, str] = {}

    def __bool__(self) -> bool:
        return any(self.tasks.get(sub_job.uid) for sub_job in self.order)

    def copy(self) -> Worksheet:
        return Worksheet(
            list(self.order),
            {uid: list(tasks) for uid, tasks in self.tasks.items()},
            required=self.required,
        )

    def place(self, session: Session, sub_job: SubJob) -> OrderKey:
        """The sub-job's place in the order as it stands now: what has become ready comes after what
        is not."""
        return (sub_job.uid not in self.required, *session.order.sub_job_key(sub_job))


class Allocate:
    """See the module."""

    name = "allocate"
    arguments: Mapping[str, bool | int | str] = {
        "predicateErrorCacheEnable": True,
        "candidateNodeCount": 3,
    }
    """How many candidates upstream's agent scheduler keeps for a pod: taken, because its policies
    say it, and of no use to one loop."""

    def run(self, session: Session) -> None:
        from hekla.engine.actions.timed_backfill import TimedBackfill, mode_of

        mode = mode_of(session)
        if mode:
            session.timed = timed = TimedBackfill(session, mode)
            session.at_close.append(timed.close)
            timed.start()
        else:
            resting = session.hooks.part(UnschedulableJobs)
            resting.wake(session)
            session.at_close.append(partial(resting.settle, session))
            Turns(session, resting).run()


def eligible(task: Task) -> bool:
    """Whether allocate is the action for this task."""
    return not task.pods.request.best_effort and not (task.gated and task.gated_by_others)


def worksheet(session: Session, job: Job) -> Worksheet:
    """Sub-jobs that the minimum needs come first, the rest in their order."""
    if not job.policies:
        sub_job = job.default_sub_job()
        tasks = session.order.sorted_tasks(
            [task for task in job.counts.statuses[Status.PENDING].values() if eligible(task)]
        )
        return Worksheet([sub_job], {sub_job.uid: tasks})
    waiting = sorted(
        (one for one in job.sub_jobs.values() if not session.votes.sub_job_ready(one)),
        key=session.order.sub_job_key,
    )
    have: dict[str, int] = {}
    for sub_job in job.sub_jobs.values():
        if session.votes.sub_job_ready(sub_job):
            have[sub_job.group] = have.get(sub_job.group, 0) + 1
    required: set[str] = set()
    for sub_job in waiting:
        if have.get(sub_job.group, 0) < job.min_sub_jobs.get(sub_job.group, 0):
            have[sub_job.group] = have.get(sub_job.group, 0) + 1
            required.add(sub_job.uid)
    tasks_of = {
        uid: session.order.sorted_tasks(task for task in one.pending() if eligible(task))
        for uid, one in job.sub_jobs.items()
    }
    sheet = Worksheet(
        [one for one in job.sub_jobs.values() if tasks_of[one.uid]],
        tasks_of,
        required=frozenset(required),
    )
    sheet.order.sort(key=lambda one: sheet.place(session, one))
    return sheet


def only_task(job: Job) -> Task | None:
    """The one task that a job waits for, where it can be placed without more ado (`one_pod_jobs.plain`)."""
    pending = job.counts.statuses[Status.PENDING]
    if len(pending) != 1 or job.policies:
        return None
    (task,) = pending.values()
    return (
        task
        if not task.pods.request.best_effort and plain(job, job.default_sub_job(), task)
        else None
    )


class Turns:
    def __init__(self, session: Session, resting: UnschedulableJobs | None = None) -> None:
        self.session = session
        self.resting = resting
        self.jobs: dict[str, Line[Job]] = {}
        self.sheets: dict[str, Worksheet] = {}
        """Of jobs that had a turn by the long way, and of those that cannot have one by the short
        way."""
        self.single: dict[str, Task] = {}
        """Of the other jobs the only task."""
        self.awake: list[Job] = []
        """All that had something to place and did not rest."""
        self.one_pod_jobs = OnePodJobs(session)
        self.enqueues = session.has_action("enqueue")

    def run(self) -> None:
        self._collect()
        self._serve_nominated()
        try:
            self._take_turns()
        finally:
            self.one_pod_jobs.settle()
            if self.resting is not None:
                self.resting.rest(self.session, self.awake)

    def _take_turns(self) -> None:
        session, single, one_pod_jobs = self.session, self.single, self.one_pod_jobs
        strict = session.order.own.strict
        queues = session.order.queues_by_turn(self.jobs)
        queue = queues.pop() if queues else None
        while queue is not None:
            jobs = self.jobs[queue.name]
            if session.votes.overused(queue) or not jobs:
                queue = queues.pop() if queues else None
                continue
            job = jobs.pop()
            if not (strict and session.order.own.held_back(job)) and self._wakes(job):
                again = False
                try:
                    if not one_pod_jobs.take(queue, job, single.get(job.key)):
                        again = self.serve(queue, job, not queues and not jobs)
                except Exception as error:
                    # The others are still served.
                    session.broke_off(f"the placement of {job.key}", error)
                if again:
                    jobs.push(job)
                if self.resting is not None:
                    self.resting.served(job)
            queue = queues.push_pop(queue)

    def _wakes(self, job: Job) -> bool:
        """Whether a turn may be of use to the job: a resting one may have lost its room to others."""
        resting = self.resting
        if resting is None or job.key not in resting.slot_of:
            return True
        if not resting.rouse(self.session, job):
            return False
        self.awake.append(job)
        return True

    def _collect(self) -> None:
        session = self.session
        waiting: dict[str, list[Job]] = {}
        for job in list(session.looked_at.values()):
            if self.takes_in(job):
                self.awake.append(job)
                waiting.setdefault(job.queue, []).append(job)
        for job in self.resting.roomy() if self.resting is not None else ():
            task = only_task(job)
            if task is not None:
                self.single[job.key] = task
                session.asking[task.pods] = session.asking.get(task.pods, 0) + 1
            waiting.setdefault(job.queue, []).append(job)
        self.jobs = {name: Line(session.order.job_key, jobs) for name, jobs in waiting.items()}

    def takes_in(self, job: Job) -> bool:
        """Whether the job has something to place and may have a turn."""
        session, back_off = self.session, self.session.state.back_off
        if job.is_pending:
            if self.enqueues:
                return False
            session.let_in(job)
        job.clear_fit_errors()
        if back_off.waits and back_off.left(job.key, session.now):
            job.fit_message = "its last bind was refused by the API server; it stands back before it is tried again"
            return False
        invalid = session.votes.job_valid(job)
        if invalid is not None:
            job.fit_message = invalid.message
            return False
        task = only_task(job)
        if task is not None:
            self.single[job.key] = task
            session.asking[task.pods] = session.asking.get(task.pods, 0) + 1
        elif sheet := worksheet(session, job):
            self.sheets[job.key] = sheet
        else:
            return False
        return True

    def _serve_nominated(self) -> None:
        """Victims left for these jobs: the room is theirs before anybody's turn comes."""
        session = self.session
        served: dict[str, bool] = {}
        for key in session.state.nominated:
            job = session.job(key) if key in self.sheets or key in self.single else None
            if (
                job is not None
                and not session.votes.overused(session.queue_of(job))
                and not session.order.own.held_back(job)
            ):
                served[key] = self.serve(session.queue_of(job), job, False)
        for name in dict.fromkeys(session.state.jobs[key].queue for key in served):
            # Keys are taken when jobs are pushed, and these jobs now hold more.
            self.jobs[name] = Line(
                session.order.job_key, [job for job in self.jobs[name] if served.get(job.key, True)]
            )

    def serve(self, queue: Queue, job: Job, alone: bool, only: Bools | None = None) -> bool:
        """One turn of one job; True where it wants another.  `only`: `[nodes]` that it may use."""
        session, sheet = self.session, self.sheets.get(job.key)
        if sheet is None:
            sheet = self.sheets[job.key] = worksheet(session, job)
        statement: Statement | None
        if job.policies or job.has_hard_topology:
            statement = allocate_job(session, queue, job, sheet)
        else:
            sub_job = job.default_sub_job()
            tasks = sheet.tasks[sub_job.uid]
            statement = (
                allocate_nominated(session, queue, sub_job, tasks)
                if sub_job.nominated_domain
                else None
            )
            if statement is None:
                statement = allocate_tasks(
                    session,
                    queue,
                    sub_job,
                    tasks,
                    CLUSTER,
                    alone and session.votes.job_ready(job),
                    only,
                )
        if statement is None:
            return False
        if not session.votes.job_ready(job):
            session.promised.append(statement)
            return False
        for operation in statement.operations:
            if isinstance(operation, Placed) and operation.tasks[0].subjob is not None:
                operation.tasks[0].subjob.nominated_domain = ""
        # The gang is ready: what was placed is bound.
        statement.commit()
        if sheet.domain:
            job.allocated_domain = session.tree.common(job.allocated_domain, sheet.domain)
            for uid, one in job.sub_jobs.items():
                one.allocated_domain = sheet.domains.get(uid, one.allocated_domain)
            sheet.domain = ""
        return bool(sheet)


def allocate_tasks(
    session: Session,
    queue: Queue,
    sub_job: SubJob,
    tasks: list[Task],
    within: str,
    all_at_once: bool,
    only: Bools | None = None,
) -> Statement | None:
    """Place tasks (served from the front of the list, which shrinks) on nodes of a domain until the
    sub-job is ready.

    `all_at_once`: nobody else waits, so what is left may be placed in this turn.  `only`:
    `[nodes]` that are left to it, of the whole cluster.
    """
    statement = session.statement()
    scope = session.domains.nodes(within) if only is None else only
    job = sub_job.job
    failed_roles: set[str] = set()
    for task in sub_job.tasks.values() if job.fit_errors else ():
        if task.key in job.fit_errors:
            failed_roles.add(task.role)
    at = 0
    near = sub_job.topology is not None and session.tree.real
    domain = sub_job.allocated_domain
    refused = Refused(session)
    while at < len(tasks):
        task = tasks[at]
        run = _run_length(session, tasks, at)
        wanted = min(run, MANY if all_at_once else session.votes.tasks_until_ready(sub_job))
        if near:
            # Each placement says where the next had best be.
            wanted = 1
            task.allocated_domain = domain
        allowed = session.votes.allocatable_count(queue, task, wanted)
        if not allowed:
            job.short_of_quota = task
            at += run  # The same request of the same queue: none of the run is allowed now.
            continue
        if task.gated:
            if session.lifts_gates and task.annotations.get(QUEUE_GATE) == "true":
                session.decisions.gates.append(task.key)
            at += 1
            continue
        if task.role and task.role in failed_roles:
            for one in tasks[at : at + run]:
                skipped = (
                    f"Task {one.name} with role spec {one.role} has already predicated failed, skip"
                )
                job.fit_errors.setdefault(one.key, FitErrors(0, base=skipped))
            at += run
            continue
        left = refused.remaining_nodes(task, scope)
        placed, errors = _place(session, statement, tasks[at : at + allowed], left)
        at += placed
        # With `all_at_once` each placement counts as an attempt, and as a turn, of its own.
        if errors is None and placed and not all_at_once:
            refused.remember(task, tasks, at, scope)
        elif errors is not None and left is not scope:
            errors = refused.told(task, errors)
        if near and placed and not all_at_once:
            domain = session.tree.common(session.tree.leaf(task.row), domain)
        if (
            placed
            and session.votes.sub_job_ready(sub_job)
            and not (all_at_once and at < len(tasks) and errors is None)
        ):
            break
        if errors is not None:
            if scope is not None and errors.reasons and errors.reasons[0].filter != "prefilter":
                errors.hyper_node = within
            # What does not fit now does not fit for the others of its class either.
            failed = tasks[at : at + _run_length(session, tasks, at)]
            for one in failed:
                job.fit_errors[one.key] = errors
            failed_roles.add(failed[0].role)
            at += len(failed)
            if not _may_continue(job, sub_job, failed_roles):
                # The rest waits for another turn, which comes where something was placed or nobody
                # minds the gang.
                break
    del tasks[:at]
    if session.votes.sub_job_ready(sub_job) or session.votes.sub_job_pipelined(sub_job):
        return statement
    statement.discard()
    return None


def _place(
    session: Session, statement: Statement, tasks: list[Task], scope: Bools | None
) -> tuple[int, FitErrors | None]:
    """Place tasks of one class: how many found a node, and why the next did not.

    Each placement takes effect at once: its task holds room on its node until the statement is
    discarded.
    """
    placed = 0
    for placement in placer_of(session).place(session, tasks, scope):
        if placement.why_not is not None:
            return placed, placement.why_not()
        statement.carry_out(placement)
        placed += len(placement.rows)
    return placed, None


def _run_length(session: Session, tasks: list[Task], at: int) -> int:
    """How many tasks from here on are the same to every plugin."""
    if session.hooks.one_at_a_time:
        return 1
    first = tasks[at]
    end = at + 1
    while end < len(tasks):
        task = tasks[end]
        if (
            task.pods is not first.pods
            or task.role != first.role
            or task.gated != first.gated
            or task.nominated != first.nominated
            or task.claims != first.claims
            or task.unmade != first.unmade
            or (task.labels is not first.labels and _told_apart(task.labels, first.labels))
        ):
            break
        end += 1
    return end - at


def _told_apart(one: LabelSet, other: LabelSet) -> bool:
    """Whether pods with these labels are not the same to every plugin."""
    return bool(
        one.terms or other.terms or one.peers is not other.peers or one.counted != other.counted
    )


def _may_continue(job: Job, sub_job: SubJob, failed_roles: set[str]) -> bool:
    """After a task failed: can the group still reach its minimum?  Reference: scheduler-core 4.6."""
    if job.min_available == len(job.tasks):
        return False
    if sub_job.min_available >= len(sub_job.tasks):
        return False
    if job.policies:
        return True
    if job.min_available < job.role_total:
        pending = sum(1 for task in job.pending() if task.role not in failed_roles)
        return job.counts.ready + pending >= job.min_available
    for role in failed_roles:
        minimum = job.role_minimums.get(role, 0)
        if minimum > 0 and job.role_count(role) < minimum:
            return False
    return True


def allocate_nominated(
    session: Session, queue: Queue, sub_job: SubJob, tasks: list[Task]
) -> Statement | None:
    """Every task goes where an eviction made room for it, or none does and the nomination is void."""
    statement = session.statement()
    nodes, placer = session.state.nodes, placer_of(session)
    scope = session.domains.nodes(sub_job.nominated_domain)
    for task in tasks:
        row = nodes.rows.get(task.nominated, -1) if task.nominated else -1
        held = (
            row >= 0
            and (scope is None or bool(scope[row]))
            and session.votes.allocatable(queue, task)
            and not session.votes.prefilter(task)
            and placer.filters.passes(session, task, row)
            and nodes.fits_future(row, task.request)
        )
        if not held:
            _void(statement, sub_job, tasks)
            return None
        try:
            if nodes.fits_idle(row, task.request):
                statement.allocate(task, row)
            else:
                statement.pipeline(task, row)
        except Exception as error:  # a plugin's mistake: the others are still served
            session.decisions.problems.append(
                f"the nomination of {sub_job.uid} is void: {fault(error, session.hooks.plugins)}"
            )
            _void(statement, sub_job, tasks)
            return None
    sub_job.allocated_domain = session.tree.common(
        sub_job.allocated_domain, sub_job.nominated_domain
    )
    tasks.clear()
    return statement


def _void(statement: Statement, sub_job: SubJob, tasks: list[Task]) -> None:
    """The nomination cannot be followed: the search is the usual one."""
    statement.discard()
    sub_job.nominated_domain = ""
    for task in tasks:
        task.nominated = ""


def allocate_job(session: Session, queue: Queue, job: Job, sheet: Worksheet) -> Statement | None:
    """A job with sub-groups or a hard topology: each domain is tried dry, the best that holds it is
    taken."""
    best: _Trial | None = None
    tasks = [task for one in sheet.order for task in sheet.tasks[one.uid]]
    skipped = ""
    for domains in session.domains.gradient_of_job(job, "allocate"):
        roomy = session.domains.with_room(job, tasks, domains)
        skipped = domains[-1] if not roomy[-1] else ""
        best = _best_trial(
            session, queue, job, sheet, [one for one, has_room in zip(domains, roomy) if has_room]
        )
        if best is not None:
            break
    if best is None:
        if skipped:
            # Only to hear which of its tasks found what lacking.
            _try_job(session, queue, job, sheet, skipped)
        return None
    statement = session.statement()
    statement.replay(best.saved)
    sheet.order, sheet.tasks = best.sheet.order, best.sheet.tasks
    sheet.domain, sheet.domains = best.domain, best.taken
    return statement


class _Trial(NamedTuple):
    """A domain that holds a job, and how."""

    score: float
    domain: str
    saved: list[Operation]
    sheet: Worksheet
    taken: dict[str, str]


def _best_trial(
    session: Session, queue: Queue, job: Job, sheet: Worksheet, domains: list[str]
) -> _Trial | None:
    """The domain with the highest score among those that hold the job, the first of equals.

    Where no domain left can do better than the best so far, the rest is not tried: what one sub-job
    can score at most is known.
    """
    best: tuple[_Trial, int] | None = None
    bounds: list[float] | None = None
    if len(sheet.order) == 1 and len(domains) > 1 and _in_one_turn(session, job, sheet):
        (only,) = sheet.order
        bounds = session.domains.bounds(only, sheet.tasks[only.uid], domains)
    order = list(range(len(domains)))
    if bounds is not None:
        order.sort(key=lambda at: (-bounds[at], at))
    for at in order:
        if (
            best is not None
            and bounds is not None
            and (bounds[at], -at) < (best[0].score, -best[1])
        ):
            break
        trial = _try_job(session, queue, job, sheet, domains[at])
        if trial is not None and (best is None or (trial.score, -at) > (best[0].score, -best[1])):
            best = trial, at
    return best[0] if best is not None else None


def _in_one_turn(session: Session, job: Job, sheet: Worksheet) -> bool:
    """Whether the only sub-job of a sheet is served once at most: each turn that it gets adds to
    the score."""
    (only,) = sheet.order
    return (
        not job.policies
        or session.votes.job_ready(job)
        or session.votes.tasks_until_ready(only) >= len(sheet.tasks[only.uid])
    )


def _try_job(
    session: Session, queue: Queue, job: Job, sheet: Worksheet, domain: str
) -> _Trial | None:
    """Place the job in a domain and take everything back; None where the domain does not hold it."""
    job.fit_errors = {}
    before = {uid: one.allocated_domain for uid, one in job.sub_jobs.items()}
    trial = sheet.copy()
    score, statements = _try_domain(session, queue, job, trial, domain)
    taken = {uid: one.allocated_domain for uid, one in job.sub_jobs.items()}
    for uid, one in job.sub_jobs.items():
        one.allocated_domain = before[uid]
    saved = [operation for statement in statements for operation in statement.save()]
    holds = bool(saved) and (session.votes.job_ready(job) or session.votes.job_pipelined(job))
    for statement in statements:
        statement.discard()
    return _Trial(score, domain, saved, trial, taken) if holds else None


def _try_domain(
    session: Session, queue: Queue, job: Job, sheet: Worksheet, domain: str
) -> tuple[float, list[Statement]]:
    statements: list[Statement] = []
    total = 0.0
    while sheet.order:
        sub_job = sheet.order.pop(0)
        tasks = sheet.tasks[sub_job.uid]
        statement, score = _allocate_sub_job(session, queue, sub_job, tasks, domain)
        if statement is None or not statement:
            continue
        statements.append(statement)
        total += score
        if tasks:
            insort(sheet.order, sub_job, key=lambda one: sheet.place(session, one))
        if session.votes.job_ready(job):
            break
    return total, statements


def _allocate_sub_job(
    session: Session, queue: Queue, sub_job: SubJob, tasks: list[Task], domain: str
) -> tuple[Statement | None, float]:
    if sub_job.nominated_domain:
        nominated = allocate_nominated(session, queue, sub_job, tasks)
        if nominated is not None:
            return nominated, 0.0
    skipped = ""
    for domains in session.domains.gradient_of_sub_job(sub_job, domain, "allocate"):
        roomy = session.domains.with_room(sub_job, tasks, domains)
        skipped = domains[-1] if not roomy[-1] else ""
        within = [one for one, has_room in zip(domains, roomy) if has_room]
        found = _try_sub_job(session, queue, sub_job, tasks, within)
        if not found:
            continue
        scores = session.domains.scores(sub_job, [one.domain for one in found])
        best = max(
            range(len(found)), key=lambda at: (scores.get(found[at].domain, 0.0), -found[at].place)
        )
        chosen = found[best]
        statement = session.statement()
        statement.replay(chosen.saved)
        sub_job.allocated_domain = session.tree.common(sub_job.allocated_domain, chosen.domain)
        tasks[:] = chosen.rest
        return statement, scores.get(chosen.domain, 0.0)
    if skipped:
        # Only to hear what its tasks found lacking.
        _try_sub_job(session, queue, sub_job, tasks, [skipped])
    return None, 0.0


class _Found(NamedTuple):
    """A domain that holds a sub-job, its place among those asked about, and what would be left to
    place."""

    domain: str
    place: int
    saved: list[Operation]
    rest: list[Task]


def _try_sub_job(
    session: Session, queue: Queue, sub_job: SubJob, tasks: list[Task], domains: list[str]
) -> list[_Found]:
    """The domains that hold the sub-job; where the best is known beforehand, it and at most one
    that ties with it."""
    found: list[_Found] = []
    order = list(range(len(domains)))
    ranks = session.domains.ranks(sub_job, domains) if len(domains) > 1 else None
    if ranks is not None:
        order.sort(key=lambda at: (-ranks[at][0], -ranks[at][1], at))
    for at in order:
        if found and ranks is not None:
            best = ranks[found[0].place]
            # A second of the same rank matters to the score: what decides between equals is counted
            # only where there are some.
            if len(found) > 1 or not best[1] or ranks[at][0] != best[0]:
                break
        # Also of those placed since: a trial of theirs may have failed elsewhere.
        for key in [key for key in sub_job.job.fit_errors if key in sub_job.tasks]:
            del sub_job.job.fit_errors[key]
        rest = list(tasks)
        statement = allocate_tasks(session, queue, sub_job, rest, domains[at], False)
        if statement is None:
            continue
        if statement:
            found.append(_Found(domains[at], at, statement.save(), rest))
        statement.discard()
    return found
