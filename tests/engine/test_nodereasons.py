"""Why no node will do: true of every node, whatever a search asked for first, and what would help."""

from __future__ import annotations

from hekla.engine.world import World, policy


def world(actions: str = "enqueue, allocate", *plugins: str) -> World:
    return World(
        policy(
            plugins=[*(plugins or ("priority", "gang", "conformance", "predicates"))],
            actions=actions,
        )
    )


def test_a_full_node_that_the_pod_may_not_use_anyway_is_no_reason_to_wait():
    made = world()
    made.nodes("n1", cpu=4)
    made.nodes("n2", cpu=8, unschedulable=True)
    made.job("busy", pods=1, cpu=4, on=["n1"])
    made.job("train", pods=1, cpu=1, spec={"nodeSelector": {"gpu": "a100"}})

    made.run()

    assert made.why("train") == (
        "train needs 1 pod of cpu=1; 0 fit. 2 nodes: 1 does not match its selector gpu=a100, 1 is cordoned. "
        "It starts once 1 more node with cpu=1 free matches its selector gpu=a100 or is uncordoned."
    )


def test_a_pod_larger_than_any_node_is_told_so():
    made = world()
    made.nodes("n1", "n2", cpu=8)
    made.nodes("n3", cpu=64, taints=["team=x:NoSchedule"])
    made.job("huge", pods=1, cpu=40)

    made.run()

    assert made.why("huge") == (
        "huge needs 1 pod of cpu=40; 0 fit. 3 nodes: 2 lack cpu (at most 8 free), 1 has the taint team=x. "
        "It starts when 1 more node has cpu=40 free; none that suits it is that large, even empty (at most cpu=8)."
    )


def test_what_no_node_has_is_not_called_a_lack_of_free_ones():
    made = world()
    made.nodes("n1", "n2", cpu=8)
    made.job("train", pods=1, cpu=1, gpu=1)

    made.run()

    assert (
        "2 nodes: 2 have no nvidia.com/gpu. It starts when 1 more node has cpu=1 nvidia.com/gpu=1 free"
        in made.why("train")
    )


def test_pods_of_several_kinds_are_told_apart():
    made = world()
    made.nodes("n1", cpu=8)
    made.job("parts", pods=0, min_available=2)
    made.pod("parts-ps-0", job="parts", cpu=1, role="ps")
    made.pod("parts-w-0", job="parts", cpu=40, role="w")

    made.run()

    assert made.why("parts").startswith(
        "parts needs 2 pods, those of role w of cpu=40; 1 fits. 1 node: 1 lacks cpu"
    )


def test_own_pods_with_a_host_port_are_not_in_the_way_of_the_others():
    made = world("enqueue, allocate, preempt")
    made.nodes("n1", "n2", cpu=4)
    made.nodes("n3", cpu=4, unschedulable=True)
    made.job("web", pods=3, cpu=1, port=80)

    made.run()

    assert made.why("web").startswith("web needs 3 pods of cpu=1; 2 fit. 1 node: 1 is cordoned.")


def test_a_host_port_that_is_taken():
    made = world()
    made.nodes("n1", cpu=4)
    made.job("first", pods=1, cpu=1, port=80, on=["n1"])
    made.job("web", pods=1, cpu=1, port=80)

    made.run()

    assert made.why("web") == (
        "web needs 1 pod of cpu=1; 0 fit. 1 node: 1 has its host port taken. "
        "It starts once 1 more node with cpu=1 free has its host port free."
    )


def test_a_claim_that_is_not_there_is_said_once():
    made = world("enqueue, allocate, preempt")
    made.nodes("n1", "n2", cpu=4)
    made.job(
        "train",
        pods=1,
        cpu=1,
        spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "nosuch"}}]},
    )

    made.run()

    assert made.why("train") == (
        'train needs 1 pod of cpu=1; 0 fit. No node will do: persistentvolumeclaim "nosuch" not found. '
        "It starts once that is no longer so. No victim because no eviction could help."
    )


def test_without_nodes_it_says_that_there_are_none():
    made = world()
    made.job("train", pods=1, cpu=1)

    made.run()

    assert made.why("train") == "train waits: there are no nodes. It starts once some have joined."


def test_a_node_that_takes_no_more_pods():
    made = world()
    made.nodes("n1", cpu=4, pods=1)
    made.job("busy", pods=1, cpu=1, on=["n1"])
    made.job("train", pods=1, cpu=1)

    made.run()

    assert made.why("train") == (
        "train needs 1 pod of cpu=1; 0 fit. 1 node: 1 has no room for another pod. "
        "It starts when 1 more node has cpu=1 free and room for another pod."
    )


def test_as_many_reasons_as_a_reader_takes_in_and_no_longer_than_an_event():
    made = world()
    for number in range(40):
        made.nodes(f"n{number}", cpu=4, taints=[f"team=t{number:02d}-{'x' * 50}:NoSchedule"])
    made.job("train", pods=1, cpu=1)

    made.run()

    assert made.why("train").count("has the taint") == 6
    assert (
        "34 for other reasons. It starts once 1 more node with cpu=1 free loses its taint."
        in made.why("train")
    )
    made.job(
        "long",
        pods=1,
        cpu=1,
        queue="default",
        spec={"nodeSelector": {f"label-{at}": "y" * 60 for at in range(40)}},
    )
    made.run()
    assert len(made.why("long")) <= 1024
