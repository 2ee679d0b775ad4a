"""No object stops a cycle, whatever it says: it is left out, and the state tells why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hekla.engine.model.hypernodes import tree_of
from hekla.engine.model.shards import Shard
from hekla.engine.world import World, policy
from tests.engine.trees import hyper

KINDS = [
    "HyperNode", "NodeShard", "ResourceQuota", "PodDisruptionBudget", "PersistentVolume", "PersistentVolumeClaim", "StorageClass",
    "CSINode", "CSIDriver", "CSIStorageCapacity", "Numatopology", "ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule",
    "Namespace", "ConfigMap",
]  # fmt: skip
WORDS = [
    "tier", "members", "selector", "exactMatch", "name", "regexMatch", "pattern", "labelMatch", "type", "nodesDesired", "nodesInUse",
    "hard", "used", "minAvailable", "maxUnavailable", "capacity", "storage", "claimRef", "volumeName", "drivers", "count", "cpuDetail",
    "devices", "requests", "exactly", "deviceClassName", "pool", "driver", "provisioner", "allocatable", "matchLabels",
    "disruptionsAllowed",
]  # fmt: skip
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "x", "-1", "1.5.5", "[", "n1", "HyperNode"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)
PLUGINS = [
    "priority",
    "gang",
    "conformance",
    "pdb",
    "overcommit",
    "drf",
    "predicates",
    "proportion",
    "nodeorder",
    "binpack",
    "resourcequota",
    "network-topology-aware",
    "numa-aware",
]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kind=st.sampled_from(KINDS), spec=VALUE, status=VALUE, extra=VALUE)
def test_no_object_of_a_lesser_kind_stops_a_cycle(
    kind: str, spec: Any, status: Any, extra: Any
) -> None:
    here = World(policy(plugins=PLUGINS, actions="enqueue, allocate, backfill, preempt, reclaim"))
    here.state.shard = Shard("soft", "odd")
    here.nodes("n1", cpu=4)
    tree = {
        "metadata": {"name": "odd", "namespace": "default", "uid": "odd"},
        "spec": spec,
        "status": status,
    }
    here.state.upsert_other(kind, tree | (extra if isinstance(extra, dict) else {}))
    here.job("fine", cpu=1)
    decisions = here.run()
    assert decisions.bound() == {"default/fine-task-0": "n1"}
    assert [one for one in decisions.problems if "broke off" in one] == []


@pytest.mark.parametrize(
    "spec",
    [
        {"tier": "high"},
        {"tier": 1, "members": "all"},
        "nothing",
        {"tier": 1, "members": [{"selector": 3}]},
    ],
)
def test_a_domain_that_cannot_be_read_is_left_out_and_told(spec: Any) -> None:
    here = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    here.nodes("n1", "n2", cpu=4)
    hyper(here, "fine", 1, "n1")
    here.state.upsert_other("HyperNode", {"metadata": {"name": "odd"}, "spec": spec})
    here.job("near", cpu=1, group={"networkTopology": {"mode": "hard", "highestTierAllowed": 1}})
    assert here.run().nodes_of("near") == {"n1"}
    assert ("HyperNode", "odd") in here.state.rejected
    hyper(here, "odd", 1, "n2")
    assert set(tree_of(here.state).by_name) == {"fine", "odd", "<cluster-top-hypernode>"}
    assert here.state.rejected == {}


def test_a_circle_of_domains_is_told_on_all_of_them() -> None:
    here = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    here.nodes("n1", cpu=4)
    hyper(here, "a", 1, "b", kind="HyperNode")
    hyper(here, "b", 2, "a", kind="HyperNode")
    here.job("plain", cpu=1)
    assert len(here.run().binds) == 1
    assert list(here.state.rejected) == [("HyperNode", "a"), ("HyperNode", "b")]
    here.state.remove_other("HyperNode", "a")
    here.job("next", cpu=1)
    here.run()
    assert here.state.rejected == {}


def test_queues_in_a_circle_stop_nobody_else() -> None:
    here = World(
        policy(
            plugins=["gang", "predicates", {"name": "capacity", "enableHierarchy": True}],
            actions="enqueue, allocate",
        )
    )
    here.queue("root")
    here.queue("a", parent="b")
    here.queue("b", parent="a")
    here.nodes("n1", cpu=4)
    here.job("lost", cpu=1, queue="a", phase="Pending")
    here.job("fine", cpu=1)
    decisions = here.run()
    assert decisions.bound() == {"default/fine-task-0": "n1"}
    assert [one for one in decisions.problems if "broke off" in one] == []


def test_a_pod_on_a_node_whose_name_is_no_text_is_left_out() -> None:
    world = World(policy(plugins=["gang", "predicates"]))
    world.pod("odd", node=True, cpu=1)  # type: ignore[arg-type]  # that is the point
    assert world.state.rejected[("Pod", "default/odd")] == "spec.nodeName is True, not a text"
    assert not world.state.nodes.names
