"""The small language of what-if: one change a line, each `WHAT=VALUE`.

    queue.NAME.capability.RESOURCE=8       also deserved and guarantee; =+8 and =-8 count from what it is,
                                           =none takes the limit away
    queue.NAME.weight=2                    also priority; =+1 and =-1 too
    queue.NAME.reclaimable=false
    node=add:4x LIKE                       LIKE: a node's name, labels (gpu=a100,zone=b) or a GPU's product
    node.NAME=drain                        or remove, cordon, uncordon
    job.NAME.priority=CLASS                or a number; NAME or NAMESPACE/NAME
    job.NAME=suspend                       or delete
    policy=FILE                            another policy

Every mistake is an error that names the field, the value and what would be right, before anything is
changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hekla.api.text.quantity import Quantity, QuantityError
from hekla.api.text.times import micro_stamp
from hekla.api.trees import Json, Tree
from hekla.simulator.objects import anew
from hekla.simulator.whatif.copy import ClusterCopy, node_of

AMOUNTS = ("capability", "deserved", "guarantee")
NUMBERS = ("weight", "priority")
NODE_VERBS = ("drain", "remove", "cordon", "uncordon")
JOB_VERBS = ("suspend", "delete")
PRODUCT = "nvidia.com/gpu.product"
HOSTNAME = "kubernetes.io/hostname"
WHATS = (
    "queue.NAME.capability.RESOURCE, queue.NAME.weight, node, node.NAME, job.NAME.priority, "
    "job.NAME, policy"
)
MOST_NODES = 10_000


class ChangeError(ValueError):
    """A change cannot be made; the text names it, what is wrong and what would be right."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: `apply` makes it on a copy and says what became different.  Raises ChangeError."""

    text: str
    apply: Callable[[ClusterCopy], list[str]]
    policy: str = ""
    """The file of another policy, which whoever reads files has to read."""


def read_changes(texts: list[str], namespace: str = "default") -> list[Change]:
    """The changes of a command line.  `namespace`: of jobs that name none.  Raises ChangeError."""
    return [read_change(text, namespace) for text in texts]


def read_change(text: str, namespace: str = "default") -> Change:
    """One change.  Raises ChangeError."""
    what, equals, value = text.strip().partition("=")
    if not equals or not value.strip():
        raise _error(text, f'"{text}" says no value: WHAT=VALUE, where WHAT is {WHATS}')
    value = value.strip()
    kind, _, rest = what.partition(".")
    if kind == "queue":
        return _queue(text, rest, value)
    if kind == "node":
        return _node(text, rest, value)
    if kind == "job":
        return _job(text, rest, value, namespace)
    if what == "policy":
        return Change(text, lambda copy: [f"policy: {value}"], policy=value)
    raise _error(text, f'"{what}" is nothing that can be changed; there is {WHATS}')


def _error(text: str, problem: str) -> ChangeError:
    return ChangeError(f"--what-if '{text}': {problem}")


# -- queues ----------------------------------------------------------------------------------------

_AMOUNT = re.compile(rf"(?P<queue>.+?)\.(?P<field>{'|'.join(AMOUNTS)})\.(?P<resource>.+)")
_NUMBER = re.compile(rf"(?P<queue>.+)\.(?P<field>{'|'.join(NUMBERS)})")


def _queue(text: str, rest: str, value: str) -> Change:
    if found := _AMOUNT.fullmatch(rest):
        queue, field, resource = found["queue"], found["field"], found["resource"]
        number = None if value == "none" else _quantity(text, value.lstrip("+-"))
        return Change(text, lambda copy: _amount(copy, text, queue, field, resource, value, number))
    if found := _NUMBER.fullmatch(rest):
        queue, field = found["queue"], found["field"]
        if not re.fullmatch(r"[+-]?\d{1,9}", value):
            raise _error(text, f"{field} = {value}: a whole number, or +1 or -1 to what it is")
        return Change(text, lambda copy: _number(copy, text, queue, field, value))
    if rest.endswith(".reclaimable"):
        if value not in ("true", "false"):
            raise _error(text, f"reclaimable = {value}: true or false")
        queue = rest.removesuffix(".reclaimable")
        return Change(text, lambda copy: _reclaimable(copy, text, queue, value == "true"))
    field = rest.partition(".")[2] or rest
    resource_missing = field in AMOUNTS
    if resource_missing:
        raise _error(text, f"{field} of which resource? queue.{rest}.cpu, for example")
    fields = ", ".join((*(f"{one}.RESOURCE" for one in AMOUNTS), *NUMBERS, "reclaimable"))
    raise _error(text, f'a queue has no "{field}" to change; there is {fields}')


def _quantity(text: str, value: str) -> Quantity:
    try:
        found = Quantity.parse(value)
    except QuantityError as error:
        raise _error(text, f'"{value}" is no amount: {error}') from None
    if found < Quantity.of_whole(0):
        raise _error(text, f'"{value}" is below zero')
    return found


