"""network-topology-aware: keeps a job's pods near each other, within the tier that it names.
Reference: plugins-placement 9."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np

from hekla.engine.framework.plugin import (
    MAX_SCORE,
    Depends,
    Plugin,
    Reads,
    Score,
    Source,
)
from hekla.engine.model.arrays import Bools
from hekla.engine.model.hypernodes import ROOT, HyperTree
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import EPSILON, Amounts, Floats
from hekla.engine.model.tasks import Group, Job, Status, SubJob, Task, requests_of
from hekla.engine.plugins.placement.binpack import ResourceWeights

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass

MOST_DOMAINS = 8


class NetworkTopologyArguments(ResourceWeights, frozen=True):
    family: ClassVar[str] = "hypernode.binpack.resources."
    weight: int = 1
    cpu: int = msgspec.field(default=1, name="hypernode.binpack.cpu")
    memory: int = msgspec.field(default=1, name="hypernode.binpack.memory")
    resources: str = msgspec.field(default="", name="hypernode.binpack.resources")
    normal_pods: bool = msgspec.field(default=True, name="hypernode.binpack.normal-pod.enable")
    fading: float = msgspec.field(default=0.8, name="hypernode.binpack.normal-pod.fading")
    most_domains: int = msgspec.field(
        default=MOST_DOMAINS, name="hypernode.gradient.evict.max-hypernodes"
    )


class NetworkTopologyAware(Plugin):
    """Which domains a job may try, which of them is best, and which node within."""

    name = "network-topology-aware"
    Arguments = NetworkTopologyArguments
    arguments: NetworkTopologyArguments
    reads = Reads(between_placements=Source.JOBS)

    def __init__(self, arguments: NetworkTopologyArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        if not arguments.normal_pods:  # It has no say then on pods without a topology.
            self.reads = replace(self.reads, nodes=Source.NODES)
        self.weights = arguments.by_resource(arguments.resources, arguments.cpu, arguments.memory)
        self.weight = arguments.weight if arguments.weight >= 0 else 1
        self.fading = arguments.fading if arguments.fading >= 0 else 0.8

    def open(self, session: CycleView) -> None:
        self.session = session
        self.tree: HyperTree = session.tree
        self.totals: dict[tuple[str, str], Floats] = {}
        """What was free when the cycle began, `[domains]`, by kind of room and resource; computed
        once asked for."""
        self.nearness: dict[str, Floats] = {}
        """For each domain that was asked about: how near the leaves are to it, `[leaves + 1]`."""
        self.leaving: dict[str, Task] = {}
        """Tasks that this cycle evicts: their domains are that much emptier."""

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if self.leaving:
            self.leaving.pop(task.key, None)  # Its eviction was undone.

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.status is Status.RELEASING:
            self.leaving[task.key] = task

    # -------------------------------------------------------------------------------- which domains

    def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
        """Domains by tier, the nearest first; for evictions the widest first, and not too many."""
        topology = group.effective
        if topology is None or not topology.hard or topology.highest_tier is None:
            return [[domain]]
        root = self._search_root(group, domain, topology.highest_tier)
        if root is None:
            return []
        holds = None if group.allocated_domain else self._could_hold(self._minimum(group), purpose)
        found: dict[int, list[str]] = {}
        queue = [root]
        while queue:
            name = queue.pop(0)
            one = self.tree.by_name[name]
            queue.extend(one.children)
            if one.tier <= topology.highest_tier and (
                holds is None or holds[self.tree.number[name]]
            ):
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

    def _could_hold(self, minimum: Amounts, purpose: str) -> Bools:
        """`[domains]`: as things stood when the cycle began; a domain that is let through may still
        turn out too full."""
        result = np.zeros(len(self.tree.number), dtype=np.bool_)
        for kind in ("idle", "future") if purpose == "allocate" else ("allocatable",):
            holds = np.ones_like(result)
            for resource, value in minimum.items():
                holds &= value < self._totals(kind, resource) + EPSILON
            result |= holds
        return result

    def _totals(self, kind: str, resource: str) -> Floats:
        found = self.totals.get((kind, resource))
        if found is None:
            room = dict(zip(("idle", "future", "allocatable"), self.session.opening_room()))[kind]
            column = self.session.state.nodes.space.index.get(resource, len(room))
            found = (
                self.tree.sums(room[column])
                if column < len(room)
                else np.zeros(len(self.tree.number))
            )
            self.totals[kind, resource] = found
        return found

    def _widest(self, gradient: list[list[str]]) -> list[list[str]]:
        most = self.arguments.most_domains if self.arguments.most_domains > 0 else MOST_DOMAINS
        result: list[list[str]] = []
        for names in reversed(gradient):
            kept = names[-most:]
            most -= len(kept)
            if kept:
                result.append(kept)
            if most <= 0:
                break
        return result

    # -------------------------------------------------------------------------------- which is best

    def hyper_node_order(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]:
        packed = self._packed_together(sub_job)
        scores = {name: float(packed[self.tree.number[name]]) for name in domains}
        best = max(scores.values(), default=0.0)
        tied = [name for name, score in scores.items() if score == best]
        if len(tied) > 1 and sub_job.tasks:
            for name in tied:
                scores[name] += self._share_inside(sub_job, name)
        return {name: score * MAX_SCORE * self.weight for name, score in scores.items()}

    def hyper_node_rank(self, sub_job: SubJob, domains: list[str]) -> list[tuple[float, float]]:
        """What `hyper_node_order` gives, whichever of the domains are compared: by fullness, and
        what it adds between equals."""
        packed, scale = self._packed_together(sub_job), MAX_SCORE * self.weight
        return [
            (
                float(packed[self.tree.number[name]]) * scale,
                self._share_inside(sub_job, name) * scale,
            )
            for name in domains
        ]

    def hyper_node_bounds(
        self, sub_job: SubJob, domains: list[str], roomy: Bools | None
    ) -> list[float]:
        """The most that `hyper_node_order` can give to any domain within each of these; `roomy`,
        `[domains]`, are the possible ones."""
        packed = self._packed_together(sub_job)
        most = self.tree.highest_within(packed if roomy is None else np.where(roomy, packed, 0.0))
        placed = any(task.row >= 0 for task in sub_job.tasks.values())
        return [
            (float(most[self.tree.number[name]]) + placed) * MAX_SCORE * self.weight
            for name in domains
        ]

    def _share_inside(self, sub_job: SubJob, name: str) -> float:
        placed = [task.row for task in sub_job.tasks.values() if task.row >= 0]
        if not placed:
            return 0.0
        return int(np.isin(placed, self.tree.by_name[name].rows).sum()) / len(sub_job.tasks)

    def _packed_together(self, sub_job: SubJob) -> Floats:
        return self._packed(requests_of(sub_job.tasks.values()))

    def _packed(self, asked: Amounts) -> Floats:
        """`[domains]`: how full each would be, 0 to 1; 0 where it would overflow."""
        nodes = self.session.state.nodes
        total: Floats = np.zeros(len(self.tree.number))
        over = np.zeros(len(total), dtype=np.bool_)
        weights = 0
        for resource, wanted in asked.items():
            weight = self.weights.get(resource)
            if weight is None or wanted <= 0:
                continue
            column = nodes.space.column(resource)
            allocatable = self.tree.sums(nodes.allocatable[column])
            filled = self.tree.sums(self._held(resource, column)) + wanted
            over |= filled > allocatable
            total += weight * filled / np.where(allocatable > 0, allocatable, 1.0)
            weights += weight
        if weights:
            total /= weights
        total[over] = 0.0
        return total

    def _held(self, resource: str, column: int) -> Floats:
        """`[nodes]`: what is in use, with what this cycle promised and without what it evicts."""
        nodes = self.session.state.nodes
        held: Floats = nodes.used[column] + nodes.pipelined[column]
        for task in self.leaving.values():
            held[task.row] -= task.request.amounts.get(resource, 0.0)
        return held

    # ----------------------------------------------------------------------------------- which node

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
        result: Floats = self._nearness(task.allocated_domain)[leaves]
        if len(result) and np.count_nonzero(result == result.max()) > 1:
            here = np.zeros(len(self.tree.leaf_names) + 1)
            for one in task.subjob.tasks.values():
                if one.row >= 0 and self.tree.leaves[one.row] >= 0:
                    here[self.tree.leaves[one.row]] += 1
            result = result + np.where(
                result == result.max(), here[leaves] / len(task.subjob.tasks), 0.0
            )
        return result

    def _nearness(self, domain: str) -> Floats:
        found = self.nearness.get(domain)
        if found is None:
            lowest, highest = self.tree.tiers[0], self.tree.tiers[-1]
            found = self.nearness[domain] = np.zeros(len(self.tree.leaf_names) + 1)
            shared = self.tree.tier_shared_with(domain)
            if highest > lowest:
                found[:-1] = np.where(shared >= 0, (highest - shared) / (highest - lowest), 0.0)
            same = np.array([leaf == domain for leaf in self.tree.leaf_names]) | (
                (highest == lowest) & (shared >= 0)
            )
            found[:-1][same] = 1.0
        return found

    def _beside(self, pods: PodClass, nodes: NodeView) -> Floats | None:
        """Pods without a topology fill the fullest domains, and nodes outside of all domains first."""
        if not self.arguments.normal_pods or not self.tree.real:
            return None
        total: Floats = np.zeros(len(nodes))
        packed = self._packed(pods.request.amounts)
        weights = 0.0
        for step, tier in enumerate(range(self.tree.tiers[0], self.tree.tiers[-1] + 1)):
            weight = self.fading**step
            values: Floats = np.ones(len(nodes.table))
            for one in self.tree.by_name.values():
                if one.tier == tier and one.name != ROOT:
                    values[one.rows] = packed[self.tree.number[one.name]]
            if tier == self.tree.root_tier:
                values[self.tree.by_name[ROOT].rows] = packed[self.tree.number[ROOT]]
            total += weight * nodes.take(values)
            weights += weight
        return total / weights if weights else total
