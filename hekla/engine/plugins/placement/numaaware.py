"""numa-aware: CPUs of one pod on as few NUMA nodes as its policy asks.  Reference:
plugins-placement 6."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.text import quantity
from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Code, Depends, Filter, Normalise, Plugin, Score
from hekla.engine.model.annotations import NUMA_POLICY
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.numa import NO_CPUS, NONE, Cpus, CpuTopology, cpu_set, merged, topology_of
from hekla.engine.model.resources import CPU, MEMORY, Amounts, Floats
from hekla.engine.model.tasks import Status

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Job, Task

_UNSET = ("", NONE)


class NumaAwareArguments(Arguments, frozen=True):
    weight: int = 1


@dataclass(frozen=True, slots=True)
class NumaNode:
    """What a Numatopology says of one node."""

    source: Tree
    cpu_policy: str
    topology_policy: str
    reserved: int
    topology: CpuTopology
    allocatable: Cpus | None
    reported: frozenset[str]
    """UIDs and `namespace/name` of pods whose CPUs are out of `allocatable` already."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The CPUs that one pod was given."""

    uid: str
    node: str
    cpus: Cpus


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one node says to one class of pods."""

    refusal: str = ""
    cpus: Cpus = NO_CPUS
    numa_nodes: int = 0


class NumaAware(Plugin):
    """Admits guaranteed pods as the kubelet will, and remembers which CPUs it counted on."""

    name = "numa-aware"
    Arguments = NumaAwareArguments
    arguments: NumaAwareArguments

    def __init__(self, arguments: NumaAwareArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self._known: dict[str, NumaNode] = {}
        self._given: dict[str, Assignment] = {}
        """By pod, until the node's exporter reports it or the pod is gone."""
        self._verdicts: dict[PodClass, dict[int, tuple[int, Verdict]]] = {}

    def open(self, session: CycleView) -> None:
        self.nodes = session.state.nodes
        objects = session.state.others.get("Numatopology", {})
        for name in [name for name in self._known if name not in objects]:
            del self._known[name]
            self._touch(name)
        for name, tree in objects.items():
            known = self._known.get(name)
            if known is not None and known.source is tree:
                continue
            try:
                self._known[name] = _read(tree)
            except (AttributeError, TypeError, ValueError) as error:
                self._known.pop(name, None)
                session.state.rejected[("Numatopology", name)] = str(error)
            self._touch(name)
        for key in [key for key, one in self._given.items() if self._is_over(session, key, one)]:
            self._touch(self._given.pop(key).node)
        if len(self._verdicts) > 512:
            self._verdicts.clear()

    def _is_over(self, session: CycleView, key: str, one: Assignment) -> bool:
        task = session.state.tasks.get(key)
        if task is None or task.uid != one.uid or task.status is Status.PENDING:
            return True
        known = self._known.get(one.node)
        return known is not None and bool(known.reported & {one.uid, key})

    def _touch(self, name: str) -> None:
        row = self.nodes.rows.get(name)
        if row is not None:
            self.nodes.mark(row)

    # ----------------------------------------------------------------------------- filter and score

    def filters(self) -> Iterable[Filter]:
        yield Filter(
            "numa-aware",
            "node(s) cannot assign the pod's CPUs",
            Code.UNRESOLVABLE,
            Depends.CLUSTER,
            self._mask,
            self.name,
            lambda pods, row: self._verdict(pods, row).refusal,
        )

    def scores(self) -> Iterable[Score]:
        yield Score(
            "numa-aware",
            float(self.arguments.weight),
            Depends.CLUSTER,
            self._score,
            Normalise.MAX_REVERSED,
        )

    def _mask(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if not self._concerned(pods):
            return None
        rows = range(len(nodes)) if nodes.rows is None else nodes.rows.tolist()
        return np.fromiter(
            (not self._verdict(pods, row).refusal for row in rows), dtype=np.bool_, count=len(nodes)
        )

    def _score(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if not self._concerned(pods) or pods.annotations.get(NUMA_POLICY, "") in _UNSET:
            return None
        rows = range(len(nodes)) if nodes.rows is None else nodes.rows.tolist()
        return np.fromiter(
            (self._verdict(pods, row).numa_nodes for row in rows),
            dtype=np.float64,
            count=len(nodes),
        )

    def _concerned(self, pods: PodClass) -> bool:
        if not self._known and pods.annotations.get(NUMA_POLICY, "") in _UNSET:
            return False
        return guaranteed(pods)

    def _verdict(self, pods: PodClass, row: int) -> Verdict:
        of_class = self._verdicts.setdefault(pods, {})
        stamp = int(self.nodes.stamps[row])
        found = of_class.get(row)
        if found is None or found[0] != stamp:
            found = of_class[row] = stamp, self._ask(pods, row)
        return found[1]

    def _ask(self, pods: PodClass, row: int) -> Verdict:
        wanted = pods.annotations.get(NUMA_POLICY, "")
        known = self._known.get(self.nodes.names[row])
        if wanted in _UNSET:
            if known is None or known.cpu_policy != "static" or known.topology_policy in _UNSET:
                return Verdict()
        elif known is None:
            return Verdict("numa info is empty")
        elif known.cpu_policy != "static":
            return Verdict("cpu manager policy isn't static")
        elif wanted != known.topology_policy:
            return Verdict(
                f"task topology policy[{wanted}] is different with node[{known.topology_policy}]"
            )
        elif not known.topology.cpus:
            return Verdict("no topo information")
        elif not known.allocatable:
            return Verdict("cpu allocatable map is empty")
        return assign(pods, known, self._free(known, row))

    def _free(self, known: NumaNode, row: int) -> Cpus:
        taken = [self._given[key].cpus for key in self.nodes.tasks[row] if key in self._given]
        return (known.allocatable or NO_CPUS) - NO_CPUS.union(*taken)

    # ---------------------------------------------------------------------------------------- books

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status not in (Status.ALLOCATED, Status.PIPELINED) or not self._concerned(
            task.pods
        ):
            return
        self._given.pop(task.key, None)
        self.nodes.mark(task.row)
        verdict = self._ask(task.pods, task.row)
        if verdict.cpus:
            self._given[task.key] = Assignment(task.uid, self.nodes.names[task.row], verdict.cpus)
        self.nodes.mark(task.row)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.key in self._given and task.status is not Status.RELEASING:
            del self._given[task.key]
            self.nodes.mark(task.row)


def guaranteed(pods: PodClass) -> bool:
    """Every container states limits of cpu and memory, and requests no other amount."""
    return bool(pods.containers) and all(
        one.limits[name] > 0 and one.requests[name] in (0.0, one.limits[name])
        for one in (*pods.containers, *pods.init_containers)
        for name in (CPU, MEMORY)
    )


def assign(pods: PodClass, known: NumaNode, free: Cpus) -> Verdict:
    """Container by container, as the node's own policy would."""
    given: Cpus = NO_CPUS
    for number, one in enumerate(pods.containers):
        request = (one.requests[CPU] or one.limits[CPU]) / 1000
        hints = known.topology.hints(request, free, known.reserved)
        hint, admitted = merged(known.topology_policy, [hints], known.topology.numa_nodes)
        if not admitted:
            return Verdict(f"container {one.name or number} cannot be assigned by numa")
        if hints is not None:
            cpus = known.topology.allocate(int(request), free, known.reserved, hint)
            given |= cpus
            free -= cpus
    return Verdict("", given, known.topology.numa_count(given))


def _read(tree: Tree) -> NumaNode:
    spec = tree.get("spec") or {}
    policies = spec.get("policies") or {}
    found = (spec.get("numares") or {}).get(CPU)
    reserved = quantity.whole((spec.get("resReserved") or {}).get(CPU, "0"))
    reported = {str(one.get("uid", "")) for one in spec.get("podAllocations") or ()}
    reported |= {
        f"{one.get('namespace', '')}/{one.get('name', '')}"
        for one in spec.get("podAllocations") or ()
    }
    return NumaNode(
        tree,
        policies.get("CPUManagerPolicy", ""),
        policies.get("TopologyManagerPolicy", ""),
        reserved,
        topology_of(spec.get("cpuDetail") or {}),
        None if found is None else cpu_set(str(found.get("allocatable", ""))),
        frozenset(reported - {"", "/"}),
    )
