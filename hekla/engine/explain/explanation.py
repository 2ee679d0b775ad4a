"""Why a job waits, as data and as a sentence: which constraint, which resource, how short, on how
many nodes, what would help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from hekla.engine.explain.amounts import amount, describe, written
from hekla.engine.explain.domainreasons import DomainVerdict, apart_verdict, domain_verdict
from hekla.engine.explain.nodereasons import cut, placed, verdict
from hekla.engine.framework.joborder import waits
from hekla.engine.model.explanations import Explanation, NodeReason, not_open
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.reasons import FitErrors, Shortage
from hekla.engine.model.resources import EPSILON, PODS, Amounts, amounts, ordered
from hekla.engine.model.tasks import READY, Group, Job, Status, Task, requests_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

DESERVED = "deserved"
BESIDE_GUARANTEES = "what others' guarantees leave"
LONGEST = 1024
"""Characters of a text: what an event holds, so that it is the same everywhere."""


def explain(session: Session, job: Job) -> Explanation:
    """Look at a job at the end of a cycle, before promises are undone."""
    found = _explain(session, job)
    spared = session.no_victim.get(job.key)
    if spared is None or job.counts.statuses[Status.PIPELINED]:
        return (
            found
            if len(found.text) <= LONGEST
            else msgspec.structs.replace(found, text=cut(found.text, LONGEST))
        )
    if any(one.reason == spared for one in found.reasons):
        spared = "no eviction could help"
    return msgspec.structs.replace(
        found, spared=spared, text=cut(f"{found.text} No victim because {spared}.", LONGEST)
    )


def _explain(session: Session, job: Job) -> Explanation:
    fit, _ = placed(session, job)
    needs = max(job.min_available, 1)
    made = _Maker(job, needs, fit)
    ahead = session.order.own.behind.get(job.key)
    if ahead is not None:
        first = called(session, ahead, job.namespace)
        remedy = f"It is looked at once {first} has started."
        what = f"waits behind {first} in queue {job.queue}, whose order is strict-fifo."
        return made.because("order", what, remedy)
    if job.is_pending or job.enqueue_block:
        why = job.enqueue_block or "it has not been let in yet"
        short = list(job.shortages) if job.enqueue_block else []
        remedy = _remedy(session, "enter", short) or (
            f"It enters once {_sum_of(short)} more is free." if short else ""
        )
        if not short and why == not_open(session.queue_of(job)):
            remedy = "It enters once the queue is opened."
        what = f"waits to enter queue {job.queue}: {why}."
        return made.because("enqueue", what, remedy, short)
    missing = _missing_pods(session, job)
    if missing is not None:
        return made.because("validity", *missing)
    if job.fit_message:
        remedy = (
            "It is tried again within a minute; the events of its pods have the server's words."
            if session.state.back_off.left(job.key, session.now)
            else ""
        )
        return made.because("validity", f"cannot start: {job.fit_message}.", remedy)
    if job.counts.statuses[Status.PIPELINED] and fit >= needs:
        return _explain_promised(made)
    group = _within_domain(job)
    apart = apart_verdict(session, job)
    if apart is not None:
        return made.because("topology", apart.text, apart.remedy)
    if group is not None and session.tree.real:
        found = domain_verdict(session, group)
        if found is not None:
            return made.because("topology", found.text, found.remedy, _of_domain(found))
    errors, task = _first_errors(job)
    if errors is not None and task is not None:
        return _explain_nodes(session, job, task, errors, made)
    queue = session.queue_of(job)
    if job.short_of_quota is not None:
        return _explain_quota(session, job, queue, job.short_of_quota, made)
    if job.counts.statuses[Status.PIPELINED]:
        return _explain_promised(made)
    asking = next((task for task in job.pending() if not task.best_effort and not task.gated), None)
    if asking is not None and (queue.state != OPEN or session.votes.overused(queue)):
        return _explain_quota(session, job, queue, asking, made)
    if any(task.gated and task.gated_by_others for task in job.pending()) and asking is None:
        gates = ", ".join(sorted({gate for task in job.pending() for gate in task.gated}))
        remedy = "It is looked at once their gates are lifted."
        what = f"has pods that may not be scheduled yet (gates: {gates})."
        return made.because("validity", what, remedy)
    if not session.state.nodes.ready.any():
        what = "waits: there are no nodes. It starts once some have joined."
        return made.because("nodes", what)
    if any(
        one is not job and one.queue == job.queue and waits(one) for one in session.active_jobs()
    ):
        return made.because("order", f"waits for its turn in queue {job.queue}.")
    return made.because("validity", *_untried(session, job))


def _untried(session: Session, job: Job) -> tuple[str, str]:
    """Of a job that nobody stands before and that no action has placed or refused, what is said,
    and what would help."""
    for errors in job.fit_errors.values():
        return f"waits: {errors.text}", ""
    best_effort = all(task.best_effort for task in job.pending() if not task.gated)
    action, kind = (
        ("backfill", "pods that ask for nothing") if best_effort else ("allocate", "pods")
    )
    if not session.has_action(action):
        remedy = f'It is looked at once "actions" names {action}.'
        return f"waits: the scheduler's policy has no action that places {kind}.", remedy
    remedy = "It is looked at again as soon as anything changes."
    return "waits: no action of this cycle came to it.", remedy


def _within_domain(job: Job) -> Group | None:
    """What has to find its place within one domain of the network and has not: the job, or the
    first of its sub-groups."""
    if job.effective is not None and job.effective.hard:
        return None if job.is_ready() else job
    hard = (
        one
        for one in job.sub_jobs.values()
        if one.effective is not None and one.effective.hard and not one.is_ready()
    )
    return min(hard, key=lambda one: (one.match_index, one.uid), default=None)


def _of_domain(found: DomainVerdict) -> list[Shortage]:
    """Pods for which the best domain has no room."""
    needed, room, missing = (
        amount(PODS, number) for number in (found.needed, found.room, found.needed - found.room)
    )
    return [
        Shortage(
            PODS,
            "",
            f"domain {found.best}" if found.best else "domain",
            needed,
            "",
            room,
            room,
            missing,
        )
    ]


class _Maker:
    """What the explanations of one job have in common."""

    def __init__(self, job: Job, needs: int, fit: int) -> None:
        self.job, self.needs, self.fit = job, needs, fit

    def __call__(
        self,
        constraint: str,
        text: str,
        remedy: str = "",
        nodes: int = 0,
        reasons: Iterable[NodeReason] = (),
        shortages: Iterable[Shortage] = (),
        missing: int = 0,
        task: Task | None = None,
    ) -> Explanation:
        """`task`: one of the `missing` pods."""
        asks = {} if task is None else written(task.request.amounts)
        return Explanation(
            self.job.key,
            self.job.queue,
            constraint,
            self.needs,
            self.fit,
            nodes,
            list(reasons),
            remedy,
            text,
            shortages=list(shortages),
            missing=missing,
            asks=asks,
        )

    def because(
        self, constraint: str, what: str, remedy: str = "", shortages: Iterable[Shortage] = ()
    ) -> Explanation:
        """In a sentence that begins with the job and ends with what would help."""
        text = f"{self.job.title} {what}" + (f" {remedy}" if remedy else "")
        return self(constraint, text, remedy, shortages=shortages)


def called(session: Session, key: str, namespace: str) -> str:
    """What another job is called, for a reader in this namespace."""
    where, _, name = key.rpartition("/")
    other = session.state.jobs.get(key)
    title = name if other is None else other.title
    return title if where == namespace else f"{where}/{title}"


def _missing_pods(session: Session, job: Job) -> tuple[str, str] | None:
    """Of a job that has fewer pods than it may start with, what is said, and what would help."""
    counts, needs = job.counts, job.min_available
    if job.tasks and not job.fit_message:
        return None
    lacking = [
        f"{have} of {wanted} of role {role}"
        for role, wanted in sorted(job.role_minimums.items())
        if (
            have := job.role_count(
                role, (*READY, Status.PIPELINED, Status.PENDING), pending_empty=False
            )
        )
        < wanted
    ]
    if counts.valid >= needs and (not lacking or job.roles_valid()):
        return None
    names = " or ".join(sorted(session.state.pods.scheduler_names or ()))
    who = ("it is" if needs == 1 else "they are") if not counts.valid else "the others are"
    remedy = (
        f"It is looked at once {who} there{f', with the schedulerName {names}' if names else ''}."
    )
    roles = f" ({', '.join(lacking)})" if len(job.role_minimums) > 1 else ""
    return f"has {counts.valid} of the {needs} {_pods(needs)} that it needs{roles}.", remedy


def _explain_promised(made: _Maker) -> Explanation:
    remedy = "It starts when the pods that are being ended have left."
    return made.because("nodes", "waits for room that is being freed.", remedy)


def _explain_quota(
    session: Session, job: Job, queue: Queue, task: Task, made: _Maker
) -> Explanation:
    asked = describe(task.request.amounts)
    more = _runs(job)
    starts = "The next starts" if more else "It starts"
    who = f"{job.title} runs, more of its pods wait" if more else job.title
    if queue.state != OPEN:
        remedy = f"{starts} when the queue is opened."
        return made("quota", f"{who}: {not_open(queue)}. {remedy}", remedy)
    if not more and (above := above_its_share(session, queue, job)):
        lacks = _sums((one.resource, one.beyond) for one in above)
        minimum = _sums((one.resource, one.asked) for one in above)
        deserves = _sums((one.resource, one.most) for one in above)
        remedy = f"It starts when that grows by {lacks}: others end or ask for less, or its weight is raised."
        what = f"its minimum of {minimum} is more than queue {queue.name} deserves now, which is {deserves}."
        text = f"{who}: {what} {remedy}"
        return made("quota", text, remedy, shortages=above, missing=1, task=task)
    short = session.votes.quota_shortages(queue, task.request.amounts)
    grows = _sum_of(short) or asked
    remedy = (
        _remedy(session, "start", short)
        or f"{starts} when jobs of the queue end or its share grows by {grows}."
    )
    held = ": " + ", ".join(one.of_share(queue.name) for one in short) if short else ""
    return made(
        "quota",
        f"{who}: queue {job.queue} may not take another {asked} now{held}. {remedy}",
        remedy,
        shortages=short,
        missing=1,
        task=task,
    )


def above_its_share(session: Session, queue: Queue, job: Job) -> list[Shortage]:
    """Where all that a gang needs at once is more than what its queue deserves; `beyond` is by how
    much.  Then nobody's end within the queue helps."""
    if job.min_available < 2:
        return []
    tasks = session.order.sorted_tasks(job.tasks.values())
    minimum = requests_of(tasks[: job.min_available])
    found = []
    for one in session.votes.quota_shortages(queue, minimum):
        if one.limit == DESERVED:
            lacks = minimum[one.resource] - amounts({one.resource: one.most})[one.resource]
            if lacks > EPSILON:
                found.append(msgspec.structs.replace(one, beyond=amount(one.resource, lacks)))
    return found


