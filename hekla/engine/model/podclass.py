"""Pod classes: everything scheduling can see of a pod, interned, so that it is worked out once for
ten thousand pods.

Labels stay out of a class unless the pod itself has inter-pod terms (then it may match them): two
jobs that differ in their names only are one class.  What other pods' terms select is asked of the
`LabelSet`, interned on its own. Reference: scheduler-core 2.6, 9.3; plugins-placement 1.6.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Scalar
from hekla.engine.model.matching import LabelSelector, NodeTerm, Requirement, Toleration
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.resources import (
    CPU,
    MEMORY,
    PODS,
    Amounts,
    Floats,
    Request,
    ResourceSpace,
    add,
    amounts,
    empty,
    is_extended,
    maximum,
    plus,
)
from hekla.engine.model.spread_peers import SpreadPeers, SpreadPeersIndex

T = TypeVar("T")

DEFAULT_MILLICPU = 100.0
DEFAULT_MEMORY = 200.0 * 1024 * 1024
_ENCODER = msgspec.json.Encoder(order="deterministic")
_PER_POD_LABELS = frozenset({
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
    "statefulset.kubernetes.io/pod-name",
    "batch.kubernetes.io/job-completion-index",
})  # fmt: skip
_VISIBLE_ANNOTATIONS = (
    "volcano.sh/",
    "scheduling.volcano.sh/",
    "huawei.com/vnpu-mode",
    "nvidia.com/",
    "hekla.dev/",
)
_PER_POD_ANNOTATIONS = frozenset({
    "volcano.sh/task-index", "volcano.sh/job-name", "volcano.sh/job-version", "volcano.sh/predicate-time",
    "volcano.sh/template-uid", "volcano.sh/job-retry-count", "volcano.sh/queue-name",
    "volcano.sh/gpu-index", "volcano.sh/vgpu-node", "volcano.sh/vgpu-time", "volcano.sh/vgpu-ids-new",
    "volcano.sh/devices-to-allocate", "volcano.sh/bind-phase", "volcano.sh/bind-time",
})  # fmt: skip


class Minimum(NamedTuple):
    """The minResources of a PodGroup, as written and as amounts."""

    quantities: dict[str, str]
    amounts: Amounts


class LabelSet:
    """Namespace, labels and owner of pods, interned; remembers which pod terms and whose peers select
    it."""

    __slots__ = ("counted", "labels", "namespace", "owner", "peers", "placed", "terms")

    def __init__(self, namespace: str, labels: Mapping[str, str], owner: str = "") -> None:
        self.namespace = namespace
        self.labels = labels
        self.owner = owner
        """Kind and name of the owner that says whose peers these pods are (`peers.owner_of`)."""
        self.terms: list[PodTerm] = []
        self.peers: SpreadPeers | None = None
        """Among whom these pods are spread if they say nothing of it themselves."""
        self.counted: frozenset[SpreadPeers] = frozenset()
        """All peers that these pods belong to."""
        self.placed = False
        """Whether such a pod was ever on a node."""


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Which pods a term means: labels and namespaces."""

    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None

    def matches(self, labels: LabelSet, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        if self.selector is None or not self.selector.matches(labels.labels):
            return False
        if labels.namespace in self.namespaces:
            return True
        chosen = self.namespace_selector
        return chosen is not None and chosen.matches(namespaces.get(labels.namespace, {}))


class PodTerm:
    """An inter-pod term that some pod of the cluster carries, with what it counts a node.

    - `matched[nodes]`: pods on the node that the selector matches (`live`: those that are not on
      their way out).
    - `anti[nodes]`: pods on the node that carry this term as required anti-affinity.
    - `pull[nodes]`: sum of weights of the pods on the node that carry it as a preference, negative
      for anti-affinity.
    """

    __slots__ = ("anti", "anti_total", "key", "live", "matched", "pull", "pull_any", "select")

    def __init__(self, key: str, select: PodSelector, size: int) -> None:
        self.key = key
        self.select = select
        self.matched = np.zeros(size, dtype=np.int64)
        self.live = np.zeros(size, dtype=np.int64)
        self.anti = np.zeros(size, dtype=np.int64)
        self.pull = np.zeros(size, dtype=np.float64)
        self.anti_total = 0
        self.pull_any = 0

    def grow(self, size: int) -> None:
        """Rows for new nodes."""
        for name in ("matched", "live", "anti", "pull"):
            old = getattr(self, name)
            new = np.zeros(size, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def move(self, kept: NDArray[np.intp]) -> None:
        """Rows were given up; `kept` are the old rows of the new ones."""
        if not self.size:
            return
        self.grow(max(self.size, int(kept.max(initial=0)) + 1))
        for name in ("matched", "live", "anti", "pull"):
            column = getattr(self, name)
            column[: len(kept)] = column[kept]
            column[len(kept) :] = 0

    @property
    def size(self) -> int:
        return len(self.matched)


@dataclass(frozen=True, slots=True)
class Spread:
    """One topology spread constraint."""

    term: PodTerm
    max_skew: int
    hard: bool
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    self_match: bool


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """What one container states, for devices, which are asked for container by container."""

    name: str
    limits: Amounts
    requests: Amounts
    sidecar: bool = False


@dataclass(slots=True, eq=False, repr=False)
class PodClass:
    """All pods that scheduling cannot tell apart."""

    number: int
    request: Request
    limits: Amounts = field(default_factory=dict)
    containers: tuple[ContainerAmounts, ...] = ()
    init_containers: tuple[ContainerAmounts, ...] = ()
    node_selector: tuple[Requirement, ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    node_preferences: tuple[tuple[float, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()
    images: tuple[str, ...] = ()
    without_init: int = 0
    annotations: dict[str, str] = field(default_factory=dict)
    preemption_policy: str = ""
    label_set: LabelSet | None = None
    """Set only for a pod with inter-pod terms of its own, whose labels are part of the class.
    """
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    preferences: tuple[tuple[float, PodTerm], ...] = ()
    spreads: tuple[Spread, ...] = ()
    states_spread: bool = False
    volumes: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    """Names, within the pod; with one more where a device class backs some of `extended`."""
    extended: tuple[str, ...] = ()
    """Extended resources, which a device class may back."""
    plain: bool = False
    """Nothing but room, nodes and load decides about such a pod: no inter-pod terms, volumes,
    claims or host ports."""
    minimum: Minimum | None = None
    """The minResources of a PodGroup of one such pod, once somebody has asked for them."""
    cache: dict[Hashable, tuple[int, object]] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<PodClass {self.number} {self.request.amounts}>"

    @property
    def requested(self) -> list[str]:
        """The names of what the pod asks for."""
        return [name for name, value in self.request.amounts.items() if value > 0]

    @property
    def has_terms(self) -> bool:
        return bool(self.affinity or self.anti_affinity or self.preferences or self.spreads)

    def settle(self) -> None:
        """Work out `plain`, once the rest is known or has changed."""
        self.plain = not (self.has_terms or self.volumes or self.claims or self.ports)

    def static(self, key: Hashable, nodes: NodeTable, compute: Callable[[], T]) -> T:
        """What depends on the class and the node objects alone; computed again only when a node
        object changed."""
        found = self.cache.get(key)
        if found is not None and found[0] == nodes.static_version:
            return found[1]  # type: ignore[return-value]  # what `compute` gave for this key before
        value = compute()
        self.cache[key] = (nodes.static_version, value)
        return value


class TermTable:
    """All inter-pod terms of the cluster.  Counts follow every placement, so that a filter is one
    gather by domain."""

    def __init__(self) -> None:
        self.terms: dict[tuple[str, PodSelector], PodTerm] = {}
        self.label_sets: dict[tuple[str, str, bytes], LabelSet] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.peers = SpreadPeersIndex()
        self.new: list[PodTerm] = []
        """Terms whose counts of what is already on the nodes have not been taken yet."""

    def label_set(self, namespace: str, labels: Mapping[str, str], owner: str = "") -> LabelSet:
        kept = {key: value for key, value in labels.items() if key not in _PER_POD_LABELS}
        key = (namespace, owner, _ENCODER.encode(kept))
        found = self.label_sets.get(key)
        if found is None:
            found = self.label_sets[key] = LabelSet(namespace, kept, owner)
            self.peers.met(found)
            found.terms = [
                term for term in self.terms.values() if term.select.matches(found, self.namespaces)
            ]
        return found

    def term(self, topology_key: str, select: PodSelector) -> PodTerm:
        key = (topology_key, select)
        found = self.terms.get(key)
        if found is None:
            found = self.terms[key] = PodTerm(topology_key, select, 0)
            self.new.append(found)
            for label_set in self.label_sets.values():
                if select.matches(label_set, self.namespaces):
                    label_set.terms.append(found)
        return found

    def relabel(self, namespace: str, labels: Mapping[str, str]) -> None:
        """A namespace has these labels now: terms that choose namespaces by label may mean other
        pods, and are counted anew (`new`)."""
        self.namespaces[namespace] = labels
        choosing = [
            term for term in self.terms.values() if term.select.namespace_selector is not None
        ]
        for label_set in self.label_sets.values() if choosing else ():
            if label_set.namespace != namespace:
                continue
            for term in choosing:
                means = term.select.matches(label_set, self.namespaces)
                if means == (term in label_set.terms):
                    continue
                if means:
                    label_set.terms.append(term)
                else:
                    label_set.terms.remove(term)
                if term not in self.new:
                    term.matched[:] = 0
                    term.live[:] = 0
                    self.new.append(term)

    def keep(self, label_sets: set[int], classes: Sequence[PodClass]) -> None:
        """Forget label sets and terms that no pod carries any more."""
        own = {id(pods.label_set) for pods in classes}
        used = {id(term) for pods in classes for term in _terms_of(pods)}
        self.label_sets = {
            key: one
            for key, one in self.label_sets.items()
            if id(one) in label_sets or id(one) in own
        }
        self.terms = {key: term for key, term in self.terms.items() if id(term) in used}
        for label_set in self.label_sets.values():
            label_set.terms = [term for term in label_set.terms if id(term) in used]
        self.peers.keep(self.label_sets.values())

    def appear(self, pods: PodClass, labels: LabelSet, row: int, live: bool, by: int) -> None:
        """A pod comes to a node (`by` 1) or leaves it (`by` -1)."""
        for term in labels.terms:
            if row >= term.size:
                term.grow(max(64, 2 * row + 1))
            term.matched[row] += by
            if live:
                term.live[row] += by
        if live:
            for peers in labels.counted:
                peers.moved(row, by)
        for term in pods.anti_affinity:
            if row >= term.size:
                term.grow(max(64, 2 * row + 1))
            term.anti[row] += by
            term.anti_total += by
        for weight, term in pods.preferences:
            if row >= term.size:
                term.grow(max(64, 2 * row + 1))
            term.pull[row] += by * weight
            term.pull_any += by


class PodClasses:
    """Interns pods into classes."""

    def __init__(self, space: ResourceSpace, terms: TermTable) -> None:
        self.space = space
        self.terms = terms
        self.by_key: dict[bytes, PodClass] = {}

    def intern(
        self, namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: Tree
    ) -> PodClass:
        """The class of a pod, given as its JSON tree.  Raises ValueError when the pod cannot be
        understood."""
        affinity = spec.get("affinity") or {}
        inter_pod = (
            affinity.get("podAffinity"),
            affinity.get("podAntiAffinity"),
            spec.get("topologySpreadConstraints"),
        )
        own_labels = any(inter_pod)
        visible = {
            key: value
            for key, value in annotations.items()
            if key.startswith(_VISIBLE_ANNOTATIONS) and key not in _PER_POD_ANNOTATIONS
        }
        kept = (
            {key: value for key, value in labels.items() if key not in _PER_POD_LABELS}
            if own_labels
            else None
        )
        key = _ENCODER.encode(
            (
                _containers(spec.get("containers")),
                _containers(spec.get("initContainers")),
                spec.get("overhead"),
                spec.get("resources"),
                spec.get("nodeSelector"),
                affinity,
                spec.get("tolerations"),
                spec.get("topologySpreadConstraints"),
                _claims(spec.get("volumes")),
                spec.get("resourceClaims"),
                spec.get("preemptionPolicy"),
                kept,
                visible,
                _image_volumes(spec.get("volumes")),
                namespace
                if own_labels or spec.get("resourceClaims") or _claims(spec.get("volumes"))
                else "",
            )
        )
        found = self.by_key.get(key)
        if found is None:
            found = self._compile(namespace, labels, visible, spec)
            self.by_key[key] = found
        return found

    def _compile(
        self, namespace: str, labels: Mapping[str, str], annotations: dict[str, str], spec: Tree
    ) -> PodClass:
        pods = PodClass(len(self.by_key), Request(self.space, *_requests(spec)))
        pods.annotations = annotations
        pods.limits = _limits(spec)
        pods.containers = tuple(map(_container_amounts, spec.get("containers") or ()))
        pods.init_containers = tuple(map(_container_amounts, spec.get("initContainers") or ()))
        selector = spec.get("nodeSelector") or {}
        pods.node_selector = tuple(
            Requirement(key, "In", (str(value),)) for key, value in selector.items()
        )
        affinity = spec.get("affinity") or {}
        node_affinity = affinity.get("nodeAffinity") or {}
        required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required is not None:
            pods.node_terms = matching.node_terms(required.get("nodeSelectorTerms"))
        pods.node_preferences = tuple(
            (float(one.get("weight", 0)), term)
            for one in node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            for term in matching.node_terms([one.get("preference") or {}])
            if one.get("weight", 0) and (term.expressions or term.fields)
        )
        pods.tolerations = matching.tolerations(spec.get("tolerations"))
        containers = spec.get("containers") or ()
        inits = spec.get("initContainers") or ()
        pods.ports = _host_ports(
            [*containers, *(one for one in inits if one.get("restartPolicy") == "Always")]
        )
        pods.images = tuple(
            image_name(one.get("image", "")) for one in (*inits, *containers) if one.get("image")
        )
        pods.images += tuple(map(image_name, _image_volumes(spec.get("volumes"))))
        pods.without_init = len(containers) + len(inits)
        pods.preemption_policy = spec.get("preemptionPolicy", "")
        pods.volumes = tuple(_claims(spec.get("volumes")))
        pods.claims = tuple(
            str(claim.get("name", "")) for claim in spec.get("resourceClaims") or ()
        )
        pods.extended = tuple(
            name for name, value in pods.request.amounts.items() if value > 0 and is_extended(name)
        )
        self._compile_terms(
            pods, namespace, labels, affinity, spec.get("topologySpreadConstraints") or ()
        )
        pods.settle()
        return pods

    def _compile_terms(
        self,
        pods: PodClass,
        namespace: str,
        labels: Mapping[str, str],
        affinity: Tree,
        spreads: Sequence[Tree],
    ) -> None:
        toward = affinity.get("podAffinity") or {}
        away = affinity.get("podAntiAffinity") or {}
        if not toward and not away and not spreads:
            return
        pods.label_set = self.terms.label_set(namespace, labels)
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        pods.affinity = tuple(self._term(namespace, one) for one in toward.get(required) or ())
        pods.anti_affinity = tuple(self._term(namespace, one) for one in away.get(required) or ())
        pods.preferences = tuple(
            (
                sign * float(one.get("weight", 0)),
                self._term(namespace, one.get("podAffinityTerm") or {}),
            )
            for sign, side in ((1.0, toward), (-1.0, away))
            for one in side.get(preferred) or ()
        )
        pods.states_spread = bool(spreads)
        pods.spreads = tuple(self._spread(namespace, labels, one) for one in spreads)

    def _term(self, namespace: str, tree: Tree) -> PodTerm:
        named = tree.get("namespaces") or ()
        chosen = tree.get("namespaceSelector")
        namespaces = frozenset(named if named or chosen is not None else (namespace,))
        selector = matching.label_selector(tree.get("labelSelector"))
        return self.terms.term(
            tree.get("topologyKey", ""),
            PodSelector(selector, namespaces, matching.label_selector(chosen)),
        )

    def _spread(self, namespace: str, labels: Mapping[str, str], tree: Tree) -> Spread:
        selector = matching.label_selector(tree.get("labelSelector"))
        if selector is not None and tree.get("matchLabelKeys"):
            extra = tuple(
                Requirement(key, "In", (labels[key],))
                for key in tree["matchLabelKeys"]
                if key in labels
            )
            selector = LabelSelector((*selector.requirements, *extra))
        if selector is not None and not selector.requirements:
            selector = None
        select = PodSelector(selector, frozenset((namespace,)), None)
        return Spread(
            term=self.terms.term(tree.get("topologyKey", ""), select),
            max_skew=int(tree.get("maxSkew", 1)),
            hard=tree.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule",
            min_domains=int(tree.get("minDomains") or 1),
            honor_affinity=tree.get("nodeAffinityPolicy", "Honor") == "Honor",
            honor_taints=tree.get("nodeTaintsPolicy", "Ignore") == "Honor",
            self_match=selector is not None and selector.matches(labels),
        )


def _terms_of(pods: PodClass) -> list[PodTerm]:
    return [
        *pods.affinity,
        *pods.anti_affinity,
        *(term for _, term in pods.preferences),
        *(spread.term for spread in pods.spreads),
    ]


def image_name(name: str) -> str:
    """An image's name with a tag, as nodes report it."""
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


def _containers(trees: Sequence[Tree] | None) -> list[tuple[object, ...]]:
    return [
        (
            tree.get("resources"),
            tree.get("restartPolicy"),
            tree.get("image"),
            [port for port in tree.get("ports") or () if port.get("hostPort")],
        )
        for tree in trees or ()
    ]


def _claims(volumes: Sequence[Tree] | None) -> list[str]:
    result = []
    for volume in volumes or ():
        claim = volume.get("persistentVolumeClaim")
        if claim is not None:
            result.append(str(claim.get("claimName", "")))
        elif volume.get("ephemeral") is not None:
            result.append(f"ephemeral:{volume.get('name', '')}")
    return result


def _image_volumes(volumes: Sequence[Tree] | None) -> list[str]:
    """Images that are mounted, not run."""
    found = [
        volume["image"].get("reference", "") for volume in volumes or () if volume.get("image")
    ]
    return [reference for reference in found if reference]


def _host_ports(containers: Sequence[Tree]) -> tuple[tuple[str, str, int], ...]:
    found = {
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))
        for container in containers
        for port in container.get("ports") or ()
        if port.get("hostPort", 0) > 0
    }
    return tuple(sorted(found))


def _requests(spec: Tree) -> tuple[Amounts, tuple[float, float]]:
    """What a pod asks for in all, and its cpu and memory as load scores count them.

    Reference: scheduler-core 2.6.1, plugins-placement 2.2.
    """
    total = _at_one_time(spec, _requests_of)
    nonzero = _at_one_time(spec, _at_least_default)
    stated = _stated_for_all(spec, "requests")
    total.update(stated)
    nonzero.update({name: value for name, value in stated.items() if name in nonzero})
    overhead = amounts(spec.get("overhead"))
    add(total, overhead)
    add(nonzero, overhead)
    total[PODS] = total.get(PODS, 0.0) + 1.0
    return total, (nonzero[CPU], nonzero[MEMORY])


def _at_one_time(spec: Tree, of: Callable[[Tree], Amounts]) -> Amounts:
    """The most that the containers of a pod come to at one time, each by what `of` says of it."""
    total = empty()
    for container in spec.get("containers") or ():
        add(total, of(container))
    sidecars, peak = empty(), empty()
    for container in spec.get("initContainers") or ():
        own = of(container)
        if container.get("restartPolicy") == "Always":
            add(total, own)
            add(sidecars, own)
            peak = maximum(peak, sidecars)
        else:
            peak = maximum(peak, plus(own, sidecars))
    return maximum(total, peak)


def _stated_for_all(spec: Tree, which: str) -> Amounts:
    """What a pod states for all its containers together."""
    stated = (spec.get("resources") or {}).get(which) or {}
    return {
        name: value
        for name, value in amounts(stated).items()
        if name in stated and (name in (CPU, MEMORY) or name.startswith("hugepages-"))
    }


def _container_amounts(container: Tree) -> ContainerAmounts:
    stated = container.get("resources") or {}
    name, sidecar = str(container.get("name", "")), container.get("restartPolicy") == "Always"
    return ContainerAmounts(
        name, amounts(stated.get("limits")), amounts(stated.get("requests")), sidecar
    )


def _limits(spec: Tree) -> Amounts:
    """What a pod may use in all; overhead counts only where something limits it.  Reference:
    scheduler-core 2.6.2."""
    total = _at_one_time(spec, _limits_of)
    total.update(_stated_for_all(spec, "limits"))
    add(
        total,
        {name: value for name, value in amounts(spec.get("overhead")).items() if total.get(name)},
    )
    return total


def _requests_of(container: Tree) -> Amounts:
    return amounts((container.get("resources") or {}).get("requests"))


def _limits_of(container: Tree) -> Amounts:
    return amounts((container.get("resources") or {}).get("limits"))


def _at_least_default(container: Tree) -> Amounts:
    stated = (container.get("resources") or {}).get("requests") or {}
    asked = amounts(stated)
    return {
        CPU: asked[CPU] if CPU in stated else DEFAULT_MILLICPU,
        MEMORY: asked[MEMORY] if MEMORY in stated else DEFAULT_MEMORY,
    }


def domain_sums(codes: NDArray[np.int32], counts: NDArray[Scalar]) -> Floats:
    """`[domains]`: the counts of nodes added up by their domain; nodes without one are left out."""
    inside = codes >= 0
    size = int(codes.max(initial=-1)) + 1
    counted = np.bincount(codes[inside], weights=counts[: len(codes)][inside], minlength=size)
    return counted.astype(np.float64, copy=False)
