"""Why a job waits, as data and as a sentence: which constraint, which resource, how short, on how many nodes, what would help."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.engine.claims.book import CANNOT, ELSEWHERE
from hekla.engine.nodes import Bools
from hekla.engine.queues import OPEN, Queue
from hekla.engine.reasons import FitErrors, Reason
from hekla.engine.resources import CPU, MEMORY, PODS, Amounts, ordered
from hekla.engine.tasks import Job, Status, Task

if TYPE_CHECKING:
    from hekla.engine.session import Session

DESERVED = "deserved"


class NodeReason(msgspec.Struct, frozen=True):
    """One reason that rules out some nodes."""

    reason: str
    """As in the pod's condition."""
    nodes: int
    text: str
    """As a person would say it."""


class Shortage(msgspec.Struct, frozen=True):
    """One resource of which a ceiling leaves too little."""

    resource: str
    queue: str
    """Whose ceiling; empty for that of the cluster."""
    limit: str
    """Which: capability, deserved, cluster, quota."""
    asked: str
    held: str
    """What counts against the ceiling already."""
    most: str
    left: str
    missing: str
    """What has to become free, or be added to the ceiling."""
    beyond: str = ""
    """By how much the request alone is over the ceiling; empty where it would fit if nothing else were there, and for
    what a queue deserves, which grows when others end."""

    def of_minimum(self, own: str) -> str:
        """For a job that is to be let in; `own` is its queue, which needs no name."""
        where = f" in queue {self.queue}" if self.queue not in ("", own) else ""
        return f"its minimum takes {self.resource}={self.asked}, {self.left} is left{where}"

    def of_share(self, own: str) -> str:
        """For a pod that its queue may not take."""
        where = "it" if self.queue == own else f"queue {self.queue}"
        return f"{where} holds {self.resource}={self.held} of {self.limit} {self.most}"


class Explanation(msgspec.Struct, frozen=True):
    """Why one job waits."""

    job: str
    queue: str
    constraint: str
    """enqueue, validity, quota, nodes, gang, order."""
    needs: int
    """Tasks that its minimum asks for."""
    fit: int
    """Tasks that hold or found a place."""
    nodes: int
    reasons: list[NodeReason]
    remedy: str
    text: str
    """All of it, as it stands on the PodGroup, in the event and in what vcctl prints."""
    spared: str = ""
    """Why nobody was evicted for it."""
    shortages: list[Shortage] = []
    """For `enqueue` and `quota`: the ceilings that are in the way, with their numbers."""


def explain(session: Session, job: Job) -> Explanation:
    """Look at a job at the end of a cycle, before promises are undone."""
    found = _explain(session, job)
    spared = session.no_victim.get(job.key)
    if spared is None or job.counts.statuses[Status.PIPELINED]:
        return found
    return msgspec.structs.replace(found, spared=spared, text=f"{found.text} No victim because {spared}.")


def _explain(session: Session, job: Job) -> Explanation:
    fit = _fit(job)
    needs = max(job.min_available, 1)
    ahead = session.orders.behind.get(job.key)
    if ahead is not None:
        first = ahead.rpartition("/")[2]
        remedy = f"It is looked at once {first} has started."
        text = f"{job.name} waits behind {first} in queue {job.queue}, whose order is strict-fifo. {remedy}"
        return Explanation(job.key, job.queue, "order", needs, fit, 0, [], remedy, text)
    if job.is_pending or job.enqueue_block:
        why = job.enqueue_block or "it has not been let in yet"
        short = list(job.shortages) if job.enqueue_block else []
        remedy = _remedy("enter", short) or (f"It enters once {_sum_of(short)} more is free." if short else "")
        text = " ".join(part for part in (f"{job.name} waits to enter queue {job.queue}: {why}.", remedy) if part)
        return Explanation(job.key, job.queue, "enqueue", needs, fit, 0, [], remedy, text, shortages=short)
    if job.fit_message:
        text = f"{job.name} cannot start: {job.fit_message}."
        return Explanation(job.key, job.queue, "validity", needs, fit, 0, [], "", text)
    errors, task = _first_errors(job)
    if errors is not None and task is not None:
        return _explain_nodes(session, job, task, errors, needs, fit)
    queue = session.queue_of(job)
    if job.short_of_quota is not None:
        return _explain_quota(session, job, queue, job.short_of_quota, needs, fit)
    if job.counts.statuses[Status.PIPELINED]:
        remedy = "It starts when the pods that are being ended have left."
        text = f"{job.name} waits for room that is being freed. {remedy}"
        return Explanation(job.key, job.queue, "nodes", needs, fit, 0, [], remedy, text)
    asking = next((task for task in job.pending() if not task.best_effort and not task.gated), None)
    if asking is not None and (queue.state != OPEN or session.overused(queue)):
        return _explain_quota(session, job, queue, asking, needs, fit)
    text = f"{job.name} waits for its turn in queue {job.queue}."
    return Explanation(job.key, job.queue, "order", needs, fit, 0, [], "", text)


