"""`vcctl top nodes`, `pods`, `jobs` and `queues`: what is used beside what is requested.

What is used comes from the cluster's resource metrics (`metrics.k8s.io`); without them that column is
empty, and stderr says why.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hekla.api import names, scheduling
from hekla.api.kubernetes import core
from hekla.api.text import quantity
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

METRICS = "/apis/metrics.k8s.io/v1beta1"
POD_GROUP, POD, NODE = scheduling.POD_GROUP.untyped, core.POD.untyped, core.NODE.untyped
DEFAULT_QUEUE, NO_QUEUE = "default", "-"
MI = 1 << 20
Key = tuple[str, str]
"""Namespace and name."""


class Amount(NamedTuple):
    """Millicores, and bytes."""

    cpu: int = 0
    memory: int = 0

    def __add__(self, other: tuple[object, ...]) -> Amount:
        assert isinstance(other, Amount)
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    @classmethod
    def of(cls, amounts: Tree | None) -> Amount:
        found = amounts or {}
        return cls(quantity.milli(found.get("cpu", 0)), quantity.whole(found.get("memory", 0)))


NOTHING = Amount()


@dataclass(slots=True)
class Row:
    """What one line is about, and its sums.  `used` is None as long as nothing is measured."""

    titles: tuple[str, ...]
    requested: Amount = NOTHING
    used: Amount | None = None
    pods: int = 0

    def add(self, pod: Tree, used: Amount | None) -> None:
        self.pods += 1
        self.requested += requests(pod)
        if used is not None:
            self.used = (self.used or NOTHING) + used


def requests(pod: Tree) -> Amount:
    """What the scheduler keeps for a pod: its containers and sidecars together, or its largest step of
    initialization, or what the pod as a whole states; and its overhead."""
    spec = pod.get("spec") or {}
    sidecars, most = NOTHING, NOTHING
    for one in spec.get("initContainers") or ():
        wanted = _requests(one)
        if one.get("restartPolicy") == "Always":
            sidecars += wanted
            wanted = sidecars
        else:
            wanted += sidecars
        most = Amount(max(most.cpu, wanted.cpu), max(most.memory, wanted.memory))
    total = sum((_requests(one) for one in spec.get("containers") or ()), sidecars)
    whole = (spec.get("resources") or {}).get("requests") or {}
    stated = Amount.of(whole)
    cpu = stated.cpu if "cpu" in whole else max(total.cpu, most.cpu)
    memory = stated.memory if "memory" in whole else max(total.memory, most.memory)
    return Amount(cpu, memory) + Amount.of(spec.get("overhead"))


def _requests(container: Tree) -> Amount:
    return Amount.of((container.get("resources") or {}).get("requests"))


def holding(pods: Iterable[Tree]) -> list[Tree]:
    """The pods that hold room on a node."""
    return [
        pod
        for pod in pods
        if (pod.get("spec") or {}).get("nodeName")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]


def key_of(tree: Tree) -> Key:
    return tree["metadata"].get("namespace") or "", tree["metadata"]["name"]


# --- the tables ---------------------------------------------------------------------------------------


def nodes_table(nodes: Sequence[Tree], pods: Sequence[Tree], used: dict[Key, Amount]) -> list[str]:
    """Each node: what it has, what is requested of it, what its machine uses."""
    rows = {node["metadata"]["name"]: Row((node["metadata"]["name"],)) for node in nodes}
    for pod in holding(pods):
        if (row := rows.get(pod["spec"]["nodeName"])) is not None:
            row.add(pod, None)
    whole = {}
    for node in nodes:
        name = node["metadata"]["name"]
        rows[name].used = used.get(("", name))
        whole[name] = Amount.of((node.get("status") or {}).get("allocatable"))
    table: list[tuple[str, ...]] = [
        ("Node", "Pods", "CPU", "Requested", "Used", "Memory", "Requested", "Used")
    ]
    for row in busiest(rows.values()):
        has, asked = whole[row.titles[0]], row.requested
        cpu = (_cpu(has.cpu), _cpu(asked.cpu, has.cpu), _cpu_used(row, has.cpu))
        memory = (
            _memory(has.memory),
            _memory(asked.memory, has.memory),
            _memory_used(row, has.memory),
        )
        table.append((*row.titles, str(row.pods), *cpu, *memory))
    return aligned(table)


def pods_table(pods: Sequence[Tree], used: dict[Key, Amount]) -> list[str]:
    rows = []
    for pod in holding(pods):
        row = Row(("/".join(key_of(pod)), pod["spec"]["nodeName"]))
        row.add(pod, used.get(key_of(pod)))
        rows.append(row)
    return _sums(("Pod", "Node"), rows, counted=False)


def jobs_table(pods: Sequence[Tree], groups: Sequence[Tree], used: dict[Key, Amount]) -> list[str]:
    """Whoever owns a PodGroup: a job, a ReplicaSet, whatever made its pods."""
    known = {key_of(group): group for group in groups}
    rows: dict[Key, Row] = {}
    for pod in holding(pods):
        group = known.get(group_of(pod))
        if group is not None:
            queue = (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE
            title = f"{key_of(group)[0]}/{owner_of(group)}"
            rows.setdefault((title, queue), Row((title, queue))).add(pod, used.get(key_of(pod)))
    return _sums(("Job", "Queue"), rows.values())


def queues_table(
    pods: Sequence[Tree], groups: Sequence[Tree], used: dict[Key, Amount]
) -> list[str]:
    known = {key_of(group): group for group in groups}
    rows: dict[str, Row] = {}
    for pod in holding(pods):
        queue = queue_of(pod, known.get(group_of(pod)))
        rows.setdefault(queue, Row((queue,))).add(pod, used.get(key_of(pod)))
    return _sums(("Queue",), rows.values())


def group_of(pod: Tree) -> Key:
    marks = pod["metadata"].get("annotations") or {}
    return key_of(pod)[0], marks.get(names.GROUP_NAME, "")


def owner_of(group: Tree) -> str:
    owners = (
        one for one in group["metadata"].get("ownerReferences") or () if one.get("controller")
    )
    return str(next(owners, group["metadata"])["name"])


def queue_of(pod: Tree, group: Tree | None) -> str:
    """Of a pod's group, its own, the default one; `-` for a pod that names another scheduler."""
    if group is not None:
        return str((group.get("spec") or {}).get("queue") or DEFAULT_QUEUE)
    metadata = pod["metadata"]
    stated = (metadata.get("annotations") or {}).get(names.GROUP_QUEUE_NAME) or (
        metadata.get("labels") or {}
    ).get(names.QUEUE_NAME)
    ours = pod["spec"].get("schedulerName") == names.SCHEDULER
    return str(stated or (DEFAULT_QUEUE if ours else NO_QUEUE))


