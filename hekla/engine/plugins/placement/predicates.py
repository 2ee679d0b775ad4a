"""predicates: the filters that Kubernetes' own scheduler has.  Reference: plugins-placement 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import (
    Arguments,
    Code,
    Depends,
    Filter,
    Normalise,
    Plugin,
    Reads,
    Score,
    Source,
)
from hekla.engine.model import matching, volumes
from hekla.engine.model.arrays import Bools, Ints, Scalar
from hekla.engine.model.claims.allocator import ELSEWHERE
from hekla.engine.model.claims.search import CANNOT, STEPS_A_SECOND
from hekla.engine.model.decisions import Freed
from hekla.engine.model.matching import NodeTerm
from hekla.engine.model.nodes import ABSENT, NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodTerm, Spread, domain_sums
from hekla.engine.model.resources import PODS, Amounts, Floats
from hekla.engine.model.tasks import Status

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.tasks import Job, Task

DEFAULT_CLAIMS_TIMEOUT = 10
DEFAULT_SHAPE = ({"utilization": 0, "score": 10}, {"utilization": 100, "score": 0})


class PredicatesArguments(Arguments, frozen=True):
    by_structure: ClassVar[frozenset[str]] = frozenset(
        {
            "volume_binding_weight",
            "volume_binding_timeout",
            "volume_binding_shape",
            "claims_timeout",
        }
    )
    node_affinity: bool = msgspec.field(default=True, name="predicate.NodeAffinityEnable")
    node_ports: bool = msgspec.field(default=True, name="predicate.NodePortsEnable")
    taint_toleration: bool = msgspec.field(default=True, name="predicate.TaintTolerationEnable")
    pod_affinity: bool = msgspec.field(default=True, name="predicate.PodAffinityEnable")
    volume_limits: bool = msgspec.field(default=True, name="predicate.NodeVolumeLimitsEnable")
    volume_zone: bool = msgspec.field(default=True, name="predicate.VolumeZoneEnable")
    topology_spread: bool = msgspec.field(default=True, name="predicate.PodTopologySpreadEnable")
    volume_binding: bool = msgspec.field(default=True, name="predicate.VolumeBindingEnable")
    cache: bool = msgspec.field(default=False, name="predicate.CacheEnable")
    dynamic_resources: bool = msgspec.field(
        default=True, name="predicate.DynamicResourceAllocationEnable"
    )
    volume_binding_weight: int = msgspec.field(default=1, name="volumebinding.weight")
    volume_binding_timeout: int = msgspec.field(
        default=600, name="volumebinding.bindTimeoutSeconds"
    )
    volume_binding_shape: list[dict[str, int]] = msgspec.field(
        default=[], name="volumebinding.shape"
    )
    claims_timeout: int = msgspec.field(default=10, name="dynamicresources.filterTimeoutSeconds")

    def extended(self, rest: Tree) -> PredicatesArguments:
        try:
            volumes.Shape(self.volume_binding_shape)
        except ValueError as error:
            raise ValueError(
                f"volumebinding.shape = {self.volume_binding_shape!r}: {error}"
            ) from error
        return self


class Predicates(Plugin):
    """One filter a reason, in Kubernetes' order."""

    name = "predicates"
    Arguments = PredicatesArguments
    arguments: PredicatesArguments
    reads = Reads(nodes=Source.NODES, between_placements=Source.JOBS)

    def __init__(self, arguments: PredicatesArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.shape = volumes.Shape(arguments.volume_binding_shape or DEFAULT_SHAPE)

    def open(self, session: CycleView) -> None:
        self.terms = session.state.terms
        self.volumes = session.state.volumes
        self.volumes.tidy()
        self.scores_storage = session.state.scores_storage
        self.claims = session.state.claims
        stated = self.arguments.claims_timeout
        self.claims.limit = STEPS_A_SECOND * (DEFAULT_CLAIMS_TIMEOUT if stated < 0 else stated)
        self.claims.tidy()
        self.confined: dict[str, Task] = {}
        """Pods that a claim kept from some node in this cycle."""

    def close(self, session: CycleView) -> None:
        freed = self.claims.extended.left_behind() if self.claims.extended.abandoned else []
        for task in self.confined.values():
            errors = task.job.fit_errors.get(task.key) if task.job is not None else None
            if (
                task.status is Status.PENDING
                and errors is not None
                and any(one.text == ELSEWHERE for one in errors.reasons)
            ):
                freed.extend(
                    (key, task.uid) for key in self.claims.useless(task, session.state.nodes)
                )
        session.decisions.freed.extend(Freed(key, uid) for key, uid in dict(freed).items())

    def prefilter(self, task: Task) -> str:
        pods = task.pods
        if not pods.volumes and not pods.claims and not pods.node_terms:
            return ""
        if self.arguments.node_affinity and pods.node_terms and _names_nobody(pods.node_terms):
            return "plugin NodeAffinity pre-predicates failed pod affinity terms conflict"
        trouble = (
            self.volumes.trouble(task) if pods.volumes and self.arguments.volume_binding else ""
        )
        if trouble:
            return f"plugin VolumeBinding pre-predicates failed {trouble}"
        trouble = self.claims.trouble(task) if pods.claims else ""
        return f"plugin DynamicResources pre-predicates failed {trouble}" if trouble else ""

    def filters(self) -> Iterable[Filter]:
        on: PredicatesArguments = self.arguments
        static, row, cluster = Depends.STATIC, Depends.NODE_ROW, Depends.CLUSTER
        helps, final = Code.UNSCHEDULABLE, Code.UNRESOLVABLE
        yield Filter("PodNumber", "node(s) pod number exceeded", helps, row, _pod_number, self.name)
        yield Filter("NodeUnschedulable", "node(s) were unschedulable", final, static, _cordoned)
        if on.node_affinity:
            reason = "node(s) didn't match Pod's node affinity/selector"
            yield Filter("NodeAffinity", reason, final, static, _node_affinity)
        if on.taint_toleration:
            yield Filter(
                "TaintToleration", "node(s) had untolerated taint(s)", final, static, _taints
            )
        if on.node_ports:
            reason = "node(s) didn't have free ports for the requested pod ports"
            yield Filter("NodePorts", reason, helps, row, _ports)
        if on.pod_affinity:
            reason = "node(s) didn't match pod affinity rules"
            yield Filter("PodAffinity", reason, final, cluster, self._affinity)
            reason = "node(s) didn't match pod anti-affinity rules"
            yield Filter("PodAntiAffinity", reason, helps, cluster, self._anti_affinity)
            reason = "node(s) didn't satisfy existing pods anti-affinity rules"
            yield Filter(
                "ExistingAntiAffinity",
                reason,
                helps,
                cluster,
                self._existing_anti_affinity,
                silent_after="PodAntiAffinity",
            )
        if on.volume_limits:
            yield Filter(
                "NodeVolumeLimits",
                "node(s) exceed max volume count",
                helps,
                cluster,
                self._volume_limits,
            )
        if on.volume_zone:
            yield Filter(
                "VolumeZone",
                "node(s) had no available volume zone",
                final,
                cluster,
                self._volume_zone,
            )
        if on.topology_spread:
            reason = "node(s) didn't match pod topology spread constraints"
            yield Filter(
                "SpreadLabel", f"{reason} (missing required label)", final, static, _spread_labels
            )
            yield Filter("PodTopologySpread", reason, helps, cluster, self._spread)
        for reason in (
            (volumes.NOT_AFFINE, volumes.NOT_THERE, volumes.NOT_FOUND, volumes.NOT_ENOUGH)
            if on.volume_binding
            else ()
        ):
            yield Filter(
                "VolumeBinding", reason, final, cluster, partial(self._volume_binding, reason)
            )
        yield Filter("DynamicResources", ELSEWHERE, final, cluster, self._claims_elsewhere)
        yield Filter(
            "DynamicResources", CANNOT, final, cluster, self._claims_open, "", self._why_not
        )

    def scores(self) -> Iterable[Score]:
        if self.arguments.volume_binding:
            yield Score(
                "VolumeBinding",
                float(self.arguments.volume_binding_weight),
                Depends.CLUSTER,
                self._volume_fullness,
            )
        yield Score(
            "DynamicResources", 1.0, Depends.CLUSTER, self._preferred_devices, Normalise.MAX
        )

    def _volume_fullness(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if not pods.volumes or task is None or not self.scores_storage:
            return None
        found = self.volumes.fullness(task, self.shape)
        return None if found is None else nodes.take(found)

    # ---------------------------------------------------------------------------- claims of devices

    def _claims_elsewhere(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if task is None or not task.claims:
            return None
        found: Bools = nodes.take(self.claims.reachable(task, nodes.table))
        if not found.all():
            self.confined[task.key] = task
        return found

    def _claims_open(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        answers = self.claims.ask(task, nodes) if task is not None and task.claims else None
        if answers is None:
            return None
        return nodes.take(answers.fits[: len(nodes.table)])

    def _why_not(self, pods: PodClass, row: int) -> str:
        return self.claims.last_reason(row)

    def _preferred_devices(
        self, pods: PodClass, nodes: NodeView, task: Task | None
    ) -> Floats | None:
        answers = self.claims.ask(task, nodes) if task is not None and task.claims else None
        if answers is None or not answers.ranked:
            return None
        return nodes.take(answers.scores[: len(nodes.table)])

    # -------------------------------------------------------------------------------------- volumes

    def _volume_limits(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if not pods.volumes or task is None:
            return None
        found = self.volumes.within_limits(task, nodes.table)
        return None if found is None else nodes.take(found)

    def _volume_zone(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if not pods.volumes or task is None:
            return None
        found = self.volumes.zones(task, nodes.table)
        return None if found is None else nodes.take(found)

    def _volume_binding(
        self, reason: str, pods: PodClass, nodes: NodeView, task: Task | None
    ) -> Bools | None:
        if not pods.volumes or task is None:
            return None
        return nodes.take(self.volumes.options(task).allowed[reason])

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if (
            task.pods.volumes
            and self.arguments.volume_binding
            and task.status in (Status.ALLOCATED, Status.PIPELINED)
        ):
            self.volumes.promise(task)
        if task.claims and task.status in (Status.ALLOCATED, Status.PIPELINED):
            promised = self.claims.promise(task)
            if not promised and task.status is Status.ALLOCATED:
                self.volumes.withdraw(task)  # Nobody is told of what did not happen.
                raise ValueError(f"{task.key}: its claims cannot be had on its node")

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        if task.claims and task.status is Status.PENDING:
            self.claims.withdraw(task)
        if task.pods.volumes and task.status is Status.PENDING:
            self.volumes.withdraw(task)

    # ------------------------------------------------------------------------------ inter-pod terms

    def _affinity(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        """Every term's domain holds a pod that matches all terms; or none does anywhere and the pod
        matches itself."""
        if not pods.affinity:
            return None
        table = nodes.table
        matched = self._matching_all(pods.affinity, table)
        result = np.ones(len(nodes), dtype=np.bool_)
        labelled = np.ones(len(nodes), dtype=np.bool_)
        for term in pods.affinity:
            codes = nodes.take(table.label_codes(term.key))
            labelled &= codes != ABSENT
            result &= self._count_in_domain(table, term.key, matched, codes) > 0
        nobody = all(
            not (matched[table.label_codes(term.key) != ABSENT] > 0).any() for term in pods.affinity
        )
        if nobody and self._matches_itself(pods):
            return labelled
        return result

    def _matching_all(self, terms: tuple[PodTerm, ...], table: NodeTable) -> NDArray[np.int64]:
        """`[nodes]`: how many pods on each match every one of the terms."""
        size = len(table)
        selects = {term.select for term in terms}
        if len(selects) == 1:
            return _counts(terms[0].matched, size)
        result = np.zeros(size, dtype=np.int64)
        for row, held in enumerate(table.tasks):
            for one in held.values():
                if all(select.matches(one.labels, self.terms.namespaces) for select in selects):
                    result[row] += 1
        return result

    def _matches_itself(self, pods: PodClass) -> bool:
        labels = pods.label_set
        return labels is not None and all(
            term.select.matches(labels, self.terms.namespaces) for term in pods.affinity
        )

    def _anti_affinity(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if not pods.anti_affinity:
            return None
        table = nodes.table
        result = np.ones(len(nodes), dtype=np.bool_)
        for term in pods.anti_affinity:
            codes = nodes.take(table.label_codes(term.key))
            result &= (
                self._count_in_domain(table, term.key, _counts(term.matched, len(table)), codes)
                == 0
            )
        return result

    def _existing_anti_affinity(
        self, pods: PodClass, nodes: NodeView, task: Task | None
    ) -> Bools | None:
        if task is None:
            return None
        table = nodes.table
        result: Bools | None = None
        for term in task.labels.terms:
            if not term.anti_total:
                continue
            codes = nodes.take(table.label_codes(term.key))
            free = (
                self._count_in_domain(table, term.key, _counts(term.anti, len(table)), codes) == 0
            )
            result = free if result is None else result & free
        return result

    @staticmethod
    def _count_in_domain(
        table: NodeTable, key: str, counts: NDArray[Scalar], codes: Ints
    ) -> Floats:
        """`[rows]`: the sum over each row's domain; 0 where a row has no such label."""
        sums = np.append(domain_sums(table.label_codes(key), counts), 0.0)
        return sums[codes]

    # --------------------------------------------------------------------------------------- spread

    def _spread(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        hard = [spread for spread in pods.spreads if spread.hard]
        if not hard:
            return None
        table = nodes.table
        result = np.ones(len(nodes), dtype=np.bool_)
        for spread, taking_part, domains in _domains(pods, hard, table):
            codes = table.label_codes(spread.term.key)
            counts = np.where(taking_part, _counts(spread.term.live, len(table)), 0)
            sums = np.append(domain_sums(codes, counts), 0.0)
            fewest = (
                sums[domains].min() if len(domains) >= spread.min_domains and len(domains) else 0.0
            )
            mine = nodes.take(codes)
            skew = sums[mine] + float(spread.self_match) - fewest
            result &= (skew <= spread.max_skew) | (mine == ABSENT)
        return result


def _names_nobody(terms: tuple[NodeTerm, ...]) -> bool:
    """Whether every alternative names nodes, and those of none of them can all be one node."""
    for term in terms:
        named = [
            set(field.values)
            for field in term.fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not named or set.intersection(*named):
            return False
    return True


def _domains(
    pods: PodClass, hard: list[Spread], table: NodeTable
) -> list[tuple[Spread, Bools, NDArray[np.int32]]]:
    """For each constraint the nodes whose pods count, and the domains that they are in; the same
    until a node changes."""

    def compute() -> list[tuple[Spread, Bools, NDArray[np.int32]]]:
        everywhere = table.ready.copy()
        for spread in hard:
            everywhere &= table.label_codes(spread.term.key) != ABSENT
        found = []
        for spread in hard:
            taking_part = everywhere & participation(
                pods, spread.honor_affinity, spread.honor_taints, table
            )
            found.append(
                (spread, taking_part, np.unique(table.label_codes(spread.term.key)[taking_part]))
            )
        return found

    return pods.static("PodTopologySpread", table, compute)


def participation(
    pods: PodClass, honor_affinity: bool, honor_taints: bool, table: NodeTable
) -> Bools:
    """`[nodes]`: nodes whose pods count for a spread constraint, by the node's affinity and by its
    taints."""
    result = table.ready.copy()
    view = NodeView(table)
    if honor_affinity:
        affine = _node_affinity(pods, view, None)
        if affine is not None:
            result &= affine
    if honor_taints:
        result &= matching.hard_taints_mask(table, pods.tolerations)
    return result


def _counts(column: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    if len(column) >= size:
        return column[:size]
    grown = np.zeros(size, dtype=column.dtype)
    grown[: len(column)] = column
    return grown


def _pod_number(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    column = nodes.table.space.column(PODS)
    return nodes.allocatable(column) > nodes.pods()


def _cordoned(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    if any(one.tolerates(matching.UNSCHEDULABLE_TAINT) for one in pods.tolerations):
        return None
    return ~nodes.take(nodes.table.unschedulable)


def _node_affinity(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    if not pods.node_selector and pods.node_terms is None:
        return None

    def compute() -> Bools:
        table = nodes.table
        mask = np.ones(len(table), dtype=np.bool_)
        for requirement in pods.node_selector:
            mask &= requirement.mask(table)
        if pods.node_terms is not None:
            mask &= matching.any_term(pods.node_terms, table)
        return mask

    return nodes.take(pods.static("NodeAffinity", nodes.table, compute))


def _taints(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    if len(nodes.table.taint_sets) == 1:
        return None
    return nodes.take(matching.hard_taints_mask(nodes.table, pods.tolerations))


def _ports(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    if not pods.ports:
        return None
    result = np.ones(len(nodes.table), dtype=np.bool_)
    for row, used in nodes.table.ports.items():
        if any(_clash(wanted, taken) for wanted in pods.ports for taken in used):
            result[row] = False
    return nodes.take(result) & np.equal(nodes.extra, 0)


def _clash(wanted: tuple[str, str, int], taken: tuple[str, str, int]) -> bool:
    if wanted[1:] != taken[1:]:
        return False
    return wanted[0] == taken[0] or "0.0.0.0" in (wanted[0], taken[0])


def _spread_labels(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
    hard = [spread for spread in pods.spreads if spread.hard]
    if not hard:
        return None
    result = np.ones(len(nodes), dtype=np.bool_)
    for spread in hard:
        result &= nodes.take(nodes.table.label_codes(spread.term.key)) != ABSENT
    return result
