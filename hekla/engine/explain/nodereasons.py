"""Why no node will do for a pod: true of every node, and with what would help.

The wire's texts count what a search met first, and a search asks for room before anything else.
Whoever reads an explanation wants to know whether waiting helps: a full node that the pod may not
use anyway is no reason to wait, so what rules a node out for good goes before a lack of room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from hekla.engine.explain.amounts import amount, describe
from hekla.engine.model.arrays import Bools
from hekla.engine.model.claims.allocator import ELSEWHERE
from hekla.engine.model.claims.search import CANNOT
from hekla.engine.model.explanations import NodeReason
from hekla.engine.model.reasons import FitErrors, Reason
from hekla.engine.model.resources import EPSILON, PODS, ordered
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.placement.filters import RESERVED
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

PREFILTER = "prefilter"
MOST_REASONS = 6
LONGEST_REASON = 160
ROOM = "room:"


class Words(NamedTuple):
    """What is said of one node and of several, and what would have to become true of one and of
    several."""

    one: str
    many: str
    helps_one: str
    helps_many: str


WORDS = {
    "NodeUnschedulable": Words("is cordoned", "are cordoned", "is uncordoned", "are uncordoned"),
    "PodNumber": Words("has no room for another pod", "have no room for another pod", "has room for a pod", "have room for a pod"),
    "NodePorts": Words("has its host port taken", "have its host port taken", "has its host port free", "have its host port free"),
    "PodAffinity": Words("is not near the pods that it wants to be near", "are not near the pods that it wants to be near",
                         "is near the pods that it wants", "are near the pods that it wants"),
    "PodAntiAffinity": Words("is near pods that it avoids", "are near pods that it avoids",
                             "has no pods near it that it avoids", "have no pods near them that it avoids"),
    "ExistingAntiAffinity": Words("is near pods that avoid it", "are near pods that avoid it",
                                  "has no pods near it that avoid it", "have no pods near them that avoid it"),
    "PodTopologySpread": Words("would spread its pods too unevenly", "would spread its pods too unevenly",
                               "keeps its pods spread", "keep its pods spread"),
    "SpreadLabel": Words("lacks the label that it is spread by", "lack the label that it is spread by",
                         "has the label that it is spread by", "have the label that it is spread by"),
    "NodeVolumeLimits": Words("takes no further volume", "take no further volume", "takes its volume", "take its volume"),
    "VolumeZone": Words("is in another zone than its volumes", "are in another zone than its volumes",
                        "is in the zone of its volumes", "are in the zone of its volumes"),
}  # fmt: skip
"""By filter, where its own text is for the wire."""


class Verdict(NamedTuple):
    """Why the nodes will not do."""

    text: str
    """All of it, but for what would help; empty where nothing but the job's own pods are in the
    way."""
    remedy: str
    reasons: list[NodeReason]


def verdict(
    session: Session, job: Job, task: Task, errors: FitErrors, missing: int, more: bool
) -> Verdict:
    """Why no node will do for `task`; `missing` pods like it want a place, for the job to start or
    (`more`) beside those that run."""
    whole = next((one for one in errors.reasons if one.filter == PREFILTER), None)
    starts = "The next starts" if more else "It starts"
    if whole is not None:
        said = _unwrapped(whole.text)
        return Verdict(
            f"No node will do: {said}.",
            f"{starts} once that is no longer so.",
            [NodeReason(whole.text, whole.count, said)],
        )
    own = _own_nodes(session, job, task)
    reasons = _sorted(_without(_for_good(session, task, errors), own))
    said_of = [(reason, _say(session, task, reason)) for reason in reasons]
    listed = _shortened([one for _, several in said_of for one in several])
    left = errors.nodes - int(np.count_nonzero(own))
    if listed:
        text = (
            f"{left} {'node' if left == 1 else 'nodes'}: "
            + ", ".join(f"{one.nodes} {one.text}" for one in listed)
            + "."
        )
    else:
        text = "Nothing is left on any node for the others."
    return Verdict(text, _remedy(session, task, errors, reasons, missing, starts), listed)


def _shortened(listed: list[NodeReason]) -> list[NodeReason]:
    """No more than a reader takes in: a cluster can have a taint a node, and a plugin a reason a
    node."""
    listed = [msgspec.structs.replace(one, text=cut(one.text, LONGEST_REASON)) for one in listed]
    rest = sum(one.nodes for one in listed[MOST_REASONS:])
    return [*listed[:MOST_REASONS], NodeReason("", rest, "for other reasons")] if rest else listed


def cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _unwrapped(text: str) -> str:
    """A reason without the words that the wire puts before it."""
    return text.rpartition(" pre-predicates failed ")[2]


def _own_nodes(session: Session, job: Job, task: Task) -> Bools:
    """`[nodes]`: where its own pods would go; that these are full is not what keeps the others of
    their kind waiting."""
    own = np.zeros(len(session.state.nodes), dtype=np.bool_)
    own[
        [
            one.last[1]
            for one in job.pending()
            if one.last is not None and one.last[1] >= 0 and one.pods is task.pods
        ]
    ] = True
    own[
        [one.row for one in job.counts.statuses[Status.PIPELINED].values() if one.pods is task.pods]
    ] = True
    return own


def _for_good(session: Session, task: Task, errors: FitErrors) -> list[Reason]:
    """The reasons, where a node that the pod may not use anyway is counted under that, whatever
    else it lacks."""
    placer = placer_of(session)
    static = placer.filters.static_mask(session, task)
    blocked = np.zeros(len(static), dtype=np.bool_)
    for reason in errors.reasons:
        if reason.mask is not None:
            blocked |= reason.mask & ~static
    if not blocked.any():
        return errors.reasons
    final = [
        Reason(one.text, 0, one.mask & blocked, one.filter)
        for one in placer.filters.static_reasons(session, task)
        if one.mask is not None
    ]
    names = {one.filter for one in final}
    rest = [
        one if one.mask is None else Reason(one.text, 0, one.mask & ~blocked, one.filter, one.free)
        for one in errors.reasons
        if one.filter not in names
    ]
    return [*rest, *final]


def _without(reasons: list[Reason], own: Bools) -> list[Reason]:
    """The reasons for all other nodes."""
    rest = []
    for reason in reasons:
        mask = reason.mask if reason.mask is None else reason.mask & ~own
        count = reason.count if mask is None else int(np.count_nonzero(mask))
        if count:
            rest.append(Reason(reason.text, count, mask, reason.filter, reason.free))
    return rest


def _sorted(reasons: list[Reason]) -> list[Reason]:
    """Most frequent first, ties in the order in which the filters spoke."""
    return sorted(reasons, key=lambda one: (-one.count, one.filter == "NodeUnschedulable"))


# ------------------------------------------------------------------------------- what is the matter


def _say(session: Session, task: Task, reason: Reason) -> list[NodeReason]:
    one = reason.count == 1
    if reason.filter.startswith(ROOM) and reason.mask is not None:
        return [_lack(session, task, reason)]
    if reason.filter == "TaintToleration" and reason.mask is not None:
        return [
            NodeReason(reason.text, count, f"{'has' if count == 1 else 'have'} the taint {taint}")
            for taint, count in _taints(session, task, reason)
        ]
    if reason.filter == "NodeAffinity":
        return [
            NodeReason(
                reason.text, reason.count, f"{'does' if one else 'do'} not match {_choice(task)}"
            )
        ]
    if reason.filter == "DynamicResources" and reason.text in (CANNOT, ELSEWHERE):
        what = (
            "devices that its claims ask for"
            if reason.text == CANNOT
            else "way to the devices that its claims were given"
        )
        return [NodeReason(reason.text, reason.count, f"{'has' if one else 'have'} no {what}")]
    if reason.filter == RESERVED:
        return [NodeReason(reason.text, reason.count, f"{'is' if one else 'are'} {reason.text}")]
    words = WORDS.get(reason.filter)
    if words is not None:
        return [NodeReason(reason.text, reason.count, words.one if one else words.many)]
    return [NodeReason(reason.text, reason.count, f"{'is' if one else 'are'} out: {reason.text}")]


def _lack(session: Session, task: Task, reason: Reason) -> NodeReason:
    """How little there is of a resource, on nodes that have too little."""
    name = reason.filter.removeprefix(ROOM)
    one, mask = reason.count == 1, reason.mask
    nodes = session.state.nodes
    has = float(np.max(nodes.allocatable[session.state.space.column(name)][mask], initial=0.0))
    most = 0.0 if reason.free is None else max(0.0, float(np.max(reason.free[mask], initial=0.0)))
    asked = task.request.amounts.get(name, 0.0)
    if name == PODS:
        words = WORDS["PodNumber"]
        text, most, asked = words.one if one else words.many, 0.0, 1.0
    elif has <= 0:
        text = f"{'has' if one else 'have'} no {name}"
    else:
        text = f"{'lacks' if one else 'lack'} {name} (at most {amount(name, most)} free)"
    numbers = (amount(name, number) for number in (asked, most, max(asked - most, 0.0)))
    return NodeReason(reason.text, reason.count, text, name, *numbers)


def _choice(task: Task) -> str:
    """What a node's labels must be, where that can be said shortly."""
    pods = task.pods
    pairs = ",".join(f"{one.key}={one.values[0]}" for one in pods.node_selector)
    parts = ([f"its selector {pairs}"] if pairs else []) + (
        ["its node affinity"] if pods.node_terms is not None else []
    )
    return " and ".join(parts) or "its selector"


