"""Rules of the placement plugins that no example of another file tells: orders, what is skipped,
what is undone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.plugin import Code
from hekla.engine.framework.policy import PolicyError
from hekla.engine.framework.session import Session
from hekla.engine.model.claims.search import STEPS_A_SECOND
from hekla.engine.model.devices import ascend
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.tasks import Status
from hekla.engine.placement.placer import placer_of
from hekla.engine.plugins.placement.deviceshare import _group
from hekla.engine.plugins.placement.predicates import Predicates
from hekla.engine.world import World, policy
from tests.engine import test_claims as claims
from tests.engine import test_devices as cards
from tests.engine import test_volumes as volumes


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


def predicates(here: World) -> Predicates:
    found = next(
        plugin
        for plugin in hooks_of(here.state, here.policy).plugins
        if plugin.name == "predicates"
    )
    assert isinstance(found, Predicates)
    return found


@pytest.mark.scenario("plugins-placement", 9)
def test_nobody_is_evicted_where_a_stronger_pod_keeps_others_away():
    """The pod that cannot be evicted has anti-affinity to the preemptor: evicting the weak one does
    not help."""
    here = World(
        policy(
            plugins=["priority", "gang", "conformance", "predicates"],
            actions="allocate, preempt",
            configurations=[
                {"name": "preempt", "arguments": {"enableTopologyAwarePreemption": True}}
            ],
        )
    )
    here.nodes("n1", cpu=2, labels={"kubernetes.io/hostname": "n1"})
    for name, value in (("high", 100), ("middle", 50), ("low", 1)):
        here.priority_class(name, value)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "preemptor"}},
    }
    avoids = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
    here.job(
        "strong",
        pods=1,
        on=["n1"],
        phase="Running",
        priority="high",
        cpu=1,
        spec={**avoids, "priority": 100},
    )
    here.job(
        "weak",
        pods=1,
        min_available=0,
        on=["n1"],
        phase="Running",
        priority="low",
        cpu=1,
        spec={"priority": 1},
        preemptable=True,
    )
    here.job(
        "claim",
        pods=1,
        priority="middle",
        cpu=1,
        labels={"app": "preemptor"},
        spec={"priority": 50},
    )
    assert here.run().evictions == [] and here.decisions.binds == []
    here.state.remove_pod("default/strong-task-0")
    here.job(
        "other", pods=1, on=["n1"], phase="Running", priority="high", cpu=1, spec={"priority": 100}
    )
    assert [one.pod for one in here.run().evictions] == ["default/weak-task-0"]


@pytest.mark.scenario("plugins-placement", 10)
def test_filters_speak_in_their_order():
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes("n1", cpu=8, pods=1, labels={"zone": "a"})
    here.job("there", pods=1, on=["n1"], phase="Running", port=80, cpu=1)
    here.job("asks", pods=1, port=80, cpu=1)
    here.run()
    names = [one.name for one in predicates(here).filters()]
    kept = list(dict.fromkeys(names))
    assert kept[:5] == [
        "PodNumber",
        "NodeUnschedulable",
        "NodeAffinity",
        "TaintToleration",
        "NodePorts",
    ]
    later = [
        "NodeVolumeLimits",
        "VolumeZone",
        "PodTopologySpread",
        "VolumeBinding",
        "DynamicResources",
    ]
    assert [name for name in kept if name in later] == later
    session = opened(here)
    errors = placer_of(session).filters.explain(
        session, here.state.tasks["default/asks-task-0"], room=False
    )
    assert [reason.text for reason in errors.reasons] == [
        "node(s) pod number exceeded",
        "node(s) didn't have free ports for the requested pod ports",
    ]
    # What evictions cannot help with ends the questions about a node.
    here.nodes("n1", cpu=8, pods=1, unschedulable=True)
    session = opened(here)
    errors = placer_of(session).filters.explain(
        session, here.state.tasks["default/asks-task-0"], room=False
    )
    assert [reason.text for reason in errors.reasons] == [
        "node(s) pod number exceeded",
        "node(s) were unschedulable",
    ]


@pytest.mark.scenario("plugins-placement", 11)
def test_a_filter_that_does_not_concern_a_pod_is_not_asked():
    here = World(policy(plugins=["predicates"], actions="allocate"))
    here.nodes("n1", cpu=8, taints=["key=value:NoSchedule"])
    here.job("plain", pods=1, cpu=1)
    session = opened(here)
    task = here.state.tasks["default/plain-task-0"]
    view = NodeView(here.state.nodes)
    answers: dict[str, Any] = {}
    for one in predicates(here).filters():
        answers.setdefault(one.name, one.mask(task.pods, view, task))
    concerned = {name for name, mask in answers.items() if mask is not None}
    assert concerned == {"PodNumber", "NodeUnschedulable", "TaintToleration"}
    errors = placer_of(session).filters.explain(session, task)
    assert [(reason.text, reason.count) for reason in errors.reasons] == [
        ("node(s) had untolerated taint(s)", 1)
    ]


def claiming() -> World:
    """A pod with a claim of devices and one of a volume."""
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes("n1", cpu=4)
    claims.device_class(here, "gpu")
    claims.slice_of(here, "n1", "gpu-0")
    claims.claim(here, "mine")
    volumes.storage(here, "local")
    volumes.volume(here, "pv", node="n1")
    volumes.claim(here, "data")
    here.job("one", pods=0, min_available=1)
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    here.pod("one-0", job="one", spec={**claims.using("mine"), "volumes": mounts})
    return here


@pytest.mark.scenario("plugins-placement", 12)
def test_volumes_are_promised_before_devices_and_given_back_after_them(monkeypatch):
    here = claiming()
    session = opened(here)
    order = []

    def noting(said: str, original: Any) -> Any:
        def noted(task: Any) -> Any:
            order.append(said)
            return original(task)

        return noted

    for book, name in ((here.state.volumes, "volumes"), (here.state.claims, "claims")):
        for what in ("promise", "withdraw"):
            monkeypatch.setattr(book, what, noting(f"{what} {name}", getattr(book, what)))
    statement = session.statement()
    statement.allocate(here.state.tasks["default/one-0"], 0)
    statement.discard()
    assert order == ["promise volumes", "promise claims", "withdraw claims", "withdraw volumes"]
    assert (
        not here.state.volumes.promises
        and not here.state.claims.promises
        and not here.state.claims.usage.held
    )


@pytest.mark.scenario("plugins-placement", 12)
def test_a_placement_whose_devices_are_not_to_be_had_leaves_nothing_behind():
    here = claiming()
    session = opened(here)
    claims.slice_of(here, "n1")  # the driver takes the device away while the pod is being placed
    statement = session.statement()
    with pytest.raises(ValueError, match="cannot be had"):
        statement.allocate(here.state.tasks["default/one-0"], 0)
    assert not here.state.volumes.promises and not here.state.claims.promises
    assert (
        here.state.tasks["default/one-0"].status is Status.PENDING
        and here.state.nodes.used.sum() == 0
    )


@pytest.mark.scenario("plugins-placement", 13)
@pytest.mark.scenario("plugins-placement", 16)
def test_who_scores_and_who_does_not():
    off = {"name": "predicates", "arguments": {"predicate.VolumeBindingEnable": False}}
    here = World(policy(plugins=["gang", off], actions="allocate"))
    here.nodes("b", "a", cpu=4)
    claims.device_class(here, "gpu")
    claims.slice_of(here, "a", "gpu-0", "gpu-1")
    claims.slice_of(here, "b", "gpu-0")
    claims.claim(here, "ranked", claims.first_of("r", ("two", 2), ("one", 1)))
    claims.claim(here, "plain")
    for name in ("ranked", "plain"):
        claims.pod(here, name, name)
    session = opened(here)
    own = [
        score
        for plugin, score in placer_of(session).scores.by_plugin
        if plugin.name == "predicates"
    ]
    assert [(score.name, score.weight) for score in own] == [("DynamicResources", 1.0)]
    names = {one.name for one in predicates(here).filters()}
    assert "VolumeBinding" not in names and "DynamicResources" in names
    rows = np.arange(2)
    task = here.state.tasks["default/ranked-0"]
    # 8 for the first choice and 7 for the second, on a scale where the best has 100.
    assert placer_of(session).scores.total(session, task, rows).tolist() == [87.0, 100.0]
    assert (
        own[0].raw(
            here.state.tasks["default/plain-0"].pods,
            NodeView(here.state.nodes),
            here.state.tasks["default/plain-0"],
        )
        is None
    )
    assert placer_of(session).scores.total(
        session, here.state.tasks["default/plain-0"], rows
    ).tolist() == [0.0, 0.0]


@pytest.mark.scenario("plugins-placement", 14)
@pytest.mark.parametrize(("stated", "seconds"), [(3, 3), (-5, 10), (None, 10), (0, 0)])
def test_how_long_devices_are_searched(stated, seconds):
    arguments = {} if stated is None else {"dynamicresources.filterTimeoutSeconds": stated}
    here = World(
        policy(plugins=[{"name": "predicates", "arguments": arguments}], actions="allocate")
    )
    opened(here)
    assert here.state.claims.limit == seconds * STEPS_A_SECOND


@pytest.mark.scenario("plugins-placement", 17)
def test_what_a_device_writes_on_a_pod_is_kept_once_and_taken_off_alone():
    here = cards.world(VGPUEnable=True)
    record = "u0,10,1000,NVIDIA-A100,true,hami-core:"
    here.nodes("n1", "n2", annotations={"volcano.sh/node-vgpu-register": record}, **cards.VGPU)
    cards.pod(here, "a", {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 100})
    task = here.state.tasks["default/a-task-0"]
    task.annotations["team"] = "ml"
    session = opened(here)
    statement = session.statement()
    statement.allocate(task, 0)
    assert task.annotations["volcano.sh/vgpu-node"] == "n1"
    statement.discard()
    assert "volcano.sh/vgpu-node" not in task.annotations and task.annotations["team"] == "ml"
    statement.allocate(task, 1)
    assert task.annotations["volcano.sh/vgpu-node"] == "n2"


@pytest.mark.scenario("plugins-placement", 19)
def test_a_job_as_large_as_the_full_cluster_waits_and_evicts_nobody():
    here = World(
        policy(
            plugins=["priority", "gang", "conformance", "drf", "predicates"],
            actions="enqueue, allocate, preempt",
        )
    )
    here.nodes("n1", "n2", cpu=2)
    here.job("first", pods=4, cpu=1)
    assert len(here.run().binds) == 4
    here.settle()
    here.job("second", pods=4, cpu=1)
    assert here.run().binds == [] and here.decisions.evictions == []
    assert "2 nodes: 2 lack cpu" in here.why("second")


@pytest.mark.scenario("plugins-placement", 21)
@pytest.mark.parametrize("wish", ["selector", "affinity"])
def test_a_pod_that_wants_another_node_than_its_volume_waits(wish):
    here = volumes.world("n1", "n2")
    volumes.storage(here, "local")
    volumes.volume(here, "pv", node="n1")
    volumes.claim(here, "data", bound="pv")
    term = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]
    }
    spec: dict[str, Any] = (
        {"nodeSelector": {"kubernetes.io/hostname": "n2"}}
        if wish == "selector"
        else {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
                }
            }
        }
    )
    here.job("one", pods=0, min_available=1)
    here.pod(
        "one-task-0",
        job="one",
        cpu=1,
        spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}], **spec},
    )
    assert here.run().binds == []
    assert "didn't match PersistentVolume's node affinity" in volumes.refusal(here, "one")


@pytest.mark.scenario("plugins-placement", 22)
@pytest.mark.parametrize("apart", [True, False])
def test_pods_with_volumes_of_their_own_apart_or_together(apart):
    here = volumes.world("n1", "n2", "n3")
    volumes.storage(here, "local")
    for node in ("n1", "n2", "n3"):
        for number in range(3):
            volumes.volume(here, f"pv-{node}-{number}", node=node)
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    kind = "podAntiAffinity" if apart else "podAffinity"
    affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    here.job("db", pods=0, min_available=3)
    for number in range(3):
        volumes.claim(here, f"data-{number}")
        mounts = [{"name": "d", "persistentVolumeClaim": {"claimName": f"data-{number}"}}]
        here.pod(
            f"db-{number}",
            job="db",
            cpu=1,
            labels={"app": "db"},
            spec={"volumes": mounts, "affinity": affinity},
        )
    decided = here.run().binds
    assert len(decided) == 3 and len({bind.node for bind in decided}) == (3 if apart else 1)
    assert all(
        volume.startswith(f"pv-{bind.node}") for bind in decided for volume in bind.volumes.values()
    )
    assert len({volume for bind in decided for volume in bind.volumes.values()}) == 3


@pytest.mark.scenario("plugins-placement", 38)
@pytest.mark.parametrize(
    ("annotations", "group"),
    [
        (
            {"scheduling.k8s.io/group-name": "a", "scheduling.volcano.sh/group-name": "b"},
            "default/a",
        ),
        ({"scheduling.volcano.sh/group-name": "b"}, "default/b"),
        ({}, ""),
    ],
)
def test_the_group_of_a_pod(annotations, group):
    here = World(policy(plugins=["gang"]))
    here.pod("p", annotations=annotations)
    assert _group(here.state.tasks["default/p"]) == group


@pytest.mark.scenario("plugins-placement", 44)
def test_no_card_is_a_lack_and_a_wrong_request_is_a_mistake():
    here = cards.world(AscendHAMiVNPUEnable=True)
    cards.configure(here)
    listed = '[{"id": "npu-0", "count": 7, "devmem": 21527, "devcore": 8, "type": "Ascend310P"}]'
    here.nodes(
        "n1",
        annotations={"hami.io/node-register-Ascend310P": listed},
        **{"huawei.com/Ascend310P": 7},
    )
    cards.pod(here, "full", {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 21527})
    assert len(here.run().binds) == 1
    here.settle()
    cards.pod(here, "lack", {"huawei.com/Ascend310P": 1, "huawei.com/Ascend310P-memory": 3000})
    cards.pod(here, "wrong", {"huawei.com/Ascend310P": 2, "huawei.com/Ascend310P-memory": 3000})
    session = opened(here)
    codes = {}
    for name in ("lack", "wrong"):
        task = here.state.tasks[f"default/{name}-task-0"]
        for _, own in placer_of(session).filters.by_plugin:
            for one in own:
                passed = one.mask(task.pods, NodeView(here.state.nodes), task)
                if passed is not None and not passed[0]:
                    codes[name] = one.code, one.reason
    assert codes == {
        "lack": (Code.UNSCHEDULABLE, ascend.REFUSAL),
        "wrong": (
            Code.UNRESOLVABLE,
            "vNPU does not support partial memory allocation when requesting multiple devices",
        ),
    }


def sized_tree(**arguments: Any) -> World:
    """s0 over s1 and s2, these over s3, s4 and s5, s6, of two nodes each: 2c/4G, 4c/4G, 2c/8G,
    4c/8G."""
    here = World(
        policy(
            plugins=["gang", {"name": "network-topology-aware", "arguments": arguments}],
            actions="allocate",
        )
    )
    for name, cpu, memory in (
        ("s3", 2, "4Gi"),
        ("s4", 4, "4Gi"),
        ("s5", 2, "8Gi"),
        ("s6", 4, "8Gi"),
    ):
        nodes = [f"{name}-{number}" for number in range(2)]
        here.nodes(*nodes, cpu=cpu, memory=memory)
        _hyper(here, name, 1, "Node", nodes)
    _hyper(here, "s1", 2, "HyperNode", ["s3", "s4"])
    _hyper(here, "s2", 2, "HyperNode", ["s5", "s6"])
    _hyper(here, "s0", 3, "HyperNode", ["s1", "s2"])
    return here


def _hyper(here: World, name: str, tier: int, kind: str, members: list[str]) -> None:
    chosen = [{"type": kind, "selector": {"exactMatch": {"name": one}}} for one in members]
    here.state.upsert_other(
        "HyperNode", {"metadata": {"name": name}, "spec": {"tier": tier, "members": chosen}}
    )


@pytest.mark.scenario("plugins-placement", 72)
def test_domains_by_how_full_they_would_be():
    here = sized_tree()
    here.job("pair", pods=2, cpu=4, memory="4Gi")
    session = opened(here)
    plugin = session.hooks.plugins[1]
    sub_job = next(iter(here.state.jobs["default/pair"].sub_jobs.values()))
    found = plugin.hyper_node_order(sub_job, ["s0", "s1", "s2", "s3", "s4", "s5", "s6"])
    assert {name: round(score, 1) for name, score in found.items()} == {
        "s0": 25.0,
        "s1": 58.3,
        "s2": 45.8,
        "s3": 0.0,
        "s4": 100.0,
        "s5": 0.0,
        "s6": 75.0,
    }


@pytest.mark.scenario("plugins-placement", 72)
def test_a_pod_without_a_topology_goes_where_domains_are_fullest():
    here = sized_tree()
    here.job("plain", pods=1, cpu=2, memory="4Gi")
    session = opened(here)
    total = placer_of(session).scores.total(
        session, here.state.tasks["default/plain-task-0"], np.arange(8)
    )
    assert [round(float(value), 1) for value in total[::2]] == [25.8, 21.6, 19.9, 15.7]


@pytest.mark.scenario("plugins-placement", 72)
@pytest.mark.parametrize(
    ("most", "expected"),
    [(3, [["c", "d"], ["b"]]), (0, [["c", "d"], ["a", "b"]]), (8, [["c", "d"], ["a", "b"]])],
)
def test_domains_to_evict_in_are_the_widest_first_and_not_too_many(most, expected):
    here = sized_tree(**{"hypernode.gradient.evict.max-hypernodes": most})
    assert opened(here).hooks.plugins[1]._widest([["a", "b"], ["c", "d"]]) == expected


@pytest.mark.scenario("plugins-placement", 15)
def test_volumes_are_chosen_by_how_they_would_be_used():
    """40 % of a volume counts 8 of 10, 80 % counts 4; the key is understood in any case."""
    shape = [{"utilization": at, "score": score} for at, score in ((40, 8), (80, 4), (100, 0))]
    shape.insert(0, {"Utilization": 0, "SCORE": 10})
    tree = [{"name": "predicates", "arguments": {"volumebinding.shape": shape}}]
    arguments = policy(plugins=tree).tiers[0][0].arguments
    assert arguments.volume_binding_weight == 1 and arguments.volume_binding_timeout == 600
    for gate in (True, False):
        here = World(policy(plugins=tree, actions="allocate"))
        here.state.scores_storage = gate
        here.nodes("n1", "n2", "n3", "n4", cpu=4)
        volumes.storage(here, "local")
        for node, size in (("n1", "10Gi"), ("n2", "5Gi"), ("n3", "4Gi")):
            volumes.volume(here, f"pv-{node}", size, node=node)
        volumes.claim(here, "data", "4Gi")
        volumes.pod(here, "one", "data")
        session = opened(here)
        total = placer_of(session).scores.total(
            session, here.state.tasks["default/one-task-0"], np.arange(4)
        )
        assert total.tolist() == ([80.0, 40.0, 0.0, 0.0] if gate else [0.0, 0.0, 0.0, 0.0])


def test_a_shape_that_is_no_line_is_refused():
    for shape in (
        [{"utilization": 50, "score": 1}, {"utilization": 40, "score": 2}],
        [{"utilization": 0, "score": 11}],
    ):
        with pytest.raises(PolicyError, match="ascending order"):
            policy(plugins=[{"name": "predicates", "arguments": {"volumebinding.shape": shape}}])