def _known_queue(copy: ClusterCopy, text: str, name: str) -> Tree:
    found = copy.of_kind("Queue").get(name)
    if found is None:
        raise _error(text, f'there is no queue "{name}"; there are {_few(copy.of_kind("Queue"))}')
    return found


def _amount(
    copy: ClusterCopy,
    text: str,
    name: str,
    field: str,
    resource: str,
    value: str,
    number: Quantity | None,
) -> list[str]:
    queue = _known_queue(copy, text, name)
    spec = dict(queue.get("spec") or {})
    holder = dict(spec.get("guarantee") or {}) if field == "guarantee" else spec
    amounts = dict(holder.get("resource" if field == "guarantee" else field) or {})
    before = amounts.get(resource)
    if number is None:
        amounts.pop(resource, None)
        after = "none"
    else:
        if value[0] in "+-":
            if before is None and field == "capability":
                raise _error(
                    text,
                    f"queue {name} has no capability of {resource}, so there is nothing to count from; "
                    f"={value[1:]} sets one",
                )
            known = Quantity.parse(str(before if before is not None else 0))
            number = known + number if value[0] == "+" else known - number
            if number < Quantity.of_whole(0):
                raise _error(
                    text, f"{field} of {resource} is {before or 0}, and {value} is below zero"
                )
        after = str(number)
        amounts[resource] = after
    holder["resource" if field == "guarantee" else field] = amounts
    if field == "guarantee":
        spec["guarantee"] = holder
    copy.put("Queue", {**queue, "spec": spec})
    return [f"queue {name}: {field} of {resource} {before or 'none'} -> {after}"]


def _number(copy: ClusterCopy, text: str, name: str, field: str, value: str) -> list[str]:
    queue = _known_queue(copy, text, name)
    spec = dict(queue.get("spec") or {})
    before = int(spec.get(field) or (1 if field == "weight" else 0))
    after = before + int(value) if value[0] in "+-" else int(value)
    if after < (1 if field == "weight" else 0):
        raise _error(
            text, f"{field} is {before}, and would be {after}: from 1 up for a weight, else 0"
        )
    copy.put("Queue", {**queue, "spec": {**spec, field: after}})
    return [f"queue {name}: {field} {before} -> {after}"]


def _reclaimable(copy: ClusterCopy, text: str, name: str, wanted: bool) -> list[str]:
    queue = _known_queue(copy, text, name)
    spec = dict(queue.get("spec") or {})
    before = spec.get("reclaimable", True)
    copy.put("Queue", {**queue, "spec": {**spec, "reclaimable": wanted}})
    return [f"queue {name}: reclaimable {str(before).lower()} -> {str(wanted).lower()}"]


# -- nodes -----------------------------------------------------------------------------------------

_ADD = re.compile(r"add:\s*(?P<count>\d+)\s*x\s*(?P<like>\S.*)")


def _node(text: str, name: str, value: str) -> Change:
    if name:
        if value not in NODE_VERBS:
            raise _error(text, f'node {name} = "{value}": {", ".join(NODE_VERBS)}')
        return Change(text, lambda copy: _to_node(copy, text, name, value))
    found = _ADD.fullmatch(value)
    if found is None:
        raise _error(
            text,
            f'node = "{value}": add:COUNTx LIKE, as in add:4x a100, where LIKE is a node\'s name, labels '
            f"(zone=b) or a GPU's product; one node is changed by node.NAME={'|'.join(NODE_VERBS)}",
        )
    count, like = int(found["count"]), found["like"].strip()
    if not 1 <= count <= MOST_NODES:
        raise _error(text, f"{count} nodes: from 1 to {MOST_NODES:,}")
    return Change(text, lambda copy: _add(copy, text, count, like))


def _add(copy: ClusterCopy, text: str, count: int, like: str) -> list[str]:
    model = _like(copy, text, like)
    nodes = copy.of_kind("Node")
    kept = {
        name: value
        for name, value in model["metadata"].items()
        if name in ("labels", "annotations")
    }
    spec = dict(model.get("spec") or {})
    spec.pop("unschedulable", None)
    taints = [
        one
        for one in spec.get("taints") or ()
        if not str(one.get("key", "")).startswith("node.kubernetes.io/")
    ]
    number = made = 0
    while made < count:
        number += 1
        name = f"what-if-{number}"
        if name in nodes:
            continue
        labels = {**(kept.get("labels") or {}), HOSTNAME: name}
        copy.put(
            "Node",
            {
                **model,
                "metadata": {**kept, "name": name, "uid": name, "labels": labels},
                "spec": {**spec, "taints": taints},
            },
        )
        made += 1
    source = model["metadata"]["name"]
    return [f"{count} {'node' if count == 1 else 'nodes'} more, empty, as {source} is"]