def _taints(session: Session, task: Task, reason: Reason) -> list[tuple[str, int]]:
    nodes = session.state.nodes
    counts: dict[str, int] = {}
    codes, many = np.unique(nodes.taint_codes[reason.mask], return_counts=True)
    for code, count in zip(codes.tolist(), many.tolist()):
        for taint in nodes.taint_sets[code]:
            if taint.effect in ("NoSchedule", "NoExecute") and not any(
                one.tolerates(taint) for one in task.pods.tolerations
            ):
                counts[str(taint)] = counts.get(str(taint), 0) + count
                break
    return sorted(counts.items())


# ---------------------------------------------------------------------------------- what would help


def _remedy(
    session: Session,
    task: Task,
    errors: FitErrors,
    reasons: list[Reason],
    missing: int,
    starts: str,
) -> str:
    asked = "" if task.best_effort else f" with {describe(task.request.amounts)} free"
    have = f"{missing} more {'node has' if missing == 1 else 'nodes have'} {describe(task.request.amounts)} free"
    lacking = {one.filter for one in reasons if one.filter.startswith(ROOM)}
    if lacking:
        have += " and room for another pod" if lacking == {ROOM + PODS} else ""
        return f"{starts} when {have}{_too_large(session, task)}."
    if any(one.text.startswith("Insufficient") for one in errors.reasons) and not reasons:
        return f"{starts} when {have}."
    if any(one.filter == "DynamicResources" and one.text == CANNOT for one in reasons):
        return f"{starts} when the devices that its claims ask for come free, or more are offered."
    helps = [one for one in (_help(task, reason, missing == 1) for reason in reasons) if one]
    if not helps:
        return ""
    which = f"{missing} more {'node' if missing == 1 else 'nodes'}{asked}"
    return f"{starts} once {which} " + " or ".join(dict.fromkeys(helps)) + "."