def _explain_quota(session: Session, job: Job, queue: Queue, task: Task, needs: int, fit: int) -> Explanation:
    asked = describe(task.request.amounts)
    if queue.state != OPEN:
        remedy = "It starts when the queue is opened."
        text = f"{job.name}: {not_open(queue)}. {remedy}"
        return Explanation(job.key, job.queue, "quota", needs, fit, 0, [], remedy, text)
    short = session.quota_shortages(queue, task.request.amounts)
    grows = _sum_of(short) or asked
    remedy = _remedy("start", short) or f"It starts when jobs of the queue end or its share grows by {grows}."
    held = ": " + ", ".join(one.of_share(queue.name) for one in short) if short else ""
    text = f"{job.name}: queue {job.queue} may not take another {asked} now{held}. {remedy}"
    return Explanation(job.key, job.queue, "quota", needs, fit, 0, [], remedy, text, shortages=short)


def not_open(queue: Queue) -> str:
    """Why a queue places nothing."""
    return f"queue {queue.name} is not open" + (f" but {queue.state}" if queue.state else "")


def _fit(job: Job) -> int:
    counts = job.counts
    held = counts.ready + counts.waiting
    return held + sum(
        1
        for task in counts.statuses[Status.PENDING].values()
        if task.last is not None and task.last[0] in (Status.ALLOCATED, Status.PIPELINED)
    )


def _first_errors(job: Job) -> tuple[FitErrors | None, Task | None]:
    for key in sorted(job.fit_errors):
        task = job.tasks.get(key)
        if task is not None and job.fit_errors[key].nodes:
            return job.fit_errors[key], task
    return None, None


def _explain_nodes(session: Session, job: Job, task: Task, errors: FitErrors, needs: int, fit: int) -> Explanation:
    asked = describe(task.request.amounts)
    own = _own_nodes(session, job)
    reasons = [said for reason in _without(errors.reasons, own) for said in _say(session, task, reason)]
    left = errors.nodes - int(np.count_nonzero(own))
    pods = "pod" if needs == 1 else "pods"
    text = f"{job.name} needs {needs} {pods} of {asked}; {fit} fit{'s' if fit == 1 else ''}. "
    nodes = "node" if left == 1 else "nodes"
    if reasons:
        text += f"{left} {nodes}: " + ", ".join(f"{one.nodes} {one.text}" for one in reasons) + "."
    else:
        text += "Nothing is left on any node for the others."
    missing = max(needs - fit, 1)
    more = "more node has" if missing == 1 else "more nodes have"
    remedy = ""
    if any(one.text.startswith("Insufficient") for one in errors.reasons):
        remedy = f"It starts when {missing} {more} {asked} free."
        text += " " + remedy
    elif any(one.filter == "DynamicResources" and one.text == CANNOT for one in errors.reasons):
        remedy = "It starts when the devices that its claims ask for come free, or more are offered."
        text += " " + remedy
    return Explanation(job.key, job.queue, "nodes", needs, fit, errors.nodes, reasons, remedy, text)


def _own_nodes(session: Session, job: Job) -> Bools:
    """`[nodes]`: where its own pods would go; that these are full is not what keeps the others waiting."""
    own = np.zeros(len(session.state.nodes), dtype=np.bool_)
    own[[task.last[1] for task in job.pending() if task.last is not None and task.last[1] >= 0]] = True
    return own


def _without(reasons: list[Reason], own: Bools) -> list[Reason]:
    """The reasons for all other nodes, most frequent first, ties in the order in which the filters spoke."""
    rest = []
    for reason in reasons:
        mask = reason.mask if reason.mask is None else reason.mask & ~own
        count = reason.count if mask is None else int(np.count_nonzero(mask))
        if count:
            rest.append(Reason(reason.text, count, mask, reason.filter, reason.free))
    return sorted(rest, key=lambda one: (-one.count, one.filter == "NodeUnschedulable"))


