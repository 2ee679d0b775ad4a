"""Claimed devices: what a queue may have of them, at the door, on the way to a node, and in its
status."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.model.queues import devicequota
from hekla.engine.model.queues.devicequota import Claimed, Devices, Ledger
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import bound, group, job, lone, opened

GPU, NIC = "gpu.com", "nic.com"


def counting(*, plugins: list[Any] | None = None) -> World:
    """capacity alone looks at claims here; where the devices are is another plugin's concern."""
    return World(
        policy(plugins=plugins or ["capacity", "gang"], actions="enqueue, allocate"),
        default_queue=False,
    )


def demand(world: World, name: str, device: str = GPU, count: int = 1, **capacity: Any) -> None:
    exactly: dict[str, Any] = {"deviceClassName": device, "count": count}
    if capacity:
        exactly["capacity"] = {"requests": {key: str(value) for key, value in capacity.items()}}
    world.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        },
    )


def uses(name: str) -> dict[str, Any]:
    return {"resourceClaims": [{"name": "devices", "resourceClaimName": name}]}


def asking(
    world: World, pod: str, queue: str = "q", device: str = GPU, count: int = 1, **capacity: Any
) -> None:
    """A pod of a job of its own with a claim of its own."""
    demand(world, f"demand-{pod}", device, count, **capacity)
    lone(world, pod, queue, cpu=1, spec=uses(f"demand-{pod}"))


def one_node(**capability: Any) -> World:
    world = counting()
    world.nodes("n1", cpu=10)
    world.queue(
        "q",
        capability={
            f"deviceclass/{key}" if "/" not in key else key: value
            for key, value in capability.items()
        },
    )
    return world


@pytest.mark.parametrize(
    ("capability", "asked", "expected"),
    [
        pytest.param({GPU: 2}, 1, {"p": "n1"}, marks=pytest.mark.scenario("plugins-fairness", 82)),
        pytest.param({GPU: 1}, 2, {}, marks=pytest.mark.scenario("plugins-fairness", 83)),
        pytest.param(
            {NIC: 1}, 100, {"p": "n1"}, marks=pytest.mark.scenario("plugins-fairness", 85)
        ),
    ],
)
def test_count(capability: dict[str, int], asked: int, expected: dict[str, str]) -> None:
    world = one_node(**capability)
    asking(world, "p", count=asked)
    assert bound(world.run()) == expected


@pytest.mark.scenario("plugins-fairness", 84)
def test_each_class_for_itself() -> None:
    world = one_node(**{GPU: 1, NIC: 1})
    asking(world, "gpu1")
    asking(world, "nic1", device=NIC)
    asking(world, "gpu2")
    assert set(bound(world.run())) == {"gpu1", "nic1"}


@pytest.mark.scenario("plugins-fairness", 86)
def test_a_minimum_above_the_ceiling() -> None:
    world = one_node(**{GPU: 1})
    demand(world, "two", count=2)
    group(world, "g", queue="q", phase="Pending", min_resources={"cpu": 1})
    world.pod("p", job="g", cpu=1, spec=uses("two"))
    decisions = world.run()
    assert (bound(decisions), world.phase("g")) == ({}, "Pending")
    (short,) = decisions.explanations["default/g"].shortages
    assert (short.resource, short.asked, short.most, short.missing) == (
        "deviceclass/gpu.com",
        "2",
        "1",
        "1",
    )


@pytest.mark.scenario("plugins-fairness", 87)
@pytest.mark.parametrize("order", [1, -1])
def test_both_keys_of_a_class_are_one_entry(order: int) -> None:
    keys = {
        "deviceclass/X": "2",
        "memory.deviceclass/X": "120Gi",
        "deviceclass/": "1",
        ".deviceclass/Y": "1",
        "cpu": "3",
    }
    assert devicequota.quota(dict(list(keys.items())[::order])) == {
        "X": Devices(2, {"memory": 120 * 2**30})
    }


@pytest.mark.scenario("plugins-fairness", 88)
def test_a_claim_that_is_shared_counts_once() -> None:
    ledger = Ledger({"capability": {f"deviceclass/{GPU}": 1}})
    shared: dict[str, Claimed] = {"ns1/shared": {GPU: Devices(1)}}
    other: dict[str, Claimed] = {"ns1/other": {GPU: Devices(1)}}
    ledger.hold(shared)
    ledger.hold(shared)
    assert ledger.allocated[GPU].count == 1
    assert ledger.admits(ledger.fresh(shared), with_inqueue=False)
    assert not ledger.admits(ledger.fresh(other), with_inqueue=False)
    ledger.release(shared)
    assert ledger.allocated[GPU].count == 1
    ledger.release(shared)
    assert ledger.allocated[GPU].count == 0


