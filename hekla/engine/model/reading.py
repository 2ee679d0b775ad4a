"""What API objects say, in the engine's words: small pure functions from JSON trees.

They raise ValueError and the like for what cannot be understood; the state turns that into a reason
on the object. Reference: scheduler-core 2.5 to 2.10.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from hashlib import blake2b
from sys import intern

import msgspec

from hekla.api.names import EXPLANATION, START_ESTIMATE
from hekla.api.text import quantity
from hekla.api.trees import Json, Tree
from hekla.engine.model import matching, resources
from hekla.engine.model.nodes import NodeFacts, Taint
from hekla.engine.model.podclass import image_name
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.resources import Amounts
from hekla.engine.model.shapes import check
from hekla.engine.model.tasks import Job, SentStatus, Status, SubGroupPolicy, Topology
from hekla.engine.model.time.durations import instant, seconds

GROUP_NAME = "scheduling.k8s.io/group-name"
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"
PREEMPTABLE = "volcano.sh/preemptable"
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
SLA_KEYS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_PACK = msgspec.msgpack.Encoder()
_WHOLE = re.compile(r"[+-]?[0-9]+")


def tree_of_object(obj: object) -> Tree:
    if isinstance(obj, Mapping):
        return obj
    tree = msgspec.to_builtins(obj)
    if not isinstance(tree, dict):
        raise TypeError(f"{type(obj).__name__} is not an object")
    return tree


def texts(meta: Tree, member: str) -> Mapping[str, str]:
    """Labels or annotations.  Raises ValueError where a value is no text: it would break whoever
    reads it much later."""
    found = meta.get(member)
    if not found:
        return {}
    for name, value in found.items():
        if type(value) is not str:
            raise ValueError(f"metadata.{member}[{name!r}] is {value!r}, not a text")
    return found  # type: ignore[no-any-return]  # the loop has looked


def key_of(tree: Tree) -> str:
    meta = tree.get("metadata") or {}
    name, namespace = meta.get("name", ""), meta.get("namespace")
    if namespace is None:
        namespace = ""
    if not name:
        raise ValueError("metadata.name is missing")
    if type(name) is not str or type(namespace) is not str:
        raise ValueError(
            f"metadata.name and metadata.namespace are texts, not {name!r} and {namespace!r}"
        )
    return f"{namespace}/{name}" if namespace else str(name)


def status_of(phase: str, deleting: bool, node: str) -> Status:
    if phase == "Running":
        return Status.RELEASING if deleting else Status.RUNNING
    if phase in ("Pending", ""):
        if deleting:
            return Status.RELEASING
        return Status.BOUND if node else Status.PENDING
    return {"Succeeded": Status.SUCCEEDED, "Failed": Status.FAILED}.get(phase, Status.UNKNOWN)


def priority_of(spec: Tree, annotations: Tree) -> int:
    stated = annotations.get(TASK_PRIORITY)
    if stated is not None and _WHOLE.fullmatch(stated) and -(2**31) <= int(stated) < 2**31:
        return int(stated)
    value = spec.get("priority")
    return 1 if value is None else int(value)


def revocable_zone(annotations: Tree) -> str:
    zone = annotations.get(REVOCABLE_ZONE)
    if zone is not None:
        return "*" if zone == "*" else ""
    return "*" if annotations.get(PREEMPTABLE) in TRUE else ""


def says_something(annotation: str) -> bool:
    """Whether an annotation of a node is one that plugins read; heartbeats of device plugins are
    not."""
    known = (
        "volcano.sh/" in annotation
        or annotation.startswith("hami.io/")
        or annotation == "hami-vnpu-core"
    )
    return known and "handshake" not in annotation


def pod_index(name: str) -> int | None:
    parts = name.split("-")
    return int(parts[-1]) if len(parts) >= 3 and parts[-1].isdigit() else None


def scheduled_at(status: Tree) -> float:
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "True":
            return instant(one.get("lastTransitionTime", "") or "")
    return 0.0


def condition_of(status: Tree) -> tuple[str, str, str] | None:
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return (
                one.get("reason", ""),
                one.get("message", ""),
                status.get("nominatedNodeName", ""),
            )
    return None


def resized(spec: Tree, status: Tree) -> Tree:
    """The spec with what its containers hold while they are being resized: the larger of what is
    requested and what is held.

    A resize that the node can never grant holds what is there.  Reference: scheduler-core 2.6.1.
    """
    if not (status.get("containerStatuses") or status.get("initContainerStatuses")):
        return spec
    changed: dict[str, list[Tree]] = {}
    for field, listed in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        if not (statuses := status.get(listed)):
            continue
        said = {one.get("name", ""): one for one in statuses if one.get("resources")}
        if not said:
            continue
        containers = list(spec.get(field) or ())
        for at, container in enumerate(containers):
            told = said.get(container.get("name", ""))
            if told is None or (
                field == "initContainers" and container.get("restartPolicy") != "Always"
            ):
                continue
            wanted = (container.get("resources") or {}).get("requests") or {}
            held = told["resources"].get("requests") or {}
            granted = told.get("allocatedResources") or {}
            if wanted == held and (not granted or granted == held):
                continue
            requests = _largest(held, granted, *(() if _infeasible(status) else (wanted,)))
            containers[at] = {
                **container,
                "resources": {**(container.get("resources") or {}), "requests": requests},
            }
            changed[field] = containers
    return {**spec, **changed} if changed else spec


def _infeasible(status: Tree) -> bool:
    return status.get("resize") == "Infeasible" or any(
        one.get("type") == "PodResizePending"
        and one.get("status") == "True"
        and one.get("reason") == "Infeasible"
        for one in status.get("conditions") or ()
    )


def _largest(*lists: Tree) -> Json:
    result: Json = {}
    for one in lists:
        for name, value in one.items():
            if name not in result or quantity.milli(value) > quantity.milli(result[name]):
                result[name] = value
    return result


def claim_keys(namespace: str, spec: Tree, status: Tree) -> tuple[str, ...]:
    """The ResourceClaims that a pod uses, as far as they are there."""
    made = {
        one.get("name", ""): one.get("resourceClaimName", "")
        for one in status.get("resourceClaimStatuses") or ()
    }
    named = [
        one.get("resourceClaimName") or made.get(one.get("name", ""))
        for one in spec.get("resourceClaims") or ()
    ]
    # Before that, who schedules the pod says what its extended resources are had from.
    if spec.get("nodeName"):
        named.append((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"))
    return tuple(sorted(f"{namespace}/{name}" for name in named if name))


def claims_to_come(spec: Tree, status: Tree) -> tuple[str, ...]:
    """Claims of a pod that nobody has made yet; an entry of the status without a name says that
    none is needed."""
    known = {one.get("name", "") for one in status.get("resourceClaimStatuses") or ()}
    listed = spec.get("resourceClaims") or ()
    return tuple(
        one.get("name", "")
        for one in listed
        if not one.get("resourceClaimName") and one.get("name", "") not in known
    )


def number(text: str) -> float:
    """What a text says; nothing where it is no number that one can count with."""
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def optional_amounts(quantities: Tree | None) -> Amounts:
    return resources.amounts(quantities) if quantities else {}


def waiting_time(annotations: Tree) -> float | None:
    for key in SLA_KEYS:
        stated = annotations.get(key)
        if not stated:
            continue
        try:
            length = seconds(stated)
        except ValueError:
            continue
        if length > 0:
            return length
    return None


def topology_of(tree: Tree | None) -> Topology | None:
    if tree is None:
        return None
    tier = tree.get("highestTierAllowed")
    return Topology(
        tree.get("mode", ""), None if tier is None else int(tier), tree.get("highestTierName", "")
    )


def policy_of(tree: Tree) -> SubGroupPolicy:
    keys = tuple(str(one) for one in tree.get("matchLabelKeys") or ())
    try:
        selector = matching.label_selector(tree.get("labelSelector"))
    except ValueError:
        keys, selector = (), None  # A selector that cannot be read matches nothing.
    size = tree.get("subGroupSize")
    return SubGroupPolicy(
        str(tree.get("name", "")),
        selector,
        keys,
        1 if size is None else int(size),
        topology_of(tree.get("networkTopology")),
    )


def title_of(metadata: Tree) -> str:
    """What people call a PodGroup that was made for something else: as that is called; empty for
    one of its own."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and isinstance(owner.get("name"), str):
            return str(owner["name"])
    return ""


