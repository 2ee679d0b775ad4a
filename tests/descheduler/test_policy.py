"""Policies: what is read, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hekla.descheduler.policy.arguments import (
    FailedPodsArguments,
    LoadAwareArguments,
    LowNodeUtilizationArguments,
    PodLifeTimeArguments,
)
from hekla.descheduler.policy.policy import Policy, PolicyError
from hekla.descheduler.policy.reader import read, read_file

FULL = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: "pool in (batch, gpu)"
maxNoOfPodsToEvictPerNode: 5
maxNoOfPodsToEvictPerNamespace: 20
maxNoOfPodsToEvictTotal: 50
metricsProviders: [{source: KubernetesMetrics}]
profiles:
- name: balance-hot-nodes
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: true, ignorePvcPods: true, priorityThreshold: {value: 50000}}
  - name: LoadAware
    args:
      metrics: {type: Prometheus, address: "http://prometheus.monitoring:9090"}
      thresholds: {cpu: 20, memory: 20}
      targetThresholds: {cpu: 80, memory: 80}
      numberOfNodes: 1
      evictableNamespaces: {exclude: [kube-system, monitoring]}
  plugins:
    balance: {enabled: [LoadAware]}
    preevictionfilter: {enabled: [LoadAware]}
- name: hygiene
  pluginConfig:
  - {name: RemoveFailedPods}
  - name: PodLifeTime
    args: {maxPodLifeTimeSeconds: 604800, states: [Pending]}
  plugins:
    deschedule: {enabled: [PodLifeTime, RemoveFailedPods]}
"""


@pytest.mark.scenario("descheduler", "Z")
def test_a_full_policy() -> None:
    policy = read(FULL)
    hot, hygiene = policy.profiles
    assert (policy.most_per_node, policy.most_per_namespace, policy.most) == (5, 20, 50)
    assert policy.nodes.matches({"pool": "gpu"}) and not policy.nodes.matches({})
    assert hot.evictor.node_fit and hot.balance == ("LoadAware",)
    load_aware = hot.load_aware()
    assert load_aware is not None and load_aware.metrics.source == "prometheus"
    assert hygiene.deschedule == ("PodLifeTime", "RemoveFailedPods")  # the order of `enabled`
    assert hygiene.arguments["RemoveFailedPods"] == FailedPodsArguments(
        min_pod_lifetime_seconds=3600
    )


@pytest.mark.scenario("descheduler", "D")
@pytest.mark.scenario("descheduler", "Z")
def test_defaults() -> None:
    standard = LoadAwareArguments()
    assert (standard.duration, standard.number_of_nodes, standard.node_fit) == ("2m", 0, False)
    assert standard.thresholds == {}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("nodeFit", "nodeFits", "in profile balance-hot-nodes: DefaultEvictor: nodeFits: there is no such key; did you mean 'nodeFit'?"),
        ("maxNoOfPodsToEvictTotal", "maxNoOfPodsToEvict", "did you mean 'maxNoOfPodsToEvictTotal'?"),
        ("source: KubernetesMetrics", "source: KubernetesMetric", "source 'KubernetesMetric': did you mean 'KubernetesMetrics'?"),
        ("numberOfNodes: 1", "numberOfNodes: many", "LoadAware: numberOfNodes: expected `int`, got `str`"),
        ("type: Prometheus, ", "", "LoadAware: metrics.type is missing: it is one of prometheus, prometheus_adaptor, metrics_server"),
        ("type: Prometheus", "type: promethus", "metrics.type 'promethus': did you mean 'prometheus'?"),
        (', address: "http://prometheus.monitoring:9090"', "", "metrics.address is missing"),
        ("numberOfNodes: 1", "duration: soon", "duration 'soon' is no duration"),
        ("balance: {enabled: [LoadAware]}", "balance: {enabled: [LoadAwear]}", "[LoadAwear]; did you mean 'LoadAware'?"),
        ("[PodLifeTime, RemoveFailedPods]", "[LoadAware]", "configures deschedule extension point of non-existing plugins: [LoadAware]"),
        ("{name: RemoveFailedPods}", "{name: RemoveFailed}", "in pluginConfig not registered; did you mean 'RemoveFailedPods'?"),
        ("- {name: RemoveFailedPods}", "", 'unable to find "RemoveFailedPods" plugin config'),
        ("name: hygiene", "name: balance-hot-nodes", "profiles: two have the name 'balance-hot-nodes'"),
        ("value: 50000", "value: 2000000001", "priorityThreshold.value 2000000001 is above 2000000000"),
        ("value: 50000", "value: 5, name: high", "only one of priorityThreshold fields can be set"),
        ("exclude: [kube-system, monitoring]", "include: [a]", "only Exclude namespaces can be set, inclusion is not supported"),
        ("pool in (batch, gpu)", "pool in", "nodeSelector 'pool in': unable to parse requirement"),
        ("maxPodLifeTimeSeconds: 604800, ", "", "PodLifeTime: MaxPodLifeTimeSeconds not set"),
        ("[Pending]", "[Done]", "states must be one of [ContainerCreating Pending PodInitializing Running], not Done"),
        ("descheduler/v1alpha2", "descheduler/v1", "apiVersion 'descheduler/v1': did you mean 'descheduler/v1alpha2'?"),
    ],
)  # fmt: skip
def test_what_a_wrong_policy_is_told(before: str, after: str, message: str) -> None:
    assert before in FULL
    with pytest.raises(PolicyError) as error:
        read(FULL.replace(before, after))
    assert message in str(error.value)


