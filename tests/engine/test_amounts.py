"""What pods ask for and nodes have: sums, comparisons, counts.  Reference: scheduler-core 10.11."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.model.resources import (
    Request,
    ResourceSpace,
    amounts,
    exceeding,
    exceeds_relevant,
    less_equal,
    minimum_present,
    minimum_zero,
)
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Status, Task
from hekla.engine.world import World, policy

MI, GI = 1024.0**2, 1024.0**3


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


def task(spec: dict[str, Any], status: dict[str, Any] | None = None) -> Task:
    return State().pods.read(
        {"metadata": {"name": "p", "namespace": "default"}, "spec": spec, "status": status or {}}
    )


def container(
    restart: str = "", limits: dict[str, str] | None = None, **requests: str
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": "main",
        "resources": {"requests": requests, "limits": limits or {}},
    }
    return {**made, "restartPolicy": restart} if restart else made


PODS_OF_116 = [
    ([container(cpu="1")], [container("Always", cpu="1")]),
    ([container(cpu="1")], [container(cpu="5"), *(container("Always", cpu=str(n)) for n in (1, 2, 3))]),
    ([container(cpu="1")],
     [container(cpu="5"), container("Always", cpu="1"), container("Always", cpu="2"), container(cpu="5"), container("Always", cpu="3")]),
    ([container(cpu="100")], [container("Always", cpu="10"), container(cpu="200")]),
]  # fmt: skip


@core(117)
@pytest.mark.parametrize(("containers", "inits"), PODS_OF_116)
@pytest.mark.parametrize("overhead", [False, True])
def test_what_the_pod_states_for_itself_stands_over_its_containers(
    containers: Any, inits: Any, overhead: bool
) -> None:
    stated = {"cpu": "250", "memory": "100Mi", "hugepages-2Mi": "2Gi"}
    spec: dict[str, Any] = {
        "containers": containers,
        "initContainers": inits,
        "resources": {"requests": stated},
    }
    wanted = {"cpu": 250_000.0, "memory": 100 * MI, "hugepages-2Mi": 2 * GI * 1000, "pods": 1.0}
    if overhead:
        spec["overhead"] = {"cpu": "250", "memory": "100Mi"}
        wanted |= {"cpu": 500_000.0, "memory": 200 * MI}
    assert task(spec).request.amounts == wanted


@core(118)
def test_limits_of_a_sidecar_and_a_container() -> None:
    spec = {
        "containers": [container(limits={"cpu": "1", "memory": "2Gi"})],
        "initContainers": [container("Always", limits={"cpu": "1", "memory": "1Gi"})],
    }
    assert task(spec).pods.limits == {"cpu": 2000.0, "memory": 3 * GI}


@core(118)
def test_overhead_is_added_to_what_is_limited_alone() -> None:
    spec = {
        "containers": [container(limits={"cpu": "1"})],
        "overhead": {"cpu": "100m", "memory": "128Mi"},
    }
    assert task(spec).pods.limits == {"cpu": 1100.0, "memory": 0.0}


@core(119)
@pytest.mark.parametrize(("reason", "cpu"), [("", 2000), ("Deferred", 2000), ("Infeasible", 1000)])
@pytest.mark.parametrize("whole_pod", [False, True])
def test_a_pod_that_is_being_resized_holds_the_larger(
    reason: str, cpu: int, whole_pod: bool
) -> None:
    spec: dict[str, Any] = {"containers": [container(cpu="2")]}
    if whole_pod:
        spec["resources"] = {"requests": {"cpu": "4"}}
    conditions = (
        [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    )
    held = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    status = {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": [{"name": "main", **held}],
    }
    assert task(spec, status).request.amounts["cpu"] == (4000 if whole_pod else cpu)


@core(120)
def test_a_node_follows_its_pods_and_its_own_size() -> None:
    here = World(policy())
    here.nodes("n1", cpu=8, memory="10G", pods=20)
    here.pod("a", node="n1", cpu=1, memory="1G")
    here.pod("b", node="n1", cpu=2, memory="2G")
    nodes = here.state.nodes
    assert nodes.idle_of(0) == {"cpu": 5000.0, "memory": 7e9, "pods": 18.0}
    assert [float(value) for value in nodes.used[:3, 0]] == [3000.0, 3e9, 2.0]
    here.pod("c", node="n1", cpu=1, memory="1G")
    here.state.remove_pod("default/b")
    assert nodes.idle_of(0) == {"cpu": 6000.0, "memory": 8e9, "pods": 18.0}


@core(120)
def test_a_pod_whose_state_is_unknown_still_holds_its_room() -> None:
    here = World(policy())
    here.nodes("n1", cpu=1, memory="1G")
    here.pod("lost", node="n1", cpu=1, memory="2G", phase="Unknown")
    assert here.state.nodes.idle_of(0)["memory"] == -1e9
    assert here.state.rejected == {}


@core(120)
def test_a_node_that_shrinks_below_what_it_holds_stays() -> None:
    here = World(policy())
    for cpu, memory, idle in ((10, "10G", 1000), (8, "8G", -1000), (10, "10G", 1000)):
        here.nodes("n1", cpu=cpu, memory=memory)
        if cpu == 10 and "default/a" not in here.state.tasks:
            here.pod("a", node="n1", cpu=9, memory="9G")
        free = here.state.nodes.idle_of(0)
        assert (free["cpu"], free["memory"]) == (idle, idle * 1e6)
        assert here.state.nodes.ready[0]


@core(121)
def test_less_or_equal() -> None:
    large = {"cpu": 4000.0, "memory": 2000.0, "s": 1000.0}
    nothing = {"cpu": 0.0, "memory": 0.0}
    assert less_equal(nothing, large)
    assert less_equal(nothing, nothing)
    assert not less_equal(large, nothing)
    assert less_equal({"cpu": 3000.0, "memory": 2000.0, "s": 1000.0}, large)
    assert not less_equal({"cpu": 3000.0, "memory": 2000.0, "s": 1001.0}, large)


@core(121)
def test_what_a_queue_does_not_name_it_does_not_limit() -> None:
    """The comparison that takes what is missing for endless is made by filling in what is missing."""
    wanted = {"cpu": 1000.0, "memory": 1.0, "gpu": 8.0}
    ceiling = {"cpu": 1000.0, "memory": 1.0}
    assert less_equal(wanted, {**wanted, **ceiling})
    assert minimum_present(wanted, ceiling) == wanted


@core(122)
def test_the_dimensions_in_which_a_request_is_too_much() -> None:
    held, nothing = {"cpu": 5000.0, "memory": 4000.0}, {"cpu": 0.0, "memory": 0.0}
    assert exceeding(held, nothing, held) == ["cpu", "memory"]
    assert exceeding(held, nothing, {"cpu": 1.0}) == ["cpu"]
    assert exceeding(held, nothing, {}) == []
    assert exceeding({"gpu": 1.0}, nothing, {"gpu": 1.0}) == ["gpu"]
    assert exceeding({"gpu": 1.0}, nothing, {"gpu": 0.0}) == []


@core(123)
def test_what_is_not_spoken_of_is_not_exceeded() -> None:
    asked = {"gpu": 1.0}
    assert exceeding({"gpu": 2.0}, {}, asked) == ["gpu"]
    assert not exceeds_relevant({"gpu": 2.0}, {}, asked)
    assert exceeds_relevant({"gpu": 2.0}, {"gpu": 0.0}, asked)
    assert exceeding({"cpu": 4.0}, {"cpu": 0.0}, {"cpu": 1.0}) == ["cpu"]
    assert not exceeds_relevant({"cpu": 4.0}, {"cpu": 0.0}, {"cpu": 1.0})


@core(124)
def test_the_smaller_of_two_in_each_dimension() -> None:
    left, right = {"cpu": 2000.0, "memory": 4e9, "hp": 0.0}, {"cpu": 3000.0, "memory": 1000.0}
    assert minimum_zero(left, right) == {"cpu": 2000.0, "memory": 1000.0, "hp": 0.0}
    assert minimum_present({**left, "hp": 5.0}, right) == {
        "cpu": 2000.0,
        "memory": 1000.0,
        "hp": 5.0,
    }
    assert minimum_zero({**left, "hp": 5.0}, right)["hp"] == 0.0


def counted(minimum: int) -> Any:
    here = World(policy(plugins=["gang"]))
    here.nodes("n1", cpu=8)
    here.job("job", pods=0, min_available=minimum)
    for kind, cpu in (("be", None), ("asks", 1)):
        for state in ("pending", "pipelined", "running"):
            here.pod(f"{kind}-{state}", job="job", cpu=cpu, node="n1" if state == "running" else "")
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    statement = session.statement()
    for kind in ("be", "asks"):
        statement.pipeline(here.state.tasks[f"default/{kind}-pipelined"], 0)
    return here.state.jobs["default/job"]


@core(125)
@pytest.mark.parametrize(("minimum", "ready", "starving"), [(5, False, True), (3, True, False)])
def test_what_counts_towards_a_minimum(minimum: int, ready: bool, starving: bool) -> None:
    job = counted(minimum)
    assert job.counts.pending_best_effort == 1
    assert (job.is_ready(), job.is_pipelined(), job.is_starving()) == (ready, True, starving)


@core(126)
def test_what_counts_as_scheduled() -> None:
    from hekla.engine.report import phase_of

    here = World(policy(plugins=["gang"]))
    here.nodes("n1", cpu=8)
    here.job("job", pods=0, min_available=5)
    for name, phase, node in (
        ("r", "Running", "n1"),
        ("b", "Pending", "n1"),
        ("f", "Failed", "n1"),
        ("s", "Succeeded", "n1"),
    ):
        here.pod(name, job="job", cpu=1, node=node, phase=phase)
    job = here.state.jobs["default/job"]
    assert job.counts.of(Status.RUNNING, Status.BOUND, Status.FAILED, Status.SUCCEEDED) == 4
    assert phase_of(job, "x") == "Inqueue"
    for node, phase in (("", "Inqueue"), ("n1", "Running")):
        here.pod("leaves", job="job", cpu=1, node=node)
        here.pods["default/leaves"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        here.state.upsert_pod(here.pods["default/leaves"])
        assert phase_of(job, "x") == phase


@core(127)
@pytest.mark.parametrize(
    ("gpus", "elastic"),
    [
        ([True], {}), ([True, False], {"cpu": 1000.0, "memory": 1e9, "pods": 1.0}),
        ([False, False], {"cpu": 1000.0, "memory": 1e9, "pods": 1.0}),
        ([True, True], {"cpu": 1000.0, "memory": 1e9, "nvidia.com/gpu": 1000.0, "pods": 1.0}),
    ],
)  # fmt: skip
def test_what_a_job_holds_beyond_its_minimum(gpus: list[bool], elastic: dict[str, float]) -> None:
    here = World(policy(plugins=["gang"]))
    here.nodes("n1", cpu=8, gpu=4)
    here.job(
        "job",
        pods=0,
        min_available=1,
        min_resources={"cpu": "1", "memory": "1G", "nvidia.com/gpu": "1", "pods": "1"},
    )
    for number, gpu in enumerate(gpus):
        here.pod(
            f"p{number}", job="job", node="n1", cpu=1, memory="1G", **({"gpu": 1} if gpu else {})
        )
    got = here.state.jobs["default/job"].elastic()
    assert {name: value for name, value in got.items() if value} == elastic


def test_a_request_knows_its_columns() -> None:
    space = ResourceSpace()
    request = Request(space, amounts({"cpu": "1", "example.com/card": "2"}), (1000.0, 0.0))
    assert dict(request) == {0: 1000.0, 1: 0.0, space.column("example.com/card"): 2000.0}
