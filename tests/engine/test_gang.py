"""A gang starts whole or not at all, and says what it waits for."""

from __future__ import annotations

import pytest

from hekla.engine.world import World, policy

PLUGINS = ["gang", "drf", "proportion", "predicates", "nodeorder"]


@pytest.fixture
def plain() -> World:
    """Without shares of queues, so that only nodes say no."""
    return World(policy(plugins=["gang", "predicates", "nodeorder"], actions="allocate"))


@pytest.fixture
def world() -> World:
    return World(policy(plugins=PLUGINS, actions="allocate"))


def test_a_gang_that_does_not_fit_binds_nothing_and_leaves_no_trace(world: World) -> None:
    world.nodes("n1", "n2", cpu=2)
    world.job("train", pods=5, cpu=1)
    used = world.state.nodes.used.copy()

    decisions = world.run()

    assert decisions.binds == []
    assert (world.state.nodes.used == used).all()


def test_it_starts_once_there_is_room(world: World) -> None:
    world.nodes("n1", "n2", cpu=2)
    world.job("train", pods=5, cpu=1)
    world.run()

    world.nodes("n3", cpu=1)

    assert len(world.run().binds) == 5


def test_the_minimum_starts_and_the_rest_waits(world: World) -> None:
    world.nodes("n1", cpu=3)
    world.job("train", pods=5, min_available=2, cpu=1)

    assert len(world.run().binds) == 3


@pytest.mark.scenario("scheduler-core", 6)
def test_a_role_that_fits_nowhere_does_not_stop_the_other(world: World) -> None:
    world.nodes("n1", cpu=2, labels={"nodeRole": "worker"})
    world.job(
        "mixed",
        pods=1,
        min_available=1,
        cpu=1,
        role="master",
        spec={"nodeSelector": {"nodeRole": "master"}},
    )
    world.pod(
        "mixed-worker-0",
        job="mixed",
        cpu=1,
        role="worker",
        spec={"nodeSelector": {"nodeRole": "worker"}},
    )

    assert world.run().bound() == {"default/mixed-worker-0": "n1"}


@pytest.mark.scenario("scheduler-core", 7)
def test_surplus_tasks_that_fail_do_not_block_the_minimum_of_each_role(world: World) -> None:
    world.nodes("n1", cpu=1, labels={"nodeRole": "master"})
    world.nodes("n2", cpu=1, labels={"nodeRole": "worker"})
    roles = {"minTaskMember": {"master": 1, "worker": 1}}
    world.job(
        "mixed",
        pods=2,
        min_available=2,
        cpu=1,
        role="master",
        group=roles,
        spec={"nodeSelector": {"nodeRole": "master"}},
    )
    for number in range(2):
        world.pod(
            f"mixed-worker-{number}",
            job="mixed",
            cpu=1,
            role="worker",
            spec={"nodeSelector": {"nodeRole": "worker"}},
        )

    assert world.run().bound() == {"default/mixed-master-0": "n1", "default/mixed-worker-0": "n2"}


@pytest.mark.scenario("scheduler-core", 8)
def test_a_role_minimum_out_of_reach_binds_nothing(world: World) -> None:
    world.nodes("n1", cpu=1, labels={"nodeRole": "master"})
    world.nodes("n2", cpu=2, labels={"nodeRole": "worker"})
    roles = {"minTaskMember": {"master": 2, "worker": 0}}
    world.job(
        "mixed",
        pods=2,
        min_available=2,
        cpu=1,
        role="master",
        group=roles,
        spec={"nodeSelector": {"nodeRole": "master"}},
    )
    for number in range(2):
        world.pod(
            f"mixed-worker-{number}",
            job="mixed",
            cpu=1,
            role="worker",
            spec={"nodeSelector": {"nodeRole": "worker"}},
        )

    assert world.run().binds == []


@pytest.mark.scenario("scheduler-core", 9)
def test_without_a_minimum_whatever_fits_starts(world: World) -> None:
    world.nodes("n1", cpu=2)
    world.job("loose", pods=2, min_available=0, cpu=1)

    assert len(world.run().binds) == 2


@pytest.mark.scenario("scheduler-core", 10)
def test_two_queues_take_turns_and_lower_indices_go_first(world: World) -> None:
    world.queue("c1")
    world.queue("c2")
    world.nodes("n1", cpu=2)
    world.job("one", pods=2, min_available=0, cpu=1, queue="c1")
    world.job("two", pods=2, min_available=0, cpu=1, queue="c2")

    assert set(world.run().bound()) == {"default/one-task-0", "default/two-task-0"}


@pytest.mark.scenario("scheduler-core", 11)
def test_a_blocked_queue_does_not_block_others(world: World) -> None:
    world.queue("c1")
    world.queue("c2")
    world.nodes("n1", cpu=2)
    world.job("big", cpu=3, queue="c1")
    world.job("small", cpu=1, queue="c2")

    assert set(world.run().bound()) == {"default/small-task-0"}


