"""network-topology-aware: keeps a job's pods near each other, within the tier that it names.  Reference: plugins-placement 9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from hekla.engine.hypernodes import ROOT, HyperTree
from hekla.engine.nodes import NodeView
from hekla.engine.plugin import MAX_SCORE, Arguments, Depends, Plugin, Score
from hekla.engine.resources import CPU, MEMORY, Amounts, Floats, add, empty, less_equal
from hekla.engine.tasks import Group, Job, SubJob, Task

if TYPE_CHECKING:
    from hekla.engine.podclass import PodClass
    from hekla.engine.session import Session

_FAMILY = "hypernode.binpack.resources."


class NetworkTopologyArguments(Arguments, frozen=True):
    weight: int = 1
    cpu: int = msgspec.field(default=1, name="hypernode.binpack.cpu")
    memory: int = msgspec.field(default=1, name="hypernode.binpack.memory")
    resources: str = msgspec.field(default="", name="hypernode.binpack.resources")
    normal_pods: bool = msgspec.field(default=True, name="hypernode.binpack.normal-pod.enable")
    fading: float = msgspec.field(default=0.8, name="hypernode.binpack.normal-pod.fading")
    most_domains: int = msgspec.field(default=8, name="hypernode.gradient.evict.max-hypernodes")
    made: ClassVar[frozenset[str]] = frozenset({"others"})
    others: dict[str, int] = {}

    @classmethod
    def accepts(cls, key: str) -> bool:
        return key.startswith(_FAMILY)

    def extended(self, rest: Mapping[str, Any]) -> NetworkTopologyArguments:
        for key, value in rest.items():
            if type(value) is not int or value < 0:
                raise ValueError(f"{key} = {value!r}: a weight is a whole number from 0 up")
        return msgspec.structs.replace(self, others={key.removeprefix(_FAMILY): value for key, value in rest.items()})


class NetworkTopologyAware(Plugin):
    """Which domains a job may try, which of them is best, and which node within."""

    name = "network-topology-aware"
    Arguments = NetworkTopologyArguments

    def __init__(self, arguments: NetworkTopologyArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        listed = [name.strip() for name in arguments.resources.split(",") if name.strip()]
        self.weights: dict[str, int] = {name: arguments.others.get(name, 1) for name in listed}
        self.weights[CPU] = arguments.cpu if arguments.cpu >= 0 else 1
        self.weights[MEMORY] = arguments.memory if arguments.memory >= 0 else 1
        self.weight = arguments.weight if arguments.weight >= 0 else 1
        self.fading = arguments.fading if arguments.fading >= 0 else 0.8

    def open(self, session: Session) -> None:
        self.session = session
        self.tree: HyperTree = session.tree
        self.totals: dict[str, dict[str, Amounts]] = {}
        self.used: dict[str, Floats] = {}

    # ------------------------------------------------------------------------------------------------- which domains

    def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
        """Domains by tier, the nearest first; for evictions the widest first, and not too many."""
        topology = group.effective
        if topology is None or not topology.hard or topology.highest_tier is None:
            return [[domain]]
        root = self._search_root(group, domain, topology.highest_tier)
        if root is None:
            return []
        minimum = self._minimum(group)
        found: dict[int, list[str]] = {}
        queue = [root]
        while queue:
            name = queue.pop(0)
            one = self.tree.by_name[name]
            queue.extend(one.children)
            if one.tier <= topology.highest_tier and (group.allocated_domain or self._could_hold(name, minimum, purpose)):
                found.setdefault(one.tier, []).append(name)
        gradient = [found[tier] for tier in sorted(found)]
        return gradient if purpose == "allocate" else self._widest(gradient)

    def _search_root(self, group: Group, domain: str, highest: int) -> str | None:
        if not group.allocated_domain:
            return domain
        above = ""
        for name in self.tree.ancestors(group.allocated_domain):
            if self.tree.tier_of(name) > highest:
                break
            above = name
        if not above:
            return None
        common = self.tree.common(domain, above)
        if common == above:
            return domain
        return above if common == domain else None

    def _minimum(self, group: Group) -> Amounts:
        if isinstance(group, Job):
            return group.min_resources or {}
        assert isinstance(group, SubJob)
        return group.pending_resources()

    def _could_hold(self, name: str, minimum: Amounts, purpose: str) -> bool:
        """As things stood when the cycle began; a domain that is let through may still turn out too full."""
        totals = self._totals(name)
        if purpose == "allocate":
            return less_equal(minimum, totals["idle"]) or less_equal(minimum, totals["future"])
        return less_equal(minimum, totals["allocatable"])

    def _totals(self, name: str) -> dict[str, Amounts]:
        found = self.totals.get(name)
        if found is None:
            nodes, rows = self.session.state.nodes, self.tree.by_name[name].rows
            idle, future, allocatable = self.session.opening_room()
            space = nodes.space
            found = self.totals[name] = {
                "idle": space.amounts(idle[:, rows].sum(axis=1)),
                "future": space.amounts(future[:, rows].sum(axis=1)),
                "allocatable": space.amounts(allocatable[:, rows].sum(axis=1)),
            }
        return found

    def _widest(self, gradient: list[list[str]]) -> list[list[str]]:
        most = self.arguments.most_domains
        if most <= 0:
            return gradient
        result: list[list[str]] = []
        for names in reversed(gradient):
            kept = names[-most:]
            most -= len(kept)
            if kept:
                result.append(kept)
            if most <= 0:
                break
        return result

    # ------------------------------------------------------------------------------------------------- which is best

    def hyper_node_order(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]:
        asked = empty()
        for task in sub_job.tasks.values():
            add(asked, task.request.amounts)
        scores = {name: self._packed(name, asked) for name in domains}
        best = max(scores.values(), default=0.0)
        tied = [name for name, score in scores.items() if score == best]
        if len(tied) > 1 and sub_job.tasks:
            for name in tied:
                inside = set(self.tree.by_name[name].rows.tolist())
                here = sum(1 for task in sub_job.tasks.values() if task.row in inside)
                scores[name] += here / len(sub_job.tasks)
        return {name: score * MAX_SCORE * self.weight for name, score in scores.items()}

    def _packed(self, name: str, asked: Amounts) -> float:
        """How full the domain would be, 0 to 1; 0 where it would overflow."""
        nodes, rows = self.session.state.nodes, self.tree.by_name[name].rows
        total, weights = 0.0, 0
        for resource, wanted in asked.items():
            weight = self.weights.get(resource)
            if weight is None or wanted <= 0:
                continue
            column = nodes.space.column(resource)
            allocatable = float(nodes.allocatable[column][rows].sum())
            filled = float((nodes.used[column] + nodes.pipelined[column])[rows].sum()) + wanted
            if filled > allocatable:
                return 0.0
            total += weight * filled / allocatable
            weights += weight
        return total / weights if weights else 0.0

    # ------------------------------------------------------------------------------------------------- which node

    def scores(self) -> Iterable[Score]:
        yield Score(self.name, MAX_SCORE * self.weight, Depends.CLUSTER, self._near)

    def _near(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if task is None or task.job is None or task.subjob is None:
            return None
        if task.subjob.topology is None:
            return self._beside(pods, nodes)
        if not task.allocated_domain:
            return None
        leaves = nodes.take(self.tree.leaves)
        lowest, highest = self.tree.tiers[0], self.tree.tiers[-1]
        values = np.zeros(len(self.tree.leaf_names) + 1)
        for number, leaf in enumerate(self.tree.leaf_names):
            common = self.tree.common(leaf, task.allocated_domain)
            if leaf == task.allocated_domain or highest == lowest:
                values[number] = 1.0
            elif common:
                values[number] = (highest - self.tree.tier_of(common)) / (highest - lowest)
        result: Floats = values[leaves]
        if len(result) and np.count_nonzero(result == result.max()) > 1:
            here = np.zeros(len(self.tree.leaf_names) + 1)
            for one in task.subjob.tasks.values():
                if one.row >= 0 and self.tree.leaves[one.row] >= 0:
                    here[self.tree.leaves[one.row]] += 1
            result = result + np.where(result == result.max(), here[leaves] / len(task.subjob.tasks), 0.0)
        return result

    def _beside(self, pods: PodClass, nodes: NodeView) -> Floats | None:
        """Pods without a topology fill the fullest domains, and nodes outside of all domains first."""
        if not self.arguments.normal_pods or not self.tree.real:
            return None
        total: Floats = np.zeros(len(nodes))
        weights = 0.0
        for step, tier in enumerate(range(self.tree.tiers[0], self.tree.tiers[-1] + 1)):
            weight = self.fading**step
            values: Floats = np.ones(len(nodes.table))
            for one in self.tree.by_name.values():
                if one.tier == tier and one.name != ROOT:
                    values[one.rows] = self._packed(one.name, pods.request.amounts)
            if tier == self.tree.root_tier:
                values[self.tree.by_name[ROOT].rows] = self._packed(ROOT, pods.request.amounts)
            total += weight * nodes.take(values)
            weights += weight
        return total / weights if weights else total