@pytest.mark.scenario("plugins-fairness", 89)
def test_devices_alone_are_looked_at_when_the_plugins_are_asked() -> None:
    world = one_node(**{GPU: 1})
    demand(world, "two", count=2)
    group(world, "g", queue="q", phase="Pending", group={"minTaskMember": {"worker": 1}})
    world.pod("w", job="g", role="worker", cpu=1, spec=uses("two"))
    session = opened(world)
    assert not session.votes.job_enqueueable(job(world, "g"))
    (event,) = session.decisions.events
    assert event.message == "queue resource quota insufficient: insufficient dra-resource-exceeded"


@pytest.mark.scenario("plugins-fairness", 90)
def test_what_was_let_in_counts_at_the_door_only() -> None:
    ledger = Ledger({"capability": {f"deviceclass/{GPU}": 2, f"memory.deviceclass/{GPU}": "16Gi"}})
    ledger.inqueue = {GPU: Devices(1, {"memory": 8 * 2**30})}
    minimum = {GPU: Devices(2, {"memory": 16 * 2**30})}
    assert not ledger.admits(minimum, with_inqueue=True)
    assert ledger.admits(minimum, with_inqueue=False)
    assert [one.name for one in ledger.exceeded(minimum, with_inqueue=True)] == [
        "deviceclass/gpu.com",
        "memory.deviceclass/gpu.com",
    ]


@pytest.mark.scenario("plugins-fairness", 91)
def test_the_action_lets_jobs_of_devices_alone_in_and_remembers_them() -> None:
    world = one_node(**{GPU: 1})
    world.policy = policy(plugins=["capacity", "gang"], actions="enqueue")
    for name in ("first", "second"):
        demand(world, f"demand-{name}")
        group(world, name, queue="q", phase="Pending")
        world.pod(f"p-{name}", job=name, cpu=1, spec=uses(f"demand-{name}"))
    demand(world, "demand-third")
    group(world, "third", queue="q", phase="Pending", min_resources={"cpu": 1})
    world.pod("p-third", job="third", cpu=1, spec=uses("demand-third"))
    world.run()
    assert [world.phase(name) for name in ("first", "second", "third")] == [
        "Inqueue",
        "Inqueue",
        "Pending",
    ]


@pytest.mark.scenario("plugins-fairness", 92)
def test_sums_stop_at_the_largest_number() -> None:
    ledger = Ledger({"capability": {f"deviceclass/{GPU}": 8}})
    most = {GPU: Devices(devicequota.LARGEST)}
    devicequota.add(ledger.inqueue, most)
    assert not ledger.admits(most, with_inqueue=True)
    devicequota.add(ledger.inqueue, most)
    assert ledger.inqueue[GPU].count == devicequota.LARGEST
    assert Ledger({"capability": {f"deviceclass/{GPU}": 8}}).admits(
        {GPU: Devices(4)}, with_inqueue=True
    )
    endless = Ledger({"capability": {f"deviceclass/{GPU}": devicequota.LARGEST}})
    devicequota.add(endless.inqueue, most)
    assert endless.admits(most, with_inqueue=True), (
        "a ceiling of the largest number is never passed"
    )


@pytest.mark.scenario("plugins-fairness", 93)
def test_the_minimum_of_a_job() -> None:
    world = counting()
    world.queue("q")
    demand(world, "worker", count=1, memory="8Gi")
    group(world, "roles", queue="q", group={"minTaskMember": {"worker": 2, "none": 3}})
    world.pod("w", job="roles", role="worker", spec=uses("worker"))
    for _ in range(2):
        assert devicequota.minimum(world.state, job(world, "roles")) == {
            GPU: Devices(2, {"memory": 16 * 2**30})
        }
    group(world, "plain", queue="q", min_available=2)
    for name, count in (("c", 4), ("a", 2), ("b", 1)):
        demand(world, f"demand-{name}", count=count)
        world.pod(name, job="plain", spec=uses(f"demand-{name}"))
    assert devicequota.minimum(world.state, job(world, "plain")) == {GPU: Devices(3)}
    demand(world, "huge", count=1, memory="1Ei")
    group(world, "many", queue="q", group={"minTaskMember": {"worker": 2**31 - 1}})
    world.pod("m", job="many", role="worker", spec=uses("huge"))
    found = devicequota.minimum(world.state, job(world, "many"))
    assert found == {GPU: Devices(2**31 - 1, {"memory": devicequota.LARGEST})}
    group(world, "none", queue="q", min_available=0)
    world.pod("x", job="none", spec=uses("huge"))
    assert devicequota.minimum(world.state, job(world, "none")) is None
    group(world, "empty", queue="q")
    assert devicequota.minimum(world.state, job(world, "empty")) is None


