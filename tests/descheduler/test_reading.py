"""Objects as rows of the tables, and sums that follow their changes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hekla.api.trees import Json
from hekla.descheduler.fit import admits, untolerated
from hekla.descheduler.reading import node_of, pod_of
from hekla.descheduler.tables import Owner, Tables, Taint
from tests.descheduler.stories import node, pod

TREE: Json = {
    "metadata": {
        "name": "p",
        "namespace": "a",
        "uid": "u",
        "labels": {"app": "web"},
        "annotations": {
            "scheduling.k8s.io/group-name": "train",
            "volcano.sh/preemptable": "false",
            "volcano.sh/cooldown-time": "10m",
            "kubernetes.io/config.source": "file",
        },
        "creationTimestamp": "1970-01-01T00:01:00Z",
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web"}],
    },
    "spec": {
        "nodeName": "n1",
        "priority": 7,
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
                ]
            },
        },
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "overhead": {"cpu": "10m"},
        "initContainers": [{"resources": {"requests": {"cpu": "500m"}}}],
        "containers": [
            {"image": "b", "resources": {"requests": {"cpu": "100m", "memory": "1Ki", "example.com/x": "2"}}},
            {"image": "a", "resources": {"requests": {"cpu": "0.2"}}},
        ],
        "volumes": [{"emptyDir": {}}, {"persistentVolumeClaim": {"claimName": "c"}}],
    },
    "status": {
        "phase": "Running",
        "qosClass": "Burstable",
        "reason": "Odd",
        "startTime": "1970-01-01T00:02:00Z",
        "containerStatuses": [{"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}, {"restartCount": 1}],
        "initContainerStatuses": [{"restartCount": 2, "state": {"terminated": {"reason": "Error"}}}],
    },
}  # fmt: skip


def test_a_pod() -> None:
    found = pod_of(TREE)
    assert (found.key, found.group_key, found.node, found.priority) == ("a/p", "a/train", "n1", 7)
    assert found.requests == {"cpu": 510, "memory": 1024, "example.com/x": 2}
    assert (found.created, found.started, found.cooldown) == (60, 120, 600)
    assert (found.restarts, found.init_restarts) == (4, 2)
    assert (found.reasons, found.waiting, found.init_reasons) == (
        ("Odd", "CrashLoopBackOff"),
        ("CrashLoopBackOff",),
        ("Error",),
    )
    assert found.local_storage and found.claims and found.static and not found.mirror
    assert found.preemptable is False and found.owners == (Owner("ReplicaSet", "web"),)
    assert found.images == ("a", "b")
    assert found.anti_affinity[0].namespaces == {"a"} and found.spreads[0].max_skew == 2


def test_where_it_may_run() -> None:
    placement = pod_of(TREE).placement
    labels = {"disk": "ssd", "zone": "a"}
    assert admits(placement, node("n", labels=labels, taints=(Taint("gpu", "x", "NoSchedule"),)))
    assert not admits(placement, node("n", labels={**labels, "zone": "c"}))
    assert not admits(placement, node("n", labels={"zone": "a"}))
    assert not admits(placement, node("n", labels=labels, unschedulable=True))
    taint = Taint("other", "", "NoExecute")
    assert untolerated(placement, node("n", taints=(taint,))) == taint


def test_a_pod_that_says_next_to_nothing() -> None:
    found = pod_of({"metadata": {"name": "p", "namespace": "a"}, "spec": {"nodeName": "n"}})
    assert (found.phase, found.requests, found.qos) == ("Pending", {}, "BestEffort")


def test_a_node() -> None:
    found = node_of(
        {
            "metadata": {"name": "n", "labels": {"a": "b"}},
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            },
            "status": {
                "allocatable": {"cpu": "1930m", "memory": "2Ki", "pods": "29"},
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    assert found.base == {"cpu": 1930, "memory": 2048, "pods": 29}
    assert found.unschedulable and not found.ready and str(found.taints[0]) == "k=v:NoSchedule"
    assert node_of({"metadata": {"name": "n"}}).ready  # without a condition


CHANGES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["n1", "n2", ""]), st.integers(0, 3), st.sampled_from(["Running", "Failed", None])),
    max_size=30,
)  # fmt: skip


@given(CHANGES)
def test_sums_are_those_of_the_pods_that_are_there(
    changes: list[tuple[int, str, int, str | None]],
) -> None:
    tables = Tables([node("n1"), node("n2")])
    there: dict[str, Any] = {}
    for number, on, cpu, phase in changes:
        name = f"p{number}"
        if phase is None:
            tables.drop_pod(f"default/{name}")
            there.pop(name, None)
            continue
        there[name] = pod(name, on, 100 * cpu, phase=phase, group="g")
        tables.put_pod(there[name])
    for on in ("n1", "n2"):
        here = [one for one in there.values() if one.node == on]
        alive = [one for one in here if not one.ended]
        sums = tables.requested.get(on, {})
        assert sums.get("cpu", 0) == sum(one.requests.get("cpu", 0) for one in alive)
        assert sums.get("pods", 0) == len(alive)
        assert set(tables.on_node.get(on, {})) == {one.key for one in here}
    assert set(tables.members.get("default/g", {})) == {
        one.key for one in there.values() if one.node
    }