def _first_errors(job: Job) -> tuple[FitErrors | None, Task | None]:
    for key in sorted(job.fit_errors):
        task = job.tasks.get(key)
        if task is not None and job.fit_errors[key].nodes:
            return job.fit_errors[key], task
    return None, None


def _explain_nodes(
    session: Session, job: Job, task: Task, errors: FitErrors, made: _Maker
) -> Explanation:
    asked = "" if task.best_effort else f" of {describe(task.request.amounts)}"
    fit, later = placed(session, job)
    waiting = sum(
        1
        for one in job.pending()
        if one.pods is task.pods and (one.last is None or one.last[0] is Status.PENDING)
    )
    more = _runs(job)
    missing = waiting if more else max(min(made.needs - fit, waiting), 1)
    if more:
        lead = f"{job.title} runs; {waiting} more {_pods(waiting)}{asked} {'waits' if waiting == 1 else 'wait'}."
    elif all(
        one.pods.request is task.pods.request or one.pods.request.amounts == task.request.amounts
        for one in job.pending()
    ):
        lead = f"{job.title} needs {made.needs} {_pods(made.needs)}{asked}; {_fits(fit, later)}."
    else:
        kind = f"those of role {task.role}" if task.role else "some"
        lead = f"{job.title} needs {made.needs} {_pods(made.needs)}, {kind}{asked}; {_fits(fit, later)}."
    found = verdict(session, job, task, errors, missing, more)
    text = " ".join(part for part in (lead, found.text, found.remedy) if part)
    return made(
        "nodes", text, found.remedy, errors.nodes, found.reasons, missing=missing, task=task
    )


