"""Who is let in: overcommit, sla, resourcequota, and the action enqueue among them."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.plugins import PLUGINS
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import group, job, lone, opened, play, running
from tests.engine.fairness.test_proportion import Rejecter


def lenient(name: str, **arguments: Any) -> Policy:
    """A policy as the original reads it: what cannot be used is left out."""
    tree = {"actions": "enqueue", "tiers": [{"plugins": [{"name": name, "arguments": arguments}]}]}
    return read_policy(tree, plugins=PLUGINS, strict=False)


def strictly_refused(name: str, **arguments: Any) -> bool:
    try:
        policy(plugins=[{"name": name, "arguments": arguments}])
    except PolicyError:
        return True
    return False


@pytest.mark.parametrize(
    ("factor", "asked", "enters"),
    [
        pytest.param(1.2, 2, True, marks=pytest.mark.scenario("plugins-fairness", 96)),
        pytest.param(0.8, 2, True, marks=pytest.mark.scenario("plugins-fairness", 97)),
        pytest.param(1.2, 20, False, marks=pytest.mark.scenario("plugins-fairness", 98)),
        pytest.param(1.2, None, True, marks=pytest.mark.scenario("plugins-fairness", 99)),
    ],
)
def test_overcommit(factor: float, asked: int | None, enters: bool) -> None:
    """A.2: of 7.2 cpu 4 are promised, and two more are 6."""
    world = World(lenient("overcommit", **{"overcommit-factor": factor}))
    world.nodes("n1", cpu=2, memory="4Gi")
    world.nodes("n2", cpu=4, memory="16Gi")
    group(world, "in", phase="Inqueue", min_resources={"cpu": 2})
    group(world, "asks", phase="Pending", min_resources=None if asked is None else {"cpu": asked})
    session = opened(world)
    session.votes.job_enqueued(job(world, "in"))
    assert session.votes.job_enqueueable(job(world, "asks")) is enters
    assert strictly_refused("overcommit", **{"overcommit-factor": factor}) is (factor < 1)


def test_overcommit_to_the_last_bit() -> None:
    """7200 of 7200 millicores enter, one more does not; what runs is taken off once, what is
    promised to it again."""
    world = World(policy(plugins=["overcommit"], actions="enqueue"))
    world.nodes("n1", cpu=6)
    group(world, "exact", phase="Pending", min_resources={"cpu": "7200m"})
    group(world, "more", phase="Pending", min_resources={"cpu": "1m"})
    world.run()
    assert (world.phase("exact"), world.phase("more")) == ("Inqueue", "Pending")
    (short,) = world.decisions.explanations["default/more"].shortages
    assert (short.limit, short.held, short.most, short.missing) == (
        "cluster",
        "7200m",
        "7200m",
        "1m",
    )


@pytest.mark.parametrize(
    ("argument", "first"),
    [
        pytest.param("3m", "one", marks=pytest.mark.scenario("plugins-fairness", 100)),
        pytest.param(1, "two", marks=pytest.mark.scenario("plugins-fairness", 101)),
        pytest.param(None, "two", marks=pytest.mark.scenario("plugins-fairness", 102)),
    ],
)
def test_sla_orders_by_deadline(argument: Any, first: str) -> None:
    arguments = {} if argument is None else {"sla-waiting-time": argument}
    world = World(lenient("sla", **arguments))
    group(world, "one", phase="Pending", min_resources={"cpu": 1})
    group(
        world,
        "two",
        phase="Pending",
        min_resources={"cpu": 1},
        annotations={"volcano.sh/sla-waiting-time": "1h"},
    )
    for name in ("one", "two"):
        job(world, name).creation = world.now - 60
    session = opened(world)
    jobs = [job(world, name) for name in ("one", "two")]
    assert min(jobs, key=session.order.job_key).name == first
    assert all(session.votes.job_enqueueable(one) for one in jobs)
    assert strictly_refused("sla", **arguments) is (argument == 1)


@pytest.mark.parametrize(
    ("annotations", "limit"),
    [
        ({"volcano.sh/sla-waiting-time": "90s"}, 90), ({"sla-waiting-time": "1h30m"}, 5400),
        ({"volcano.sh/sla-waiting-time": "soon", "sla-waiting-time": "1ms"}, 0.001),
        ({"volcano.sh/sla-waiting-time": "-1s", "sla-waiting-time": "2μs"}, 2e-6),
        ({"volcano.sh/sla-waiting-time": "0"}, None), ({"sla-waiting-time": "60"}, None), ({"sla-waiting-time": "--5s"}, None), ({}, None),
    ],
)  # fmt: skip
def test_limits_of_jobs(annotations: dict[str, str], limit: float | None) -> None:
    world = World(policy(plugins=["sla"]))
    group(world, "g", annotations=annotations)
    assert job(world, "g").waiting_time == (None if limit is None else pytest.approx(limit))


def quota(world: World, **hard: Any) -> None:
    status = {"hard": {key: str(value) for key, value in hard.items()}}
    world.state.upsert_other(
        "ResourceQuota", {"metadata": {"name": "quota", "namespace": "default"}, "status": status}
    )


@pytest.mark.parametrize(
    ("hard", "asked", "enters"),
    [
        pytest.param(2, 2, True, marks=pytest.mark.scenario("plugins-fairness", 103)),
        pytest.param(2, 20, False, marks=pytest.mark.scenario("plugins-fairness", 104)),
        pytest.param(None, 2, True, marks=pytest.mark.scenario("plugins-fairness", 105)),
        pytest.param(2, None, True, marks=pytest.mark.scenario("plugins-fairness", 106)),
    ],
)
def test_resource_quota(hard: int | None, asked: int | None, enters: bool) -> None:
    world = World(policy(plugins=["resourcequota"], actions="enqueue"))
    if hard is not None:
        quota(world, cpu=hard)
    group(world, "g", phase="Pending", min_resources=None if asked is None else {"cpu": asked})
    session = opened(world)
    assert session.votes.job_enqueueable(job(world, "g")) is enters
    if not enters:
        (event,) = session.decisions.events
        assert (
            event.message
            == "resource quota insufficient, requested: map[cpu:20], used: map[], limited: map[cpu:2]"
        )
        world.run()
        (short,) = world.decisions.explanations["default/g"].shortages
        assert (short.resource, short.asked, short.held, short.most, short.missing) == (
            "cpu",
            "20",
            "0",
            "2",
            "18",
        )


@pytest.mark.scenario("plugins-fairness", 107)
def test_who_is_refused_takes_nothing_of_the_quota() -> None:
    world = World(
        policy(plugins=["resourcequota", "rejecter"], actions="enqueue", custom=[Rejecter])
    )
    quota(world, cpu=1)
    for name in ("pgA", "pgB", "pgC"):
        group(world, name, phase="Pending", min_resources={"cpu": 1})
    world.run()
    assert [world.phase(name) for name in ("pgA", "pgB", "pgC")] == [
        "Pending",
        "Inqueue",
        "Pending",
    ]


def test_quotas_are_exact_and_go_by_name() -> None:
    world = World(policy(plugins=["resourcequota"], actions="enqueue"))
    quota(world, **{"requests.cpu": "1", "pods": 3})
    group(world, "other-name", phase="Pending", min_resources={"cpu": 50})
    group(world, "a-hair-more", phase="Pending", min_resources={"requests.cpu": "1000000001n"})
    group(world, "pods", phase="Pending", min_resources={"pods": 4})
    group(world, "fits", phase="Pending", min_resources={"requests.cpu": "1", "pods": 3})
    world.run()
    assert [world.phase(name) for name in ("other-name", "a-hair-more", "pods", "fits")] == [
        "Inqueue",
        "Pending",
        "Pending",
        "Inqueue",
    ]


def test_a_quota_that_cannot_be_read_stops_nobody() -> None:
    world = World(policy(plugins=["resourcequota"], actions="enqueue"))
    quota(world, cpu="much")
    group(world, "g", phase="Pending", min_resources={"cpu": 1})
    decisions = world.run()
    assert world.phase("g") == "Inqueue"
    assert decisions.problems == []
    (((kind, _), why),) = world.state.rejected.items()
    assert kind == "ResourceQuota" and "'much' is not a quantity" in why, "the object says it"


def test_nor_does_a_minimum_that_cannot_be_read_under_a_name_that_quotas_alone_know() -> None:
    world = World(policy(plugins=["resourcequota"], actions="enqueue"))
    quota(world, **{"requests.cpu": "1"})
    group(world, "odd", phase="Pending", min_resources={"cpu": 1, "requests.cpu": "much"})
    group(world, "g", phase="Pending", min_resources={"requests.cpu": 1})
    decisions = world.run()
    assert world.phase("g") == "Inqueue"
    assert decisions.problems == []
    (((kind, key), why),) = world.state.rejected.items()
    assert (kind, key) == ("PodGroup", "default/odd") and "'much' is not a quantity" in why


SLA_FIRST = [["sla"], ["gang", "overcommit", "proportion", "predicates"]]


@pytest.mark.scenario("plugins-fairness", 108)
def test_a_job_twice_as_large_as_the_cluster_gets_its_pods_after_its_time() -> None:
    world = World(policy(tiers=SLA_FIRST, actions="enqueue, allocate"))
    world.nodes("n1", cpu=4)
    annotations = {"volcano.sh/sla-waiting-time": "3s"}
    group(
        world,
        "large",
        phase="Pending",
        min_available=8,
        min_resources={"cpu": 8},
        annotations=annotations,
    )
    job(world, "large").creation = world.now
    phases = []
    for _ in range(5):
        world.run()
        phases.append(world.phase("large"))
        world.now += 1
    assert phases == ["Pending", "Pending", "Pending", "Inqueue", "Inqueue"]


@pytest.mark.scenario("plugins-fairness", 109)
def test_the_nearest_deadline_goes_first() -> None:
    world = World(policy(tiers=SLA_FIRST, actions="enqueue, allocate"))
    world.nodes("n1", cpu=4)
    lone(world, "over", cpu=4, node="n1", about={"phase": "Running", "min_resources": {"cpu": 4}})
    for name, limit in (("slow", "1h"), ("quick", "30m")):
        group(
            world,
            name,
            phase="Pending",
            min_resources={"cpu": 4},
            annotations={"volcano.sh/sla-waiting-time": limit},
        )
        job(world, name).creation = world.now - 10
    world.run()
    for name in ("slow", "quick"):
        world.pod(f"{name}-pod", job=name, cpu=4)
    world.state.remove_pod("default/over")
    world.state.remove_pod_group("default/pg-over")
    for name in ("slow", "quick"):
        job(world, name).creation = world.now - 10
    play(world)
    assert (running(world, "quick"), running(world, "slow")) == (1, 0)


@pytest.mark.scenario("plugins-fairness", 110)
def test_the_action_enqueue() -> None:
    plugins = [["gang", "proportion", {"name": "sla", "arguments": {"sla-waiting-time": "3m"}}]]
    world = World(policy(tiers=plugins, actions="enqueue"))
    world.nodes("n1", cpu=16, memory="16G")
    world.queue("c1", capability={"cpu": 1, "memory": "1G"})
    group(world, "inqueue", phase="Inqueue", queue="c1")
    group(world, "without", phase="Pending", queue="c1")
    lone(world, "runs", "c1", node="n1", about={"phase": "Running"})
    group(world, "lost", phase="Pending", queue="nowhere")
    group(world, "large", phase="Pending", queue="c1", min_resources={"cpu": 8, "memory": "8G"})
    world.run()
    assert [world.phase(name) for name in ("inqueue", "without", "pg-runs", "large")] == [
        "Inqueue",
        "Inqueue",
        "Running",
        "Pending",
    ]
    assert opened(world).job("default/lost") is None
