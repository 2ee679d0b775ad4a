"""The language of what-if: what is changed, and what is said of mistakes."""

from __future__ import annotations

import pytest

from hekla.simulator.whatif.changes import ChangeError, read_change
from tests.simulator.whatif.copies import Small


def small() -> Small:
    made = Small()
    made.node("n1", nvidia_com__gpu_product="NVIDIA-A100-SXM4-80GB")
    made.node("n2", zone="b")
    made.queue("q", capability={"cpu": "4", "nvidia.com/gpu": "2"}, deserved={"cpu": "2"})
    made.priority("high", 1000)
    made.job("train", pods=2, on=("n1", "n2"))
    return made


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queue.q.capability.cpu=+8", "queue q: capability of cpu 4 -> 12"),
        ("queue.q.capability.cpu=-500m", "queue q: capability of cpu 4 -> 3500m"),
        ("queue.q.capability.nvidia.com/gpu=8", "queue q: capability of nvidia.com/gpu 2 -> 8"),
        ("queue.q.capability.cpu=none", "queue q: capability of cpu 4 -> none"),
        ("queue.q.deserved.memory=+1Gi", "queue q: deserved of memory none -> 1Gi"),
        ("queue.q.guarantee.cpu=1", "queue q: guarantee of cpu none -> 1"),
        ("queue.q.weight=+2", "queue q: weight 1 -> 3"),
        ("queue.q.priority=5", "queue q: priority 0 -> 5"),
        ("queue.q.reclaimable=false", "queue q: reclaimable true -> false"),
        ("node=add:1x n2", "1 node more, empty, as n2 is"),
        ("node=add:4x a100", "4 nodes more, empty, as n1 is"),
        ("node=add:2x zone=b", "2 nodes more, empty, as n2 is"),
        ("node.n1=cordon", "node n1: cordoned"),
        ("node.n1=drain", "node n1: drained; 1 pod has to go from it"),
        ("node.n2=remove", "node n2: removed; 1 pod has to go from it"),
        ("job.train.priority=high", "job train: priority class none -> high (1000)"),
        ("job.default/train.priority=7", "job default/train: priority class none -> what-if-7 (7)"),
        ("job.train=suspend", "job train: suspended; 2 pods leave their room"),
        ("policy=fast.yaml", "policy: fast.yaml"),
    ],
)
def test_a_change_says_what_becomes_different(text: str, said: str):
    assert small().change(text) == [said]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("queue.q.capability.cpu", "says no value"),
        (
            "queue.q.capabilty.cpu=+8",
            'a queue has no "capabilty.cpu" to change; there is capability',
        ),
        ("queue.q.capability=8", "capability of which resource?"),
        ("queue.q.capability.cpu=+lots", '"lots" is no amount'),
        ("queue.q.weight=heavy", "weight = heavy: a whole number"),
        ("queue.q.reclaimable=maybe", "reclaimable = maybe: true or false"),
        ("node=4x a100", 'node = "4x a100": add:COUNTx LIKE'),
        ("node=add:0x a100", "0 nodes: from 1 to 10,000"),
        ("node.n1=burn", 'node n1 = "burn": drain, remove, cordon, uncordon'),
        ("job.train=stop", 'job train = "stop": suspend or delete'),
        ("pod.x=delete", '"pod.x" is nothing that can be changed'),
    ],
)
def test_a_mistake_is_named_before_anything_is_read(text: str, problem: str):
    with pytest.raises(ChangeError) as caught:
        read_change(text)
    assert problem in str(caught.value) and f"'{text}'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("queue.nobody.capability.cpu=8", 'there is no queue "nobody"; there are default, q'),
        (
            "queue.default.capability.cpu=+8",
            "has no capability of cpu, so there is nothing to count",
        ),
        ("queue.q.capability.cpu=-8", "capability of cpu is 4, and -8 is below zero"),
        ("queue.q.weight=-1", "weight is 1, and would be 0: from 1 up"),
        ("node=add:1x h100", 'no node is called "h100"'),
        ("node=add:1x zone=c", 'no node has the labels "zone=c"'),
        ("node.n9=drain", 'there is no node "n9"; there are n1, n2'),
        ("job.other=delete", 'there is no job "other" with a PodGroup in namespace default'),
        ("job.train.priority=top", 'there is no PriorityClass "top"; a number, or one of high'),
    ],
)
def test_what_is_not_there_is_named_with_what_is(text: str, problem: str):
    with pytest.raises(ChangeError) as caught:
        small().change(text)
    assert problem in str(caught.value)


def test_a_node_like_another_is_empty_and_ready():
    made = small()
    made.change("node.n1=cordon", "node=add:1x n1")
    (added,) = [node for name, node in made.copy.of_kind("Node").items() if name.startswith("what")]
    assert added["metadata"]["labels"]["kubernetes.io/hostname"] == "what-if-1"
    assert added["status"] == made.copy.of_kind("Node")["n1"]["status"]
    assert not added["spec"].get("unschedulable")
    assert not made.copy.pods_on("what-if-1")


def test_pods_of_a_drained_node_come_anew_where_somebody_makes_them():
    made = small()
    bare = made.pod("bare", 0, "1", "", 0, "n1", 0.0)
    del bare["metadata"]["ownerReferences"]
    agent = made.pod("agent", 0, "1", "", 0, "n1", 0.0)
    agent["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    made.copy.put("Pod", bare)
    made.copy.put("Pod", agent)

    made.change("node.n1=drain")

    pods = made.copy.of_kind("Pod")
    assert "default/bare-main-0" not in pods
    assert pods["default/agent-main-0"]["spec"]["nodeName"] == "n1", "it belongs to the node"
    moved = pods["default/train-main-0"]
    assert "nodeName" not in moved["spec"] and moved["metadata"]["uid"] != "train-0"