@pytest.mark.scenario("descheduler", "C")
@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ("cpu: 20, memory: 120", "cpu: 80, memory: 80", "thresholds config is not valid: memory threshold not in [0, 100] range"),
        ("cpu: 20, memory: 20", "cpu: 80, memory: 80, pods: 80", "thresholds and targetThresholds configured different resources"),
        ("cpu: 20, memory: 20", "cpu: 80, pods: 80", "configured different resources"),
        ("cpu: 90, memory: 20", "cpu: 80, memory: 80", "thresholds' cpu percentage is greater than targetThresholds'"),
        ("cpu: 20, example.com/foo: 20", "cpu: 80", "configured different resources"),
        ("cpu: 20", "cpu: 80, example.com/foo: 20", "configured different resources"),
        ("foo: 20", "example.com/bar: 20", "configured different resources"),
        ("example.com/foo: 90", "example.com/foo: 20", "thresholds' example.com/foo percentage is greater than targetThresholds'"),
        ("cpu: 20, example.com/foo: 20", "cpu: 80, example.com/foo: 80", "nobody measures example.com/foo"),
        ("", "cpu: 80", "thresholds config is not valid: no resource threshold is configured"),
    ],
)  # fmt: skip
def test_thresholds(low: str, high: str, message: str) -> None:
    text = FULL.replace("{cpu: 20, memory: 20}", f"{{{low}}}").replace(
        "{cpu: 80, memory: 80}", f"{{{high}}}"
    )
    with pytest.raises(PolicyError) as error:
        read(text)
    assert message in str(error.value)


@pytest.mark.scenario("descheduler", "C")
def test_deviations_may_cross() -> None:
    crossed = FULL.replace("{cpu: 20, memory: 20}", "{cpu: 90, memory: 20}")
    read(crossed.replace("numberOfNodes: 1", "useDeviationThresholds: true"))


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(PolicyError) as error:
        read(FULL.replace("cpu: 20", "cpu: 200").replace("maxPodLifeTimeSeconds: 604800, ", ""))
    assert len(error.value.problems) == 2
    assert str(error.value).startswith("[in profile balance-hot-nodes: ")


def test_settings_of_the_evictor_that_load_aware_does_not_heed() -> None:
    assert LoadAwareArguments(ignore_pvc_pods=True).without_effect() == ["ignorePvcPods"]


def test_files(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="deschedulerPolicy is nil"):
        read_file("")
    with pytest.raises(PolicyError, match="No such file"):
        read_file(str(tmp_path / "none.yaml"))
    path = tmp_path / "policy.yaml"
    path.write_text("kind: [")
    with pytest.raises(PolicyError, match=r"policy.yaml: not YAML"):
        read_file(str(path))


FORMER = """
apiVersion: descheduler/v1alpha1
kind: DeschedulerPolicy
evictLocalStoragePods: true
maxNoOfPodsToEvictPerNode: 3
strategies:
  LowNodeUtilization:
    enabled: true
    params:
      nodeFit: true
      thresholdPriority: 100
      nodeResourceUtilizationThresholds:
        thresholds: {cpu: 20}
        targetThresholds: {cpu: 50}
        numberOfNodes: 2
  PodLifeTime:
    enabled: true
    params:
      nodeFit: true
      podLifeTime: {maxPodLifeTimeSeconds: 60, podStatusPhases: [Pending]}
      namespaces: {exclude: [kube-system]}
  RemoveDuplicates: {enabled: false}
"""


def former(**changes: str) -> Policy:
    text = FORMER
    for before, after in changes.items():
        text = text.replace(before, after)
    return read(text)


def test_the_former_format() -> None:
    policy = former()
    low, life = policy.profiles
    assert policy.most_per_node == 3
    assert [one.name for one in policy.profiles] == [
        "strategy-LowNodeUtilization-profile",
        "strategy-PodLifeTime-profile",
    ]
    assert low.evictor.node_fit and low.evictor.evict_local_storage_pods
    assert (
        low.evictor.priority_threshold is not None and low.evictor.priority_threshold.value == 100
    )
    arguments = low.arguments["LowNodeUtilization"]
    assert isinstance(arguments, LowNodeUtilizationArguments) and arguments.number_of_nodes == 2
    assert not life.evictor.node_fit  # as it always was for this strategy
    lifetime = life.arguments["PodLifeTime"]
    assert isinstance(lifetime, PodLifeTimeArguments) and lifetime.states == ["Pending"]
    assert lifetime.namespaces is not None and lifetime.namespaces.exclude == ["kube-system"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("RemoveDuplicates", "RemoveDuplicate", "unknown strategy name: RemoveDuplicate; did you mean 'RemoveDuplicates'?"),
        ("RemoveDuplicates", "LoadAware", "unknown strategy name: LoadAware; it came with v1alpha2"),
        ("thresholdPriority: 100", "thresholdPriority: 5\n      thresholdPriorityClassName: x",
         "priority threshold misconfigured for plugin LowNodeUtilization"),
        ("evictLocalStoragePods", "evictLocalPods", "evictLocalPods: there is no such key; did you mean 'evictLocalStoragePods'?"),
    ],
)  # fmt: skip
def test_what_a_wrong_former_policy_is_told(before: str, after: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        former(**{before: after})
    assert message in str(error.value)


def test_the_policy_of_the_walk_through_is_read() -> None:
    """Its metrics are of type `Prometheus`, with a capital letter."""
    path = Path(__file__).parents[2].parent / "shared" / "scenarios" / "08-descheduler-policy.yaml"
    if not path.exists():
        pytest.skip("the scenarios are not here")
    policy = read(yaml.safe_load(path.read_text())["data"]["policy.yaml"])
    load_aware = policy.profiles[0].load_aware()
    assert load_aware is not None and load_aware.target_thresholds == {"cpu": 80, "memory": 85}