def status(world: World, queue: str = "q") -> dict[str, str]:
    """The device part of what a queue's status says now."""
    sent = world.state.queues[queue].status_sent or {}
    return {key: value for key, value in sent.items() if "deviceclass/" in key}


@pytest.mark.scenario("plugins-fairness", 94)
def test_what_the_status_says() -> None:
    world = one_node()
    world.queue("root")
    world.queue("q", parent="root")
    demand(world, "shared", count=2, cores=150, memory="4Gi")
    for name in ("a", "b"):
        lone(world, name, "q", node="n1", spec=uses("shared"))
    world.run()
    expected = {
        "deviceclass/gpu.com": "2",
        "cores.deviceclass/gpu.com": "300",
        "memory.deviceclass/gpu.com": "8Gi",
    }
    assert status(world) == expected
    assert status(world, "root") == expected


@pytest.mark.scenario("plugins-fairness", 95)
def test_two_of_four_by_a_claim_of_its_own_or_of_a_template() -> None:
    world = one_node(**{GPU: 4})
    asking(world, "direct", count=2)
    assert set(bound(world.run())) == {"direct"}
    assert status(world) == {"deviceclass/gpu.com": "2"}
    world.settle()
    demand(world, "made-for-it", count=2)
    group(world, "pg-made", queue="q")
    world.pod(
        "made",
        job="pg-made",
        cpu=1,
        spec={"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "t"}]},
    )
    world.pods["default/made"]["status"]["resourceClaimStatuses"] = [
        {"name": "devices", "resourceClaimName": "made-for-it"}
    ]
    world.state.upsert_pod(world.pods["default/made"])
    assert set(bound(world.run())) == {"made"}
    assert status(world) == {"deviceclass/gpu.com": "4"}
    world.settle()
    asking(world, "late")
    assert bound(world.run()) == {}


@pytest.mark.scenario("plugins-fairness", 95)
def test_two_pods_share_one_device() -> None:
    world = one_node(**{GPU: 1})
    demand(world, "shared")
    for name in ("a", "b"):
        lone(world, name, "q", cpu=1, spec=uses("shared"))
    assert set(bound(world.run())) == {"a", "b"}
    assert status(world) == {"deviceclass/gpu.com": "1"}


@pytest.mark.scenario("plugins-fairness", 95)
def test_parts_of_devices() -> None:
    world = one_node(**{GPU: 9, f"cores.deviceclass/{GPU}": 400})
    asking(world, "three", cores=300)
    asking(world, "two", cores=200)
    assert set(bound(world.run())) == {"three"}
    assert status(world) == {"deviceclass/gpu.com": "1", "cores.deviceclass/gpu.com": "300"}


@pytest.mark.scenario("plugins-fairness", 95)
def test_the_next_one_takes_what_was_given_back() -> None:
    world = one_node(**{GPU: 9, f"cores.deviceclass/{GPU}": 400})
    asking(world, "four", cores=400)
    world.run()
    world.settle()
    asking(world, "three", cores=300)
    assert bound(world.run()) == {}
    world.state.remove_pod("default/four")
    assert set(bound(world.run())) == {"three"}
    assert status(world) == {"deviceclass/gpu.com": "1", "cores.deviceclass/gpu.com": "300"}


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("capacity.DRAConsumableCapacityEnable", {"cores"}),
        ("capacity.DynamicResourceAllocationEnable", {"cores", "many"}),
        (None, set()),
    ],
)
def test_either_check_can_be_switched_off(argument: str | None, expected: set[str]) -> None:
    world = one_node(**{GPU: 2, f"cores.deviceclass/{GPU}": 100})
    arguments = {argument: "false"} if argument else {}
    world.policy = policy(
        plugins=[{"name": "capacity", "arguments": arguments}, "gang"], actions="allocate"
    )
    asking(world, "cores", cores=300)
    asking(world, "many", count=3)
    assert set(bound(world.run())) == expected


def test_a_claim_that_cannot_be_read_stops_nobody() -> None:
    world = one_node(**{GPU: 2})
    world.state.upsert_other(
        "ResourceClaim",
        {
            "metadata": {"name": "odd", "namespace": "default"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": "r", "exactly": {"deviceClassName": GPU, "count": "many"}}
                    ]
                }
            },
        },
    )
    lone(world, "odd", "q", cpu=1, spec=uses("odd"))
    asking(world, "fine")
    decisions = world.run()
    assert "fine" in bound(decisions)
    assert decisions.problems == []