def sent_status(status: Tree) -> SentStatus:
    """What the API holds of a PodGroup's status, in the form that is compared at the end of a
    cycle."""
    conditions = tuple(
        tuple(intern(one.get(name) or "") for name in ("type", "status", "reason", "message"))
        for one in status.get("conditions") or ()
    )
    running, succeeded, failed = (
        int(status.get(name, 0) or 0) for name in ("running", "succeeded", "failed")
    )
    return status.get("phase", ""), running, succeeded, failed, conditions


def says_as_sent(status: Tree, job: Job) -> bool:
    """Whether a PodGroup's status is the one that was written last, and the job has not gone on
    since."""
    try:
        sent = sent_status(status)
    except (AttributeError, TypeError, ValueError):
        return False
    return sent == job.status_sent and sent[0] == job.phase


_OWN = frozenset((EXPLANATION, START_ESTIMATE))
"""Annotations that the scheduler writes itself."""
_STATED = ("uid", "annotations", "labels", "ownerReferences", "creationTimestamp")
_STATED_BY_TEMPLATE = "namespace", "annotations", "labels", "ownerReferences"


def stated_by(meta: Tree, spec: Tree) -> bytes:
    """A digest of what a PodGroup says beside its status; empty where it cannot be taken, which
    equals nothing.

    What the scheduler itself writes beside the status is not counted.
    """
    try:
        annotations = meta.get("annotations") or {}
        if not _OWN.isdisjoint(annotations):
            others = {name: value for name, value in annotations.items() if name not in _OWN}
            meta = {**meta, "annotations": others or None}
        return blake2b(
            _PACK.encode(([meta.get(name) or None for name in _STATED], spec)), digest_size=16
        ).digest()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return b""


