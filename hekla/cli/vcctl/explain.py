"""`vcctl explain` and `vcctl job events`: why a job is where it is.  Hekla's own.

Nothing is computed here: the reasons stand on the objects (the group's conditions, the queue's
state, what pods wait for, events); this puts them in the order in which a user asks for them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.api.names import EXPLANATION, IGNORED, JOB_NAME, WAITING
from hekla.api.text.podsummary import summary
from hekla.cli.vcctl.command import Invocation
from hekla.cli.vcctl.connection import Api, Tree, find, name_of
from hekla.cli.vcctl.jobtable import phase
from hekla.cli.vcctl.jobview import EVENT, event_table
from hekla.cli.vcctl.output import document, printed
from hekla.cli.vcctl.startestimate import estimate_of, sentence
from hekla.kube.errors import ApiError, NotFound

JOB = batch.JOB.untyped
NODE = core.NODE.untyped
POD = core.POD.untyped
POD_GROUP = scheduling.POD_GROUP.untyped
QUEUE = scheduling.QUEUE.untyped

MISSING = "job name is mandatory to explain a particular job"
RESTATED = frozenset(
    {WAITING, "Unschedulable", "FailedScheduling", "PodScheduled", "PodGroupPending"}
)
"""Conditions and events that put the explanation into the words of the wire, for readers of other
objects."""
NUMBERS = (
    "needs",
    "fit",
    "missing",
    "asks",
    "nodes",
    "reasons",
    "shortages",
    "remedy",
    "noVictimBecause",
)
GROUPLESS = {
    **dict.fromkeys(
        ("Aborting", "Aborted"),
        "It is suspended, so it has no PodGroup; `vcctl job resume` lets it go on.",
    ),
    **dict.fromkeys(
        ("Completing", "Completed", "Terminating", "Terminated", "Failed"),
        "It has ended, so it has no PodGroup.",
    ),
}
"""What is said of a job without a PodGroup, by its phase."""
FEW = 5  # pods and events named one by one


async def explain(api: Api, invocation: Invocation) -> None:
    job = await find(api, JOB, name_of(invocation, MISSING), invocation.text("namespace"))
    if changes := invocation.texts("what-if"):
        from hekla.cli.vcctl.whatif import explain_changed

        await explain_changed(api, invocation, job, changes)
        return
    form = invocation.text("output")
    if form not in ("json", "yaml") and printed(invocation, JOB, [job], single=True):
        return
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    group = await group_of(api, job)
    queue = await _maybe(api, QUEUE, (job.get("spec") or {}).get("queue") or "", None)
    pods = (await api.list(POD, namespace, labels=f"{JOB_NAME}={name}")).items
    unfit = await nodes_not_ready(
        api, pods, waits=bool(_waiting(group)) and not _has_started(group)
    )
    if form in ("json", "yaml"):
        shown = explanation(job, queue, group, pods)
        print(document({**shown, "nodesNotReady": unfit} if unfit else shown, form), end="")
        return
    events = await _related_events(api, job, group, pods)
    for line in (
        *_job_lines(job),
        *_queue_lines(job, queue),
        *_group_lines(job, group),
        *_pod_lines(pods, known=bool(_waiting(group)) or _has_started(group)),
        *_node_lines(unfit, pods),
    ):
        print(line)
    known = {IGNORED} | (RESTATED if _waiting(group) or _has_started(group) else frozenset())
    warnings = [
        event
        for event in events
        if event.get("type") == "Warning" and event.get("reason") not in known
    ]
    for line in list(dict.fromkeys(map(_said, reversed(warnings))))[:FEW][::-1]:
        print(line)


def _said(event: Tree) -> str:
    about, message = event.get("involvedObject") or {}, (event.get("message") or "").strip()
    return (
        f"  {about.get('kind', '')} {about.get('name', '')}: {event.get('reason', '')}: {message}"
    )


def explanation(job: Tree, queue: Tree | None, group: Tree | None, pods: list[Tree]) -> Tree:
    """For programs: what the scheduler says of a job that waits, and what it was asked for.

    `constraint` and `text` are the reason and message of the group's condition Waiting, empty for a
    job that does not wait.  What the text says in numbers is there too, where it says any
    (`NUMBERS`).
    """
    spec, status = job.get("spec") or {}, (group or {}).get("status") or {}
    waiting = _waiting(group)
    return {
        "kind": "Explanation",
        "job": job["metadata"]["name"],
        "namespace": job["metadata"]["namespace"],
        "phase": phase(job) or "Pending",
        "queue": spec.get("queue") or "default",
        "queueState": ((queue or {}).get("status") or {}).get("state") or "",
        "podGroup": (group or {}).get("metadata", {}).get("name", ""),
        "podGroupPhase": status.get("phase") or "",
        "minAvailable": spec.get("minAvailable") or 0,
        "pods": dict(Counter(summary(pod).status for pod in pods)),
        **(numbers(group) if waiting else {}),
        "constraint": (waiting.get("reason") or "").lower(),
        "text": waiting.get("message") or "",
        **({"startEstimate": estimate} if (estimate := estimate_of(group)) else {}),
        "conditions": status.get("conditions") or [],
    }


def numbers(group: Tree | None) -> Tree:
    """The scheduler's numbers beside the condition Waiting; empty if they cannot be read."""
    try:
        annotations = ((group or {}).get("metadata") or {}).get("annotations") or {}
        found = json.loads(annotations.get(EXPLANATION) or "{}")
    except ValueError:
        return {}
    return (
        {name: found[name] for name in NUMBERS if name in found} if isinstance(found, dict) else {}
    )