def _runs(job: Job) -> bool:
    """Whether its minimum has its place, so that what waits is beyond that."""
    return job.counts.ready >= max(job.min_available, 1)


def _fits(fit: int, later: int) -> str:
    """How many have a place, and how many of these only in room that others would have to leave."""
    left = (
        ""
        if not later
        else " once others have left"
        if later >= fit
        else f", {later} of them once others have left"
    )
    return f"{fit} fit{'s' if fit == 1 else ''}{left}"


def _pods(count: int) -> str:
    return "pod" if count == 1 else "pods"


def shortages(
    queue: str, limit: str, asked: Amounts, held: Amounts, most: Amounts
) -> list[Shortage]:
    """Where so much more than what is held goes past a ceiling, a resource each."""
    result = []
    for name in ordered(asked):
        more = asked[name]
        has = max(held.get(name, 0.0), 0.0)
        ceiling = max(most.get(name, 0.0), 0.0)
        if more > 0 and name != PODS and has + more > ceiling:
            numbers = (more, has, ceiling, max(ceiling - has, 0.0), has + more - ceiling)
            need, used, top, left, missing = (amount(name, number) for number in numbers)
            beyond = (
                amount(name, more - ceiling)
                if more > ceiling and limit not in (DESERVED, BESIDE_GUARANTEES)
                else ""
            )
            result.append(Shortage(name, queue, limit, need, used, top, left, missing, beyond))
    return result