def _like(copy: ClusterCopy, text: str, like: str) -> Tree:
    """The first node, by name, that is meant."""
    nodes = copy.of_kind("Node")
    if like in nodes:
        return nodes[like]
    ordered = [nodes[name] for name in sorted(nodes)]
    if "=" in like:
        pairs = [part.strip().partition("=") for part in like.split(",")]
        found = [
            node
            for node in ordered
            if all(_labels(node).get(key) == value for key, _, value in pairs)
        ]
        if not found:
            raise _error(text, f'no node has the labels "{like}"')
        return found[0]
    wanted = like.lower()
    found = [node for node in ordered if wanted in _labels(node).get(PRODUCT, "").lower()]
    if not found:
        products = sorted({_labels(node).get(PRODUCT, "") for node in ordered} - {""})
        raise _error(
            text,
            f'no node is called "{like}" or has a GPU of that product; '
            f"nodes: {_few(nodes)}; products: {', '.join(products) or 'none'}",
        )
    return found[0]


def _labels(node: Tree) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _to_node(copy: ClusterCopy, text: str, name: str, verb: str) -> list[str]:
    node = copy.of_kind("Node").get(name)
    if node is None:
        raise _error(text, f'there is no node "{name}"; there are {_few(copy.of_kind("Node"))}')
    spec = node.get("spec") or {}
    if verb == "remove":
        copy.drop("Node", name)
    else:
        copy.put("Node", {**node, "spec": {**spec, "unschedulable": verb != "uncordon"}})
    if verb in ("cordon", "uncordon"):
        return [f"node {name}: {verb}ed"]
    moved = 0
    for key, pod in copy.pods_on(name):
        owners = pod["metadata"].get("ownerReferences") or ()
        of_node = any(one.get("kind") in ("DaemonSet", "Node") for one in owners)
        if of_node and verb == "drain":
            continue
        copy.drop("Pod", key)
        if any(one.get("controller") for one in owners) and not of_node:
            copy.put("Pod", anew(pod, copy.new_uid(), micro_stamp(copy.now)))
        moved += 1
    done = "removed" if verb == "remove" else "drained"
    return [
        f"node {name}: {done}; {moved} {'pod has' if moved == 1 else 'pods have'} to go from it"
    ]


# -- jobs ------------------------------------------------------------------------------------------


def _job(text: str, rest: str, value: str, namespace: str) -> Change:
    name, dot, field = rest.rpartition(".")
    if dot and field == "priority":
        return Change(text, lambda copy: _priority(copy, text, name, value, namespace))
    if not rest:
        raise _error(text, "which job? job.NAME.priority, or job.NAME=suspend")
    if value not in JOB_VERBS:
        raise _error(
            text, f'job {rest} = "{value}": {" or ".join(JOB_VERBS)}, or job.{rest}.priority=...'
        )
    return Change(text, lambda copy: _stop(copy, text, rest, value, namespace))


def group_named(copy: ClusterCopy, name: str, namespace: str) -> str | None:
    """The key of the PodGroup of a job, by its name or `namespace/name`; None where there is none."""
    where, slash, short = name.rpartition("/")
    found = copy.groups_named(where if slash else namespace, short)
    return found[0] if found else None


def _known_group(copy: ClusterCopy, text: str, name: str, namespace: str) -> str:
    key = group_named(copy, name, namespace)
    if key is None:
        raise _error(
            text,
            f'there is no job "{name}" with a PodGroup in namespace {namespace}; NAMESPACE/NAME names another',
        )
    return key


def _priority(copy: ClusterCopy, text: str, name: str, value: str, namespace: str) -> list[str]:
    key = _known_group(copy, text, name, namespace)
    classes = copy.of_kind("PriorityClass")
    if re.fullmatch(r"-?\d{1,10}", value):
        number, called = int(value), f"what-if-{value}"
        if abs(number) > 1_000_000_000:
            raise _error(text, f"priority = {value}: from -1000000000 to 1000000000")
        copy.put("PriorityClass", {"metadata": {"name": called}, "value": number})
    elif value in classes:
        number, called = int(classes[value].get("value") or 0), value
    else:
        raise _error(
            text, f'there is no PriorityClass "{value}"; a number, or one of {_few(classes)}'
        )
    group = copy.of_kind("PodGroup")[key]
    before = (group.get("spec") or {}).get("priorityClassName") or "none"
    spec = {**(group.get("spec") or {}), "priorityClassName": called}
    copy.put("PodGroup", {**group, "spec": spec})
    for _, pod in copy.pods_of(key):
        copy.put("Pod", with_priority(pod, called, number))
    return [f"job {name}: priority class {before} -> {called} ({number})"]


def with_priority(pod: Tree, called: str, number: int) -> Json:
    """The pod with another priority."""
    return {**pod, "spec": {**pod["spec"], "priorityClassName": called, "priority": number}}


def _stop(copy: ClusterCopy, text: str, name: str, verb: str, namespace: str) -> list[str]:
    key = _known_group(copy, text, name, namespace)
    pods = copy.pods_of(key)
    held = sum(1 for _, pod in pods if node_of(pod))
    for pod, _ in pods:
        copy.drop("Pod", pod)
    copy.drop("PodGroup", key)
    done = "suspended" if verb == "suspend" else "deleted"
    return [
        f"job {name}: {done}; {held} {'pod leaves its' if held == 1 else 'pods leave their'} room"
    ]


def _few(names: Mapping[str, Any]) -> str:
    shown = sorted(names)[:8]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "") if shown else "none"
