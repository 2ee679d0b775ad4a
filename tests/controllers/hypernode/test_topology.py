"""Counting and finding hypernodes."""

from typing import Any

import pytest

from hekla.api import names, topology
from hekla.controllers.hypernode.controller import config_map_key, discovery_config
from hekla.controllers.hypernode.labels import discover, tiers_of
from hekla.controllers.hypernode.members import names_of, node_count

NODES = {f"node{number}": {"rack": f"r{number % 2}"} for number in range(1, 5)}


def member(**selector: Any) -> topology.Member:
    tree = {"type": "Node", "selector": selector}
    found: topology.HyperNode = topology.HYPER_NODE.convert(
        {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": [tree]}}
    )
    return found.spec.members[0]


def exact(name: str) -> topology.Member:
    return member(exactMatch={"name": name})


@pytest.mark.scenario("controllers", 139)
def test_what_a_member_stands_for() -> None:
    assert names_of(exact("anything"), NODES) == {"anything"}
    assert names_of(member(regexMatch={"pattern": "node[1-3]"}), NODES) == {
        "node1",
        "node2",
        "node3",
    }
    assert names_of(member(regexMatch={"pattern": "node["}), NODES) == set()
    assert names_of(member(labelMatch={"matchLabels": {"rack": "r0"}}), NODES) == {"node2", "node4"}
    assert names_of(member(labelMatch={}), NODES) == set()


@pytest.mark.scenario("controllers", 138)
def test_names_are_counted_once() -> None:
    assert node_count([exact("a"), exact("b"), exact("c")], {}) == 3
    racks = member(labelMatch={"matchLabels": {"rack": "r0"}})
    assert (
        node_count([exact("master"), racks, member(regexMatch={"pattern": "node[1-3]"})], NODES)
        == 5
    )
    assert (
        node_count(
            [exact("master"), member(labelMatch={}), member(regexMatch={"pattern": "node[2-4]"})],
            NODES,
        )
        == 4
    )


@pytest.mark.scenario("controllers", 136)
@pytest.mark.scenario("controllers", 137)
def test_the_configuration() -> None:
    assert config_map_key({}) == ("volcano-system", "volcano-controller-configmap")
    assert config_map_key({"HELM_RELEASE_NAME": "r", "KUBE_POD_NAMESPACE": "n"}) == (
        "n",
        "r-controller-configmap",
    )
    assert discovery_config(None) == []
    with pytest.raises(
        ValueError, match=r"config key not found in ConfigMap: volcano-controller.conf"
    ):
        discovery_config({"data": {}})
    with pytest.raises(ValueError, match="failed to parse config"):
        discovery_config({"data": {"volcano-controller.conf": "a: [b"}})
    text = "networkTopologyDiscovery:\n- source: label\n  enabled: true\n- source: ufm\n  enabled: false\n"
    assert [
        source["source"] for source in discovery_config({"data": {"volcano-controller.conf": text}})
    ] == ["label"]


def test_tiers_are_read_from_the_node_up() -> None:
    def labels(*keys: str) -> list[dict[str, str]]:
        return [{"nodeLabel": key} for key in keys]

    config = {
        "networkTopologyTypes": {
            "A2": labels("spine", "tor", "kubernetes.io/hostname"),
            "twice": labels("tor", "tor"),
            "a-name-that-is-much-too-long": labels("tor", "host"),
        }
    }
    assert tiers_of(config) == {"A2": ["tor", "spine"]}


@pytest.mark.scenario("controllers", 140)
def test_two_tiers_of_eight_nodes() -> None:
    nodes = {
        f"n{number}": {"tor1": f"s{number // 2}", "tor2": "s4" if number < 4 else "s5"}
        for number in range(8)
    }
    made = discover({"topologyA2": ["tor1", "tor2"]}, nodes, [])
    low = [body for body in made.values() if body["spec"]["tier"] == 1]
    high = [body for body in made.values() if body["spec"]["tier"] == 2]
    assert len(low) == 4 and len(high) == 2
    for body in low:
        assert (
            body["metadata"]["name"].startswith("hypernode-topologya2-tier1-")
            and len(body["metadata"]["name"]) == 32
        )
        assert {m["type"] for m in body["spec"]["members"]} == {"Node"} and len(
            body["spec"]["members"]
        ) == 2
        assert (
            body["spec"]["tierName"] == "tor1"
            and body["metadata"]["labels"][names.NETWORK_TOPOLOGY_SOURCE] == "label"
        )
    lower = {body["metadata"]["name"] for body in low}
    for body in high:
        assert {m["type"] for m in body["spec"]["members"]} == {"HyperNode"} and len(
            body["spec"]["members"]
        ) == 2
        assert {m["selector"]["exactMatch"]["name"] for m in body["spec"]["members"]} <= lower
    assert discover({"topologyA2": ["tor1", "tor2"]}, nodes, []) == made, (
        "a second look makes the same"
    )


@pytest.mark.scenario("controllers", 141)
@pytest.mark.scenario("controllers", 142)
def test_labels_that_are_missing() -> None:
    nodes = {
        "a": {"tor1": "x", "tor2": "y"},
        "b": {"tor1": "x"},
        "c": {"tor1": "z"},
        "d": {"tor2": "y"},
    }
    made = list(discover({"t": ["tor1", "tor2"]}, nodes, []).values())
    by_value = {
        (body["spec"]["tier"], tuple(body["metadata"]["labels"].values())[1]): body["spec"][
            "members"
        ]
        for body in made
    }
    assert set(by_value) == {(1, "x"), (1, "z"), (2, "y")}
    assert len(by_value[1, "x"]) == 2 and len(by_value[2, "y"]) == 1


@pytest.mark.scenario("controllers", 143)
def test_names_are_kept_but_not_taken_from_others() -> None:
    def existing(name: str) -> topology.HyperNode:
        labels = {names.NETWORK_TOPOLOGY_SOURCE: "label", "tor": "x"}
        found: topology.HyperNode = topology.HYPER_NODE.convert(
            {"metadata": {"name": name, "labels": labels}}
        )
        return found

    nodes = {"a": {"tor": "x"}}
    assert list(discover({"t": ["tor"]}, nodes, [existing("hypernode-t-tier1-abcde")])) == [
        "hypernode-t-tier1-abcde"
    ]
    (name,) = discover(
        {"t": ["tor"]},
        nodes,
        [existing("hypernode-other-tier1-abcde"), existing("hypernode-t-tier10-abcde")],
    )
    assert name.startswith("hypernode-t-tier1-") and not name.endswith("abcde")