def _remedy(session: Session, verb: str, short: Iterable[Shortage]) -> str:
    """What would help a request that no end of other jobs can help; empty where there is room for
    it in all."""
    ceilings: dict[str, dict[str, str]] = {}
    for one in short:
        if one.beyond:
            ceilings.setdefault(_ceiling(session, one), {}).setdefault(one.resource, one.beyond)
    grows = " and ".join(f"{which} grows by {_sums(by.items())}" for which, by in ceilings.items())
    return f"It would not {verb} even if all else ended; it {verb}s once {grows}." if grows else ""


def _ceiling(session: Session, one: Shortage) -> str:
    """What is in the way: a queue's own ceiling, a quota, or the cluster's size."""
    if one.limit.startswith("quota"):
        return f"the {one.limit} of its namespace"
    name, seen = one.queue, set[str]()
    # A queue that names no capability has its parent's.
    while name in session.state.queues and name not in seen:
        seen.add(name)
        queue = session.state.queues[name]
        if one.resource in queue.capability:
            return f"the {one.limit} of queue {name}"
        name = queue.parent
    if not session.total.get(one.resource):
        return f"the cluster, where no node has {one.resource},"
    return f"what queue {one.queue} may have of the cluster" if one.queue else "the cluster"


def _sum_of(short: Iterable[Shortage]) -> str:
    """What is missing, the largest need of each resource."""
    return _sums((one.resource, one.missing) for one in short)


def _sums(amounts: Iterable[tuple[str, str]]) -> str:
    first: dict[str, str] = {}
    for name, value in amounts:
        first.setdefault(name, value)
    return " ".join(f"{name}={value}" for name, value in first.items())
