"""The state follows events, and leaves out what it cannot understand with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine import State, cycle
from hekla.engine.model.tasks import Status
from hekla.engine.world import World, policy

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "name",
                    "spec",
                    "status",
                    "containers",
                    "resources",
                    "requests",
                    "cpu",
                    "affinity",
                    "allocatable",
                    "minMember",
                    "nodeName",
                    "annotations",
                    "tolerations",
                    "podAntiAffinity",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=200, deadline=None)
@given(tree=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JSON))
def test_no_object_raises(tree: dict) -> None:
    world = World(policy())
    world.nodes("n1")
    tree = {**tree, "metadata": {"name": "odd", "namespace": "default"}}
    for upsert in (
        world.state.upsert_pod,
        world.state.upsert_node,
        world.state.upsert_pod_group,
        world.state.upsert_queue,
        world.state.upsert_priority_class,
        world.state.upsert_namespace,
    ):
        upsert(tree)
    world.job("fine", cpu=1)
    assert "default/fine-task-0" in world.run().bound()


def test_a_quantity_that_is_none_is_named() -> None:
    world = World(policy())
    world.pod("odd", cpu="1.5.5")
    (reason,) = world.state.rejected.values()
    assert "1.5.5" in reason
    world.pod("odd", cpu="1.5")
    assert world.state.rejected == {}


@pytest.mark.scenario("scheduler-core", 120)
def test_a_node_counts_what_is_on_it() -> None:
    world = World(policy())
    world.nodes("n1", cpu=8, memory="10G", pods=20)
    world.pod("a", node="n1", cpu=1, memory="1G")
    world.pod("b", node="n1", cpu=2, memory="2G")
    nodes = world.state.nodes
    assert nodes.idle_of(0) == {"cpu": 5000, "memory": 7e9, "pods": 18}
    world.state.remove_pod("default/a")
    assert nodes.idle_of(0) == {"cpu": 6000, "memory": 8e9, "pods": 19}
    world.nodes("n1", cpu=1, memory="1G", pods=20)
    assert nodes.idle_of(0)["cpu"] == -1000


def test_pods_may_come_before_their_node() -> None:
    world = World(policy())
    world.pod("early", node="n1", cpu=1)
    assert not world.state.nodes.ready[0]
    world.nodes("n1", cpu=4)
    assert world.state.nodes.idle_of(0)["cpu"] == 3000


def test_a_finished_pod_holds_nothing() -> None:
    world = World(policy())
    world.nodes("n1", cpu=4)
    world.pod("done", node="n1", cpu=1, phase="Succeeded")
    assert world.state.nodes.idle_of(0)["cpu"] == 4000


@pytest.mark.scenario("scheduler-core", 115)
@pytest.mark.parametrize(
    ("containers", "inits", "cpu", "memory"),
    [
        ([("1", "1G"), ("2", "1G")], [], 3000, 2e9),
        ([("1", "1G"), ("2", "1G")], [("2", "5G", None), ("2", "1G", None)], 3000, 5e9),
    ],
)
def test_what_a_pod_asks_for(containers: list, inits: list, cpu: float, memory: float) -> None:
    assert request(containers, inits) == {"cpu": cpu, "memory": memory, "pods": 1}


@pytest.mark.scenario("scheduler-core", 116)
@pytest.mark.parametrize(
    ("containers", "inits", "cpu"),
    [
        (["1"], [("1", "Always")], 2),
        (["1"], [("5", None), ("1", "Always"), ("2", "Always"), ("3", "Always")], 7),
        (["1"], [("5", None), ("1", "Always"), ("2", "Always"), ("5", None), ("3", "Always")], 8),
        (["100"], [("10", "Always"), ("200", None)], 210),
    ],
)
def test_sidecars_stay_while_init_containers_pass(containers: list, inits: list, cpu: int) -> None:
    got = request([(one, "0") for one in containers], [(one, "0", policy) for one, policy in inits])
    assert got["cpu"] == cpu * 1000


def request(containers: list, inits: list) -> dict:
    def made(cpu: str, memory: str, restart: str | None = None) -> dict:
        one: dict = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        return {**one, "restartPolicy": restart} if restart else one

    state = State()
    spec = {
        "containers": [made(*one) for one in containers],
        "initContainers": [made(*one) for one in inits],
    }
    return dict(state.pods.read({"metadata": {"name": "p"}, "spec": spec}).request.amounts)


@pytest.mark.scenario("scheduler-core", 148)
def test_a_pod_without_a_group_makes_no_job() -> None:
    world = World(policy())
    world.pod("plain", cpu=1)
    assert world.state.jobs == {}


def test_a_lone_pod_of_the_default_scheduler_is_a_job_of_its_own() -> None:
    world = World(policy())
    world.nodes("n1")
    world.pod("lone", cpu=1, scheduler="default-scheduler")
    decisions = world.run()
    assert decisions.bound() == {"default/lone": "n1"}
    assert decisions.pod_groups == []
    world.settle()
    world.state.remove_pod("default/lone")
    assert world.state.jobs == {} and world.state.nodes.used.sum() == 0


def test_unassigned_pods_of_other_schedulers_are_not_seen() -> None:
    state = State(scheduler_names=["volcano"])
    state.upsert_pod(
        {"metadata": {"name": "x"}, "spec": {"schedulerName": "other", "containers": []}}
    )
    assert state.tasks == {}


@pytest.mark.scenario("scheduler-core", 160)
def test_a_pod_that_is_seen_bound_confirms_the_bind() -> None:
    world = World(policy())
    world.nodes("n1")
    world.job("one", cpu=1)
    world.run()
    assert world.state.tasks["default/one-task-0"].status is Status.BINDING
    world.settle()
    assert world.state.tasks["default/one-task-0"].status is Status.RUNNING


def test_a_cycle_in_which_nothing_changed_says_nothing() -> None:
    world = World(policy())
    world.nodes("n1", cpu=1)
    world.job("big", cpu=4)
    assert world.run().conditions
    assert cycle(world.state, world.policy, 5.0).empty


def test_the_same_events_give_the_same_decisions() -> None:
    def decide() -> list:
        world = World(policy())
        world.nodes(*(f"n{number}" for number in range(20)), cpu=4)
        for number in range(10):
            world.job(
                f"job{number}",
                pods=number % 5 + 1,
                cpu=1,
                phase="Pending",
                min_resources={"cpu": 1},
            )
        return world.run().binds

    assert decide() == decide()


def test_nodes_that_come_and_go_leave_no_rows_behind() -> None:
    world = World(policy())
    world.nodes("stays", cpu=4, labels={"zone": "a"})
    world.job("held", cpu=1, on=["stays"])
    apart = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    spec = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    }
    for number in range(300):
        world.nodes(f"passing-{number}", cpu=4)
        world.state.remove_node(f"passing-{number}")
    world.nodes("last", cpu=4, labels={"zone": "b"})
    world.pod("loner", job="held", node="last", cpu=1, labels={"app": "x"}, spec=spec)

    world.run()

    assert world.state.nodes.names == ["stays", "last"]
    assert world.state.tasks["default/loner"].row == 1
    assert world.state.nodes.idle_of(1)["cpu"] == 3000
    world.job("other", pods=1, cpu=1, labels={"app": "x"}, spec=spec)
    assert set(world.run().bound().values()) == {"stays"}


def test_classes_without_pods_are_forgotten() -> None:
    world = World(policy())
    world.nodes("n1", cpu=4)
    for number in range(1500):
        world.pod(f"passing-{number}", cpu=f"{number + 1}m", labels={"n": str(number)})
        world.state.remove_pod(f"default/passing-{number}")
    world.job("one", cpu=1)
    world.run()
    assert len(world.state.classes.by_key) == 1 and len(world.state.terms.label_sets) == 1
    world.pod("again", cpu="1500m", labels={"n": "1499"})
    again = world.state.tasks["default/again"]
    assert any(again.pods is one for one in world.state.classes.by_key.values())
    assert any(again.labels is one for one in world.state.terms.label_sets.values())


def test_a_lone_pod_counts_for_its_queue_while_it_runs() -> None:
    world = World(policy())
    world.nodes("n1", cpu=4)
    world.pod("lone", cpu=1, scheduler="default-scheduler")
    world.run()
    world.settle()
    world.run()
    assert world.state.queues["default"].allocated["cpu"] == 1000


def test_other_objects_stay_when_their_owner_lets_go_of_them() -> None:
    state = State()
    tree = {"metadata": {"name": "h1", "labels": {"a": "b"}}, "spec": {"tier": 1}}
    state.upsert_other("HyperNode", tree)
    tree["metadata"].pop("labels")
    tree.pop("spec")
    assert state.others["HyperNode"]["h1"] == {
        "metadata": {"name": "h1", "labels": {"a": "b"}},
        "spec": {"tier": 1},
    }


def test_a_class_that_is_the_default_no_longer_gives_nobody_its_priority() -> None:
    world = World(policy())
    world.priority_class("usual", 50, default=True)
    world.job("one")
    world.run()
    assert world.state.jobs["default/one"].priority == 50
    world.priority_class("usual", 50)
    world.run()
    assert world.state.jobs["default/one"].priority == 0


def test_a_queue_that_was_left_and_came_again_in_between_counts_from_nothing() -> None:
    world = World(policy())
    world.queue("old")
    world.job("one", cpu=1, queue="old")
    world.run()
    group = world.groups["default/one"]
    group["spec"]["queue"] = "default"
    world.state.upsert_pod_group(group)
    world.state.remove_queue("old")
    world.queue("old")
    world.run()
    assert (world.state.queues["old"].jobs, world.state.queues["default"].jobs) == (0, 1)
    assert world.state.queues["old"].request["cpu"] == 0