def _say(session: Session, task: Task, reason: Reason) -> list[NodeReason]:
    lacks, has, is_ = ("lacks", "has", "is") if reason.count == 1 else ("lack", "have", "are")
    if reason.filter.startswith("room:") and reason.mask is not None:
        name = reason.filter.removeprefix("room:")
        most = 0.0 if reason.free is None else float(np.max(reason.free[reason.mask], initial=0.0))
        return [NodeReason(reason.text, reason.count, f"{lacks} {name} (at most {amount(name, most)} free)")]
    if reason.filter == "TaintToleration" and reason.mask is not None:
        return [
            NodeReason(reason.text, count, f"{'has' if count == 1 else 'have'} the taint {taint}")
            for taint, count in _taints(session, task, reason)
        ]
    if reason.filter == "NodeUnschedulable":
        return [NodeReason(reason.text, reason.count, f"{is_} cordoned")]
    if reason.filter == "NodeAffinity":
        return [NodeReason(reason.text, reason.count, "does not match its selector" if reason.count == 1
                           else "do not match its selector")]  # fmt: skip
    if reason.filter == "PodNumber":
        return [NodeReason(reason.text, reason.count, f"{has} no room for another pod")]
    if reason.filter == "DynamicResources" and reason.text in (CANNOT, ELSEWHERE):
        what = "devices that its claims ask for" if reason.text == CANNOT else "way to the devices that its claims were given"
        return [NodeReason(reason.text, reason.count, f"{has} no {what}")]
    return [NodeReason(reason.text, reason.count, f"{is_} out: {reason.text}")]


def _taints(session: Session, task: Task, reason: Reason) -> list[tuple[str, int]]:
    nodes = session.state.nodes
    counts: dict[str, int] = {}
    codes, many = np.unique(nodes.taint_codes[reason.mask], return_counts=True)
    for code, count in zip(codes.tolist(), many.tolist()):
        for taint in nodes.taint_sets[code]:
            if taint.effect in ("NoSchedule", "NoExecute") and not any(one.tolerates(taint) for one in task.pods.tolerations):
                counts[str(taint)] = counts.get(str(taint), 0) + count
                break
    return sorted(counts.items())


def shortages(queue: str, limit: str, asked: Amounts, held: Amounts, most: Amounts) -> list[Shortage]:
    """Where so much more than what is held goes past a ceiling, a resource each."""
    result = []
    for name in ordered(asked):
        more, has, ceiling = asked[name], max(held.get(name, 0.0), 0.0), max(most.get(name, 0.0), 0.0)
        if more > 0 and name != PODS and has + more > ceiling:
            numbers = (more, has, ceiling, max(ceiling - has, 0.0), has + more - ceiling)
            need, used, top, left, missing = (amount(name, number) for number in numbers)
            beyond = amount(name, more - ceiling) if more > ceiling and limit != DESERVED else ""
            result.append(Shortage(name, queue, limit, need, used, top, left, missing, beyond))
    return result


def _remedy(verb: str, short: Iterable[Shortage]) -> str:
    """What would help a request that no end of other jobs can help; empty where there is room for it in all."""
    beyond = _sums((one.resource, one.beyond) for one in short if one.beyond)
    return f"It would not {verb} even if all else ended; it {verb}s once the ceiling grows by {beyond}." if beyond else ""


def _sum_of(short: Iterable[Shortage]) -> str:
    """What is missing, the largest need of each resource."""
    return _sums((one.resource, one.missing) for one in short)


def _sums(amounts: Iterable[tuple[str, str]]) -> str:
    first: dict[str, str] = {}
    for name, value in amounts:
        first.setdefault(name, value)
    return " ".join(f"{name}={value}" for name, value in first.items())


def describe(amounts: Amounts) -> str:
    """A request in a few words: cpu=4 memory=2Gi."""
    parts = [f"{name}={amount(name, amounts[name])}" for name in ordered(amounts) if name != PODS and amounts[name] > 0]
    return " ".join(parts) or "nothing"


def amount(name: str, value: float) -> str:
    """One amount as a person writes it."""
    if name == MEMORY:
        for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if value >= size:
                return f"{value / size:.4g}{unit}"
        return f"{value:.0f}"
    if name == PODS:
        return f"{value:.0f}"
    if name == CPU and value % 1000:
        return f"{value:.0f}m"
    return f"{value / 1000:g}"