@pytest.mark.scenario("scheduler-core", 51)
def test_sub_groups_without_topology_start_together() -> None:
    world = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    world.nodes("n1", "n2", cpu=1)
    groups = {
        "subGroupPolicy": [
            {"name": "task", "matchLabelKeys": ["group"], "subGroupSize": 1, "minSubGroups": 2}
        ]
    }
    world.job("parts", pods=0, min_available=2, group=groups)
    for number in range(2):
        world.pod(f"parts-{number}", job="parts", cpu=1, labels={"group": str(number)})

    assert len(world.run().binds) == 2


def test_it_says_why_in_numbers(plain: World) -> None:
    plain.nodes("n1", "n2", "n3", cpu=2)
    plain.nodes("n4", cpu=8, taints=["gpu=only:NoSchedule"])
    plain.nodes("n5", cpu=8, unschedulable=True)
    plain.nodes("n6", "n7", "n8", cpu=4)
    plain.job("train", pods=4, cpu=4)

    plain.run()

    assert plain.why("train") == (
        "train needs 4 pods of cpu=4; 3 fit. "
        "5 nodes: 3 lack cpu (at most 2 free), 1 has the taint gpu=only, 1 is cordoned. "
        "It starts when 1 more node has cpu=4 free."
    )


def test_it_says_when_the_share_of_its_queue_is_what_lacks(world: World) -> None:
    world.queue("other")
    world.nodes("n1", cpu=4)
    world.job("here", cpu=2, queue="other", on=["n1"])
    world.job("big", pods=3, cpu=1)

    world.run()

    assert world.why("big") == (
        "big: its minimum of cpu=3 is more than queue default deserves now, which is cpu=2. "
        "It starts when that grows by cpu=1: others end or ask for less, or its weight is raised."
    )
    (short,) = world.decisions.explanations["default/big"].shortages
    assert (short.asked, short.most, short.beyond) == ("3", "2", "1")


def test_gangs_larger_than_their_shares_say_so_though_nobody_runs(world: World) -> None:
    for name in ("one", "two"):
        world.queue(name)
        world.job(name, pods=4, cpu=1, queue=name)
    world.nodes("n1", cpu=6)
    world.run()
    assert not world.decisions.binds
    assert world.why("two").startswith(
        "two: its minimum of cpu=4 is more than queue two deserves now, which is cpu=3. "
    )


def test_pods_of_a_failed_gang_say_that_they_could_have_started(plain: World) -> None:
    plain.nodes("n1", cpu=1)
    plain.job("pair", pods=2, cpu=1)

    decisions = plain.run()

    said = {one.pod: (one.reason, one.message) for one in decisions.conditions}
    assert said["default/pair-task-0"] == (
        "Schedulable",
        "Pod default/pair-task-0 can possibly be assigned to n1, once minAvailable is satisfied",
    )
    assert said["default/pair-task-1"] == (
        "Unschedulable",
        "0/1 nodes are unavailable: 1 Insufficient cpu.",
    )


def test_the_group_carries_the_condition_and_the_event_once(plain: World) -> None:
    plain.nodes("n1", cpu=1)
    plain.job("pair", pods=2, cpu=1)

    first = plain.run()
    (status,) = first.pod_groups
    assert status.phase == "Inqueue"
    condition, waiting = status.conditions
    assert (condition["type"], condition["reason"]) == ("Unschedulable", "NotEnoughResources")
    assert (waiting["type"], waiting["message"]) == ("Waiting", plain.why("pair"))
    assert condition["message"].startswith(
        "1/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; "
        "Pending: 1 Schedulable, 1 Unschedulable. Origin reason is pair-task-1: 0/1 nodes are unavailable"
    )
    plain.state.version += 1
    again = plain.run()
    assert again.pod_groups == [] and again.conditions == [] and again.events == []


def test_what_the_server_refused_is_decided_again(world: World) -> None:
    world.nodes("n1", cpu=1)
    world.job("one", cpu=1)
    (bind,) = world.run().binds

    world.state.bind_failed(bind.pod)

    assert [one.pod for one in world.run().binds] == [bind.pod]


def test_a_bind_holds_its_room_until_it_is_seen(world: World) -> None:
    world.nodes("n1", cpu=1)
    world.job("one", cpu=1)
    world.run()
    # The pod as it was before the bind, late.
    world.state.upsert_pod(world.pods["default/one-task-0"])
    world.job("two", cpu=1)

    assert world.run().binds == []


@pytest.mark.parametrize("size", [1, 7, 40])
def test_a_whole_cycle_settles(size: int) -> None:
    world = World(policy())
    world.nodes(*(f"n{number}" for number in range(size)), cpu=4)
    world.job("train", pods=size * 4, cpu=1, phase="Pending", min_resources={"cpu": size * 4})
    assert len(world.run().binds) == size * 4
    world.settle()
    world.run()
    world.settle()
    assert world.phase("train") == "Running"
    world.end("train")
    world.run()
    assert world.phase("train") == "Completed"
    assert world.state.nodes.used.sum() == 0