def pod_stated_by(meta: Tree, spec: Tree) -> bytes:
    """A digest of what a pod says but for its name and age, where it is and how far it has come: the
    same for all pods of a template.  Empty where it cannot be taken, which equals nothing.

    `spec` as `resized` gives it.
    """
    try:
        if "nodeName" in spec:
            spec = {**spec}
            del spec["nodeName"]
        said = [meta.get(name) for name in _STATED_BY_TEMPLATE], spec
        return blake2b(_PACK.encode(said), digest_size=16).digest()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return b""


def node_facts(tree: Tree) -> NodeFacts:
    """What the engine keeps of a Node."""
    meta = tree.get("metadata") or {}
    spec = tree.get("spec") or {}
    status = tree.get("status") or {}
    annotations = dict(texts(meta, "annotations"))
    allocatable = resources.amounts(status.get("allocatable"))
    capacity = resources.amounts(status.get("capacity"))
    for name, annotation in (
        (resources.CPU, "volcano.sh/oversubscription-cpu"),
        (resources.MEMORY, "volcano.sh/oversubscription-memory"),
    ):
        more = number(annotations.get(annotation, ""))
        allocatable[name] += more
        if capacity[name]:  # A node that does not state it has what it can give away.
            capacity[name] += more
    # Of a name that is there twice the first one's size counts.
    images = {
        image_name(name): int(image.get("sizeBytes", 0))
        for image in reversed(status.get("images") or ())
        for name in image.get("names") or ()
    }
    return NodeFacts(
        name=key_of(tree),
        labels=dict(texts(meta, "labels")),
        taints=tuple(
            Taint(one.get("key", ""), one.get("value", ""), one.get("effect", ""))
            for one in spec.get("taints") or ()
        ),
        unschedulable=bool(spec.get("unschedulable")),
        allocatable=allocatable,
        capacity=capacity,
        images=images,
        annotations={key: value for key, value in annotations.items() if says_something(key)},
    )


def read_queue(tree: Tree) -> Queue:
    """What the engine keeps of a Queue.  Raises ValueError where it cannot be understood."""
    meta = tree.get("metadata") or {}
    spec = tree.get("spec") or {}
    status = tree.get("status") or {}
    name = key_of(tree)
    check("Queue", tree)
    guarantee = (spec.get("guarantee") or {}).get("resource")
    reclaimable = spec.get("reclaimable")
    return Queue(
        name=name,
        weight=max(int(spec.get("weight", 1) or 0), 0),
        priority=int(spec.get("priority", 0) or 0),
        parent=spec.get("parent", "") or "",
        reclaimable=True if reclaimable is None else bool(reclaimable),
        state=status.get("state") or OPEN,  # One to which no controller has come yet is open.
        creation=instant(meta.get("creationTimestamp", "") or ""),
        uid=name,
        capability=optional_amounts(spec.get("capability")),
        deserved=optional_amounts(spec.get("deserved")),
        guarantee=optional_amounts(guarantee),
        annotations=dict(texts(meta, "annotations")),
        affinity=spec.get("affinity"),
        quota={
            "capability": spec.get("capability") or {},
            "deserved": spec.get("deserved") or {},
            "guarantee": guarantee or {},
        },
        status_sent={key: str(value) for key, value in (status.get("allocated") or {}).items()},
    )
