"""The arguments of each plugin as a policy writes them, and what is wrong with a set of them.

Reference: descheduler 5, 9.1 and 11.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping

import msgspec

from hekla.api import meta
from hekla.api.selectors import SelectorError, of_object, parse_labels
from hekla.api.text.durations import seconds

CRITICAL = 2_000_000_000
"""The priority of what the system cannot do without."""
NATIVE = ("cpu", "memory", "pods")
PROMETHEUS, ADAPTOR, METRICS_SERVER = "prometheus", "prometheus_adaptor", "metrics_server"
KUBERNETES_METRICS = "KubernetesMetrics"
SOURCES = (PROMETHEUS, ADAPTOR, METRICS_SERVER)
ENGINE = "engine"
"""The third value of DefaultEvictor's nodeFit."""
SKIP, WHOLE_GROUP = GANG_POLICIES = ("skip", "wholeGroup")
"""What becomes of a gang that one eviction would take below its minimum."""
STATES = ("ContainerCreating", "Pending", "PodInitializing", "Running")
REQUIRED_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"

Problems = Iterator[str]


class Arguments(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """Base of all arguments.  `problems` yields what decoding cannot see."""

    def problems(self) -> Problems:
        yield from ()


class Namespaces(msgspec.Struct, rename="camel", frozen=True):
    """Which namespaces: those, or all but those."""

    include: list[str] = []
    exclude: list[str] = []

    def admits(self, namespace: str) -> bool:
        if self.include:
            return namespace in self.include
        return namespace not in self.exclude

    def problems(self) -> Problems:
        if self.include and self.exclude:
            yield "only one of Include/Exclude namespaces can be set"


class Excluded(msgspec.Struct, rename="camel", frozen=True):
    """Namespaces whose pods are never evicted."""

    exclude: list[str] = []
    include: list[str] = []

    def problems(self) -> Problems:
        if self.include:
            yield "only Exclude namespaces can be set, inclusion is not supported"


class PriorityThreshold(msgspec.Struct, rename="camel", frozen=True):
    value: int | None = None
    name: str = ""


class EvictorArguments(Arguments, frozen=True):
    """DefaultEvictor's, which Volcano's LoadAware takes too, in vain."""

    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    evict_failed_bare_pods: bool = False
    label_selector: meta.LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None


class DefaultEvictorArguments(EvictorArguments, frozen=True):
    node_fit: bool | str = False
    node_selector: str = ""
    min_pod_age: str = ""
    gang_policy: str = SKIP
    longest_min_runtime: str = "24h"
    """The most that a job may say of itself with the annotation hekla.io/min-runtime."""

    @property
    def asks_scheduler(self) -> bool:
        """Whether the scheduler's engine says where a pod would land."""
        return self.node_fit == ENGINE

    def problems(self) -> Problems:
        if isinstance(self.node_fit, str) and not self.asks_scheduler:
            yield f"nodeFit {self.node_fit!r}: expected true, false or {ENGINE}"
        yield from _selector_text("nodeSelector", self.node_selector)
        yield from _selector(self.label_selector)
        threshold = self.priority_threshold
        if threshold is not None:
            if threshold.value is not None and threshold.name:
                yield (
                    "priority threshold misconfigured, only one of priorityThreshold fields can be set, "
                    f"got value {threshold.value} and name {threshold.name!r}"
                )
            if threshold.value is not None and threshold.value > CRITICAL:
                yield f"priorityThreshold.value {threshold.value} is above {CRITICAL}"
        yield from duration("minPodAge", self.min_pod_age)
        yield from duration("longestMinRuntime", self.longest_min_runtime, positive=True)
        if self.gang_policy not in GANG_POLICIES:
            yield f"gangPolicy {self.gang_policy!r}: {nearest(self.gang_policy, GANG_POLICIES)}"


class Queries(msgspec.Struct, rename={"node_cpu": "nodeCPU", "node_memory": "nodeMemory", "pod_cpu": "podCPU", "pod_memory": "podMemory"},
              frozen=True):  # fmt: skip
    """Queries in place of the built-in ones.  Nodes are told apart by the instance label, pods by
    `namespace` and `pod`."""

    node_cpu: str = ""
    node_memory: str = ""
    pod_cpu: str = ""
    pod_memory: str = ""


class Tls(msgspec.Struct, rename="camel", frozen=True):
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    insecure_skip_verify: bool = False


class Auth(msgspec.Struct, rename="camel", frozen=True):
    bearer_token_file: str = ""


class Metrics(msgspec.Struct, rename="camel", frozen=True):
    """Where usage is read.  Reference: descheduler 6."""

    type: str | None = None
    address: str | None = None
    rate_window: str = "2m"
    step: str = "30s"
    rate_function: str = "rate"
    instance_label: str = "instance"
    timeout: str = "10s"
    expiration: str = "3m"
    queries: Queries = Queries()
    tls: Tls = Tls()
    auth: Auth = Auth()

    @property
    def source(self) -> str:
        """The type as the sources are called here; capitals do not matter."""
        return (self.type or "").lower()

    def problems(self) -> Problems:
        if not self.type:
            yield f"metrics.type is missing: it is one of {', '.join(SOURCES)}"
        elif self.source not in SOURCES:
            yield f"metrics.type {self.type!r}: {nearest(self.source, SOURCES)}"
        elif self.source == PROMETHEUS and not self.address:
            yield "metrics.address is missing: the URL of Prometheus, as in http://prometheus.monitoring:9090"
        if self.address and not self.address.startswith(("http://", "https://")):
            yield f"metrics.address {self.address!r} begins with neither http:// nor https://"
        if self.rate_function not in ("rate", "irate"):
            yield f"metrics.rateFunction {self.rate_function!r}: {nearest(self.rate_function, ('rate', 'irate'))}"
        for name in ("rate_window", "step", "timeout", "expiration"):
            yield from duration(f"metrics.{_camel(name)}", getattr(self, name), positive=True)


class AnomalyCondition(msgspec.Struct, rename="camel", frozen=True):
    """How many measurements in a row have to find a node over its target before it gives pods up, and how many
    not, before it counts anew."""

    consecutive_abnormalities: int = 1
    consecutive_normalities: int = 1

    def problems(self) -> Problems:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                yield f"anomalyCondition.{_camel(name)} {getattr(self, name)} is below 1"


class Band(Arguments, frozen=True):
    """Which nodes take pods, and which give them up."""

    thresholds: dict[str, float] = {}
    target_thresholds: dict[str, float] = {}
    use_deviation_thresholds: bool = False
    anomaly_condition: AnomalyCondition = AnomalyCondition()

    def problems(self) -> Problems:
        yield from _thresholds(
            self.thresholds, self.target_thresholds, self.use_deviation_thresholds
        )
        yield from self.anomaly_condition.problems()

    def unmeasured(self) -> Problems:
        """The resources whose use nobody tells."""
        for name in sorted({*self.thresholds, *self.target_thresholds}.difference(NATIVE)):
            yield f"thresholds: nobody measures {name}: {', '.join(NATIVE)}"


class NodePool(Band, frozen=True):
    """Nodes that are evened out among themselves."""

    name: str = ""
    node_selector: str = ""

    def problems(self) -> Problems:
        yield from _selector_text("nodeSelector", self.node_selector)
        if not self.node_selector:
            yield "nodeSelector is missing: the labels of the pool's nodes"
        yield from Band.problems(self)
        yield from self.unmeasured()


class LoadAwareArguments(EvictorArguments, frozen=True):
    thresholds: dict[str, float] = {}
    target_thresholds: dict[str, float] = {}
    use_deviation_thresholds: bool = False
    anomaly_condition: AnomalyCondition = AnomalyCondition()
    node_pools: list[NodePool] = []
    number_of_nodes: int = 0
    evictable_namespaces: Excluded | None = None
    metrics: Metrics = Metrics()
    duration: str = "2m"
    node_fit: bool = False
    node_selector: str = ""
    order: str = "priority"

    def pools(self) -> list[NodePool]:
        """The pools, the one of all other nodes last, if it has thresholds."""
        if self.node_pools and not self.thresholds and not self.target_thresholds:
            return self.node_pools
        rest = NodePool(
            self.thresholds,
            self.target_thresholds,
            self.use_deviation_thresholds,
            self.anomaly_condition,
        )
        return [*self.node_pools, rest]

    def problems(self) -> Problems:
        seen = set()
        for position, pool in enumerate(self.node_pools):
            if not pool.name:
                yield f"nodePools[{position}]: name is missing"
            elif pool.name in seen:
                yield f"nodePools: two have the name {pool.name!r}"
            seen.add(pool.name)
            yield from (f"nodePools[{position}] {pool.name}: {one}" for one in pool.problems())
        for rest in self.pools()[len(self.node_pools) :]:
            yield from Band.problems(rest)
            yield from rest.unmeasured()
        yield from _number_of_nodes(self.number_of_nodes)
        if self.evictable_namespaces is not None:
            yield from self.evictable_namespaces.problems()
        yield from self.metrics.problems()
        yield from duration("duration", self.duration, positive=True)
        yield from _selector_text("nodeSelector", self.node_selector)
        if self.order not in ("priority", "usage"):
            yield f"order {self.order!r}: {nearest(self.order, ('priority', 'usage'))}"

    def without_effect(self) -> list[str]:
        """The settings that are the DefaultEvictor's business, and given here in vain."""
        standard = LoadAwareArguments()
        return [
            _camel(one)
            for one in EvictorArguments.__struct_fields__
            if getattr(self, one) != getattr(standard, one)
        ]


class MetricsUtilization(msgspec.Struct, rename="camel", frozen=True):
    """Usage in place of requests.  `metricsServer: true` is the older way to write the source
    KubernetesMetrics."""

    source: str = ""
    metrics_server: bool = False

    def problems(self) -> Problems:
        if self.source not in ("", KUBERNETES_METRICS):
            yield f"metricsUtilization.source {self.source!r}: {nearest(self.source, (KUBERNETES_METRICS,))}"
        if not self.source and not self.metrics_server:
            yield f"metricsUtilization.source is missing: {KUBERNETES_METRICS}"


class LowNodeUtilizationArguments(Band, frozen=True):
    number_of_nodes: int = 0
    evictable_namespaces: Excluded | None = None
    metrics_utilization: MetricsUtilization | None = None

    def problems(self) -> Problems:
        yield from Band.problems(self)
        yield from _number_of_nodes(self.number_of_nodes)
        if self.evictable_namespaces is not None:
            yield from self.evictable_namespaces.problems()
        if self.metrics_utilization is not None:
            yield from self.metrics_utilization.problems()
            yield from self.unmeasured()


class HighNodeUtilizationArguments(Arguments, frozen=True):
    thresholds: dict[str, float] = {}
    number_of_nodes: int = 0
    evictable_namespaces: Excluded | None = None

    def problems(self) -> Problems:
        yield from _percents("thresholds", self.thresholds)
        yield from _number_of_nodes(self.number_of_nodes)
        if self.evictable_namespaces is not None:
            yield from self.evictable_namespaces.problems()


class PodSelector(msgspec.Struct, rename="camel", frozen=True):
    name: str = ""
    selector: meta.LabelSelector | None = None


class KoordinatorArguments(Arguments, frozen=True):
    """What FragmentationAware and ScaleDownBinPack share; their policies may name the kind of the arguments."""

    api_version: str = ""
    kind: str = ""
    paused: bool = False
    node_selector: meta.LabelSelector | None = None
    evictable_namespaces: Namespaces | None = None
    pod_selectors: list[PodSelector] = []
    resources: list[str] = msgspec.field(default_factory=lambda: ["cpu", "memory"])

    def problems(self) -> Problems:
        yield from _selector(self.node_selector)
        for one in self.pod_selectors:
            yield from _selector(one.selector)
        if self.evictable_namespaces is not None:
            yield from self.evictable_namespaces.problems()
        if not self.resources:
            yield "resources is empty: cpu, memory or extended resources"
        for name in sorted({one for one in self.resources if self.resources.count(one) > 1}):
            yield f"resources: {name} stands twice"


class FragmentationAwareArguments(KoordinatorArguments, frozen=True):
    dry_run: bool = False
    node_fit: bool = True
    imbalance_threshold: float = 0.15
    min_improvement_threshold: float = 0.02

    def problems(self) -> Problems:
        yield from KoordinatorArguments.problems(self)
        for name in ("imbalance_threshold", "min_improvement_threshold"):
            if not 0 <= getattr(self, name) <= 1:
                yield f"{_camel(name)} {getattr(self, name):g} is not within 0 and 1"


CALCULATE_ONLY, EVICT_DIRECTLY = STRATEGIES = ("CalculateOnly", "EvictDirectly")


class ScaleDownBinPackArguments(KoordinatorArguments, frozen=True):
    strategy: str = CALCULATE_ONLY
    max_pods_to_evict: int | None = None
    resource_weights: dict[str, float] = {}

    def weight(self, resource: str) -> float:
        return self.resource_weights.get(resource, 1.0)

    def problems(self) -> Problems:
        yield from KoordinatorArguments.problems(self)
        if self.strategy not in STRATEGIES:
            yield f"strategy {self.strategy!r}: {nearest(self.strategy, STRATEGIES)}"
        if self.strategy == EVICT_DIRECTLY and self.max_pods_to_evict is None:
            yield f"maxPodsToEvict is missing: with {EVICT_DIRECTLY}, how many pods a cycle may evict"
        if self.max_pods_to_evict is not None and self.max_pods_to_evict < 0:
            yield f"maxPodsToEvict {self.max_pods_to_evict} is below 0"
        for name, weight in self.resource_weights.items():
            if not 0 < weight < float("inf"):
                yield f"resourceWeights: {name} is {weight:g}, a weight is above 0"


class OfPods(Arguments, frozen=True):
    """What most plugins take: which pods they look at."""

    namespaces: Namespaces | None = None
    label_selector: meta.LabelSelector | None = None

    def problems(self) -> Problems:
        if self.namespaces is not None:
            yield from self.namespaces.problems()
        yield from _selector(self.label_selector)


class RemoveDuplicatesArguments(Arguments, frozen=True):
    namespaces: Namespaces | None = None
    exclude_owner_kinds: list[str] = []

    def problems(self) -> Problems:
        if self.namespaces is not None:
            yield from self.namespaces.problems()


class NodeAffinityArguments(OfPods, frozen=True):
    node_affinity_type: list[str] = []

    def problems(self) -> Problems:
        yield from OfPods.problems(self)
        if not self.node_affinity_type:
            yield "nodeAffinityType needs to be set"
        for one in self.node_affinity_type:
            if one != REQUIRED_AFFINITY:
                yield f"nodeAffinityType {one!r}: {nearest(one, (REQUIRED_AFFINITY,))}"


class NodeTaintsArguments(OfPods, frozen=True):
    include_prefer_no_schedule: bool = False
    excluded_taints: list[str] = []


class InterPodAntiAffinityArguments(OfPods, frozen=True):
    pass


class TopologySpreadArguments(OfPods, frozen=True):
    include_soft_constraints: bool = False


class TooManyRestartsArguments(OfPods, frozen=True):
    pod_restart_threshold: int = 0
    including_init_containers: bool = False

    def problems(self) -> Problems:
        yield from OfPods.problems(self)
        if self.pod_restart_threshold < 1:
            yield (
                f"invalid PodsHavingTooManyRestarts threshold: podRestartThreshold {self.pod_restart_threshold} "
                "is below 1"
            )


class PodLifeTimeArguments(OfPods, frozen=True):
    max_pod_life_time_seconds: int | None = None
    states: list[str] = []

    def problems(self) -> Problems:
        yield from OfPods.problems(self)
        if self.max_pod_life_time_seconds is None:
            yield "MaxPodLifeTimeSeconds not set"
        elif self.max_pod_life_time_seconds < 0:
            yield f"maxPodLifeTimeSeconds {self.max_pod_life_time_seconds} is below 0"
        wrong = [one for one in self.states if one not in STATES]
        if wrong:
            yield f"states must be one of [{' '.join(STATES)}], not {', '.join(wrong)}"


class FailedPodsArguments(OfPods, frozen=True):
    min_pod_lifetime_seconds: int = 3600
    exclude_owner_kinds: list[str] = []
    reasons: list[str] = []
    including_init_containers: bool = False

    def problems(self) -> Problems:
        yield from OfPods.problems(self)
        if self.min_pod_lifetime_seconds < 0:
            yield f"minPodLifetimeSeconds {self.min_pod_lifetime_seconds} is below 0"


def nearest(word: str, known: tuple[str, ...] | list[str]) -> str:
    """What would be right in a word's place."""
    near = difflib.get_close_matches(word, known, 1, 0.6)
    return f"did you mean {near[0]!r}?" if near else f"expected {', '.join(known)}"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def duration(name: str, text: str, positive: bool = False) -> Problems:
    """What is wrong with a duration."""
    if not text and not positive:
        return
    try:
        if seconds(text) <= 0 and positive:
            yield f"{name} {text!r} is not above 0"
    except ValueError:
        yield f"{name} {text!r} is no duration, as 90s, 2m or 1h30m are"


def _selector_text(name: str, text: str) -> Problems:
    try:
        parse_labels(text)
    except SelectorError as error:
        yield f"{name} {text!r}: {error}"


def _selector(selector: meta.LabelSelector | None) -> Problems:
    try:
        if selector is not None:
            of_object(selector)
    except SelectorError as error:
        yield f"failed to get label selectors from strategy's params: {error}"


def _number_of_nodes(number: int) -> Problems:
    if number < 0:
        yield f"numberOfNodes {number} is below 0"


def _percents(name: str, thresholds: Mapping[str, float]) -> Problems:
    if not thresholds:
        yield f"{name} config is not valid: no resource threshold is configured"
    for resource, percent in thresholds.items():
        if not 0 <= percent <= 100:
            yield f"{name} config is not valid: {resource} threshold not in [0, 100] range, it is {percent:g}"


def _thresholds(low: Mapping[str, float], high: Mapping[str, float], deviation: bool) -> Problems:
    """Reference: descheduler 5.1."""
    wrong = [*_percents("thresholds", low), *_percents("targetThresholds", high)]
    yield from wrong
    if wrong:
        return
    if low.keys() != high.keys():
        odd = ", ".join(sorted(low.keys() ^ high.keys()))
        yield f"thresholds and targetThresholds configured different resources: {odd} is in one of them alone"
        return
    for resource, percent in low.items():
        if percent > high[resource] and not deviation:
            yield f"thresholds' {resource} percentage is greater than targetThresholds': {percent:g} > {high[resource]:g}"
