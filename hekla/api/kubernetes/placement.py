"""Where a pod may run: affinities, tolerations, spreading, and the taints that they answer."""

from __future__ import annotations

import msgspec

from hekla.api.meta import AtomicStruct, LabelSelector, Struct
from hekla.api.schema import Atomic, Int32, Int64, Required, Time


class NodeSelectorRequirement(Struct):
    key: Required[str] = ""
    operator: Required[str] = ""
    values: Atomic[list[str]] = []


class NodeSelectorTerm(AtomicStruct):
    match_expressions: Atomic[list[NodeSelectorRequirement]] = []
    match_fields: Atomic[list[NodeSelectorRequirement]] = []


class NodeSelector(AtomicStruct):
    node_selector_terms: Required[Atomic[list[NodeSelectorTerm]]] = []


class PreferredSchedulingTerm(Struct):
    weight: Required[Int32] = 0
    preference: Required[NodeSelectorTerm] = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Struct):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Atomic[list[PreferredSchedulingTerm]] = []


class PodAffinityTerm(Struct):
    label_selector: LabelSelector | None = None
    namespaces: Atomic[list[str]] = []
    topology_key: Required[str] = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: Atomic[list[str]] = []
    mismatch_label_keys: Atomic[list[str]] = []


class WeightedPodAffinityTerm(Struct):
    weight: Required[Int32] = 0
    pod_affinity_term: Required[PodAffinityTerm] = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Struct):
    required_during_scheduling_ignored_during_execution: Atomic[list[PodAffinityTerm]] = []
    preferred_during_scheduling_ignored_during_execution: Atomic[list[WeightedPodAffinityTerm]] = []


class PodAntiAffinity(Struct):
    required_during_scheduling_ignored_during_execution: Atomic[list[PodAffinityTerm]] = []
    preferred_during_scheduling_ignored_during_execution: Atomic[list[WeightedPodAffinityTerm]] = []


class Affinity(Struct):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(Struct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class TopologySpreadConstraint(Struct):
    max_skew: Required[Int32] = 0
    topology_key: Required[str] = ""
    when_unsatisfiable: Required[str] = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: Atomic[list[str]] = []


class Taint(Struct):
    key: Required[str] = ""
    value: str = ""
    effect: Required[str] = ""
    time_added: Time = ""