def _waiting(group: Tree | None) -> Tree:
    conditions = ((group or {}).get("status") or {}).get("conditions") or []
    found: Tree = next((one for one in conditions if one.get("type") == WAITING), {})
    return found


def _has_started(group: Tree | None) -> bool:
    """Whether the job has started, so that conditions about waiting are old: they stay on the
    object, as upstream leaves them."""
    return ((group or {}).get("status") or {}).get("phase") in ("Running", "Completed")


async def events(api: Api, invocation: Invocation) -> None:
    job = await find(
        api,
        JOB,
        name_of(invocation, "job name is mandatory to show the events of a particular job"),
        invocation.text("namespace"),
    )
    namespace = job["metadata"]["namespace"]
    pods = (await api.list(POD, namespace, labels=f"{JOB_NAME}={job['metadata']['name']}")).items
    print(event_table(await _related_events(api, job, await group_of(api, job), pods)), end="")


async def group_of(api: Api, job: Tree) -> Tree | None:
    """The job's PodGroup: named after the job and its uid, in old clusters after the job alone."""
    metadata = job["metadata"]
    for name in (f"{metadata['name']}-{metadata.get('uid', '')}", metadata["name"]):
        group = await _maybe(api, POD_GROUP, name, metadata["namespace"])
        if group is not None:
            return group
    return None


async def _maybe(api: Api, kind: object, name: str, namespace: str | None) -> Tree | None:
    try:
        tree: Tree = await api.get(kind, name, namespace)  # type: ignore[arg-type]  # a Kind; spelled once for four kinds
        return tree
    except NotFound:
        return None


async def _related_events(api: Api, job: Tree, group: Tree | None, pods: list[Tree]) -> list[Tree]:
    names = {job["metadata"]["name"], *(pod["metadata"]["name"] for pod in pods)}
    if group is not None:
        names.add(group["metadata"]["name"])
    found = (await api.list(EVENT, job["metadata"]["namespace"])).items
    related = [event for event in found if (event.get("involvedObject") or {}).get("name") in names]
    return sorted(
        related, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or ""
    )


def _job_lines(job: Tree) -> Iterator[str]:
    status, state = job.get("status") or {}, (job.get("status") or {}).get("state") or {}
    counts = ", ".join(
        f"{status[key]} {key}"
        for key in ("pending", "running", "succeeded", "failed", "terminating", "unknown")
        if status.get(key)
    )
    needed = (job.get("spec") or {}).get("minAvailable") or 0
    name, counted = job["metadata"]["name"], counts or "it has none yet"
    yield f"{name} is {phase(job) or 'Pending'}; it needs {needed} {'pod' if needed == 1 else 'pods'} at once ({counted})."
    for text in (state.get("reason"), state.get("message")):
        if text:
            yield f"  {text}"