def _sums(titles: tuple[str, ...], rows: Iterable[Row], *, counted: bool = True) -> list[str]:
    count = ("Pods",) if counted else ()
    table = [(*titles, *count, "CPU requested", "Used", "Memory requested", "Used")]
    for row in busiest(rows):
        asked = row.requested
        cells = (_cpu(asked.cpu), _cpu_used(row, asked.cpu))
        more = (_memory(asked.memory), _memory_used(row, asked.memory))
        table.append((*row.titles, *((str(row.pods),) if counted else ()), *cells, *more))
    return aligned(table) if len(table) > 1 else ["No pods run."]


def busiest(rows: Iterable[Row]) -> list[Row]:
    """Those that use most cpu first."""
    return sorted(rows, key=lambda row: (-(row.used.cpu if row.used else 0), row.titles))


def _cpu_used(row: Row, whole: int) -> str:
    return _cpu(row.used.cpu, whole) if row.used is not None else "-"


def _memory_used(row: Row, whole: int) -> str:
    return _memory(row.used.memory, whole) if row.used is not None else "-"


def _cpu(amount: int, whole: int = 0) -> str:
    return f"{amount}m{_share(amount, whole)}"


def _memory(amount: int, whole: int = 0) -> str:
    return f"{round(amount / MI)}Mi{_share(amount, whole)}"


def _share(amount: int, whole: int) -> str:
    return f" ({round(100 * amount / whole)}%)" if whole else ""


def aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in table) + 3 for column in range(len(table[0]))]
    return [
        "".join(f"{value:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


# --- what is asked for --------------------------------------------------------------------------------


async def top(api: Api, invocation: Invocation, what: str) -> None:
    """Print one of the tables.  Raises CommandError."""
    namespace: str | None = invocation.text("namespace")
    if what in ("nodes", "queues") or invocation.on("all-namespaces"):
        namespace = None
    kind = "nodes" if what == "nodes" else "pods"
    used, pods = await asyncio.gather(measured(api, kind, namespace), api.list(POD, namespace))
    if what == "nodes":
        lines = nodes_table((await api.list(NODE)).items, pods.items, used)
    elif what == "pods":
        lines = pods_table(pods.items, used)
    else:
        groups = (await api.list(POD_GROUP, namespace)).items
        table = jobs_table if what == "jobs" else queues_table
        lines = table(pods.items, groups, used)
    print("\n".join(lines))


async def measured(api: Api, kind: str, namespace: str | None) -> dict[Key, Amount]:
    """What nodes or pods use; nothing where the cluster has no metrics, which stderr says."""
    where = f"namespaces/{namespace}/{kind}" if namespace else kind
    try:
        answer = await api.request("GET", f"{METRICS}/{where}")
    except TransportError as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        print(f"What is used is not known: {METRICS}: {error.message}", file=sys.stderr)
        return {}
    found: dict[Key, Amount] = {}
    for item in json.loads(answer.body).get("items") or ():
        parts = (Amount.of(one["usage"]) for one in item.get("containers") or (item,))
        found[key_of(item)] = sum(parts, NOTHING)
    return found