def _help(task: Task, reason: Reason, one: bool) -> str:
    """What would have to become true of a node."""
    if reason.filter == "NodeAffinity":
        return f"{'matches' if one else 'match'} {_choice(task)}"
    if reason.filter == "TaintToleration":
        return "loses its taint" if one else "lose their taints"
    if reason.filter == RESERVED:
        return f"{'is' if one else 'are'} open to it"
    words = WORDS.get(reason.filter)
    return "" if words is None else words.helps_one if one else words.helps_many


def _too_large(session: Session, task: Task) -> str:
    """Of a request that not even an empty node holds, how much the largest have."""
    nodes = session.state.nodes
    suits = placer_of(session).filters.static_mask(session, task)
    fits, most = suits.copy(), []
    for name in ordered(task.request.amounts):
        value = task.request.amounts[name]
        if value <= 0:
            continue
        has = nodes.allocatable[session.state.space.column(name)]
        enough = value < has + EPSILON
        fits &= enough
        if not (suits & enough).any():
            most.append(f"{name}={amount(name, float(np.max(has[suits], initial=0.0)))}")
    if fits.any() or not suits.any():
        return ""
    return (
        f"; none that suits it is that large, even empty (at most {' '.join(most)})"
        if most
        else "; none that suits it has all of that"
    )


def placed(session: Session, job: Job) -> tuple[int, int]:
    """Tasks that hold or found a place, and how many of these only once others have left."""
    counts, nodes = job.counts, session.state.nodes
    found = [
        (one, one.last[0], one.last[1])
        for one in counts.statuses[Status.PENDING].values()
        if one.last is not None
    ]
    sure = sum(1 for _, status, _ in found if status is Status.ALLOCATED)
    promised = [(one, row) for one, status, row in found if status is Status.PIPELINED]
    promised += [(one, one.row) for one in counts.statuses[Status.PIPELINED].values()]
    later = sum(1 for one, row in promised if row >= 0 and not nodes.fits_idle(row, one.request))
    return counts.ready + sure + len(promised), later