def _queue_lines(job: Tree, queue: Tree | None) -> Iterator[str]:
    name = (job.get("spec") or {}).get("queue") or "default"
    state = ((queue or {}).get("status") or {}).get("state") or ""
    if queue is None:
        yield f"  Its queue {name} does not exist."
    elif state not in ("", "Open"):
        yield f"  Its queue {name} is {state}."


def _group_lines(job: Tree, group: Tree | None) -> Iterator[str]:
    if group is None:
        yield f"  {GROUPLESS.get(phase(job), 'It has no PodGroup yet: the job controller has not taken it up.')}"
        return
    status = group.get("status") or {}
    yield f"  Its PodGroup {group['metadata']['name']} is {status.get('phase') or 'Pending'}."
    waiting = _waiting(group)
    if waiting:
        yield f"  {waiting.get('message')}"
    if estimate := estimate_of(group):
        yield f"  {sentence(estimate, job['metadata']['namespace'])}"
    for condition in status.get("conditions") or []:
        restated = condition.get("type") in RESTATED and (waiting or _has_started(group))
        if condition.get("message") and condition is not waiting and not restated:
            yield f"  {condition.get('type')}: {condition.get('reason')}: {condition['message']}"


async def nodes_not_ready(api: Api, pods: list[Tree], *, waits: bool) -> dict[str, str]:
    """Nodes that are not ready, with the reason: those with a pod of the job, and all nodes if the
    job waits for one."""
    holding = {_node_of(pod) for pod in pods} - {""}
    if not holding and not waits:
        return {}
    try:
        nodes = {node["metadata"]["name"]: node for node in (await api.list(NODE)).items}
    except ApiError:  # who may see jobs need not see nodes
        return {}
    looked_at = holding | nodes.keys() if waits else holding
    return {name: why for name in sorted(looked_at) if (why := _not_ready(nodes.get(name)))}


def _node_of(pod: Tree) -> str:
    """The node of a pod; empty if it has none or has ended."""
    over = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return "" if over else str((pod.get("spec") or {}).get("nodeName") or "")


def _not_ready(node: Tree | None) -> str:
    """Why a node is not ready; empty if it is."""
    if node is None:
        return "it is gone from the cluster"
    conditions = (node.get("status") or {}).get("conditions") or []
    ready: Tree = next((one for one in conditions if one.get("type") == "Ready"), {})
    if ready.get("status") == "True":
        return ""
    said = (ready.get("message") or ready.get("reason") or "it has not said so yet").rstrip(".")
    since = ready.get("lastTransitionTime")
    return f"{said}{f', since {since}' if since else ''}"


def _node_lines(unfit: dict[str, str], pods: list[Tree]) -> Iterator[str]:
    for name, why in list(unfit.items())[:FEW]:
        here = [pod["metadata"]["name"] for pod in pods if _node_of(pod) == name]
        held = (
            f", which holds {', '.join(here[:FEW])}{' and others' if len(here) > FEW else ''},"
            if here
            else ""
        )
        yield f"  Node {name}{held} is not ready: {why}."
    if len(unfit) > FEW:
        yield f"  {len(unfit) - FEW} further nodes are not ready."


def _pod_lines(pods: list[Tree], *, known: bool) -> Iterator[str]:
    """`known`: the reason why pods have no node has been printed."""
    reasons = Counter(summary(pod).status for pod in pods)
    if reasons:
        yield (
            "  Pods: "
            + ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
            + "."
        )
    told: set[str] = set()
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or []:
            message = (
                ""
                if known and condition.get("type") in RESTATED
                else condition.get("message") or ""
            )
            if (
                condition.get("status") == "False"
                and message
                and message not in told
                and len(told) < FEW
            ):
                told.add(message)
                yield f"  {pod['metadata']['name']}: {message}"
