"""What comes back as it was written, and what waits for its moment, is not looked at again: every
cycle decides what it would have."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api.names import EXPLANATION
from hekla.engine.framework.session import Session
from hekla.engine.model import state as engine_state
from hekla.engine.model.pods import PodTable
from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.plugins.fairness.proportion import Accounts
from hekla.engine.world import World, policy
from tests.engine.malformed import OBJECTS
from tests.engine.test_malformed_objects import VALUE, places, spoiled
from tests.engine.test_one_pod_jobs import POLICIES, queues, step, tables

renewed = Accounts.renew


def looks_at_all(patch: pytest.MonkeyPatch) -> None:
    """From here on every echo is a change, no job rests, a pod that goes on leaves its place and
    comes again, and nothing is known from the cycle before."""
    reads_each_pod(patch)
    patch.setattr(Accounts, "renew", lambda _, *about: renewed(Accounts(), *about))
    patch.setattr(Queue, "reported", property(lambda _: -1, lambda *_: None), raising=False)
    patch.setattr(PodTable, "_renews", lambda *_: False)
    patch.setattr(PodTable, "_read_on", lambda *_: False)
    patch.setattr(engine_state, "says_as_sent", lambda status, job: False)
    patch.setattr(Session, "rests", lambda self, job: False)


def reads_each_pod(patch: pytest.MonkeyPatch) -> None:
    """From here on nothing is known of a pod from others of its template."""
    patch.setattr(
        PodTable, "_template", lambda pods, meta, spec: pods._read_template(b"", meta, spec)
    )


def said(world: World) -> list[Any]:
    """What a cycle decided, but for explanations and metrics of jobs of which neither has changed,
    and for the number of the cycle."""
    made = world.decisions
    groups = [
        msgspec.structs.replace(one, conditions=without_cycle(one.conditions))
        for one in made.pod_groups
    ]
    told: list[list[Any]] = [made.pipelined, groups, made.conditions, made.queues, made.events]
    return [made.binds, made.evictions, made.gates, *(sorted(one, key=str) for one in told)]


def without_cycle(conditions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in one.items() if name != "transitionID"} for one in conditions
    ]


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(3, 20))
def test_cycles_that_let_jobs_rest_decide_what_those_do_that_look_at_all(
    name: str, seed: int, length: int
) -> None:
    tiers, actions = POLICIES[name]
    worlds = [World(policy(tiers=tiers, actions=actions), default_queue=False) for _ in range(2)]
    draws = [random.Random(seed), random.Random(seed)]
    told: list[list[Any]] = [[], []]
    for world, draw, heard, thorough in zip(worlds, draws, told, (True, False)):
        with pytest.MonkeyPatch.context() as patch:
            if thorough:
                looks_at_all(patch)
            queues(world, draw)
            world.priority_class("high", 100)
            world.nodes(
                "n0",
                "n1",
                "big",
                cpu=draw.choice([9, 40, 150]),
                pods=150,
                memory="64Gi",
                labels={"zone": "a"},
            )
            for number in range(length):
                step(world, draw, number)
                heard.append(said(world))
                for _ in range(draw.randrange(3)):
                    world.now += draw.choice([0.1, 0.4])
                    world.run()
                    heard.append(said(world))
                    if draw.random() < 0.5:
                        world.settle()
    assert told[0] == told[1]
    for world in worlds:
        for job in world.state.jobs.values():
            job.conditions = without_cycle(job.conditions)
        active = world.state.active
        for key in sorted(active):
            active[key] = active.pop(key)
    assert tables(worlds[0]) == tables(worlds[1])


def of_pods(state: engine_state.State) -> list[Any]:
    """All that the state has of its pods, in its order."""
    found: list[Any] = []
    for task in state.tasks.values():
        own = {
            name: getattr(task, name)
            for name in Task.__slots__
            if name not in ("job", "subjob", "pods", "labels", "stated")
        }
        found.append(
            (
                own,
                task.pods.number,
                task.labels.labels,
                task.job and task.job.key,
                task.subjob and task.subjob.uid,
            )
        )
    for job in state.jobs.values():
        found.append(
            (
                job.key,
                list(job.tasks),
                {status: list(some) for status, some in job.counts.statuses.items()},
                job.counts.roles,
            )
        )
    nodes = state.nodes
    columns = [
        getattr(nodes, name).tolist()
        for name in ("used", "releasing", "requested", "nonzero", "pods")
    ]
    return [
        *found,
        columns,
        [list(held) for held in nodes.tasks],
        state.rejected,
        list(state.unreported),
        state.version,
    ]


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_pod_of_which_the_status_alone_changed_is_what_it_would_be_read_as(
    data: st.DataObject,
) -> None:
    tree = copy.deepcopy(OBJECTS["Pod"])
    del tree["spec"]["schedulingGates"]
    tree["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]
    if data.draw(st.integers(0, 3)):
        del tree["spec"]["resourceClaims"]
    if data.draw(st.integers(0, 3)):
        tree["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "1", "memory": "1Gi"},
            "limits": {"cpu": "2"},
        }
    states = engine_state.State(), engine_state.State()
    tree["spec"]["nodeName"] = "n1"
    steps = [spoiled(tree, ("spec", "nodeName"), ""), tree]
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            tree = copy.deepcopy(tree)
            tree["status"] |= {
                "phase": data.draw(st.sampled_from(["Pending", "Running", "Running", "Succeeded"])),
                "startTime": data.draw(st.sampled_from([None, "2026-01-01T00:00:07Z"])),
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "True",
                        "lastTransitionTime": "2026-01-01T00:00:08Z",
                    }
                ],
                "nominatedNodeName": data.draw(st.sampled_from(["", "n1", "n2"])),
                "resourceClaimStatuses": data.draw(
                    st.sampled_from([[], [{"name": "c", "resourceClaimName": "made"}]])
                ),
            }
            steps.append(tree)
        else:
            at = data.draw(st.sampled_from([place for place in places(tree) if place]))
            changed = [
                spoiled(tree, at, data.draw(VALUE)),
                spoiled(tree, ("metadata", "deletionTimestamp"), "2026-01-01T00:00:09Z"),
                spoiled(tree, ("spec", "nodeName"), "n2"),
            ]
            steps += [
                changed[max(0, data.draw(st.integers(-3, 2)))],
                *data.draw(st.sampled_from([[], [tree]])),
            ]
    for thorough, state in zip((True, False), states):
        with pytest.MonkeyPatch.context() as patch:
            if thorough:
                patch.setattr(PodTable, "_read_on", lambda *_: False)
                reads_each_pod(patch)
            state.upsert_node(
                {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "9", "pods": "9"}}}
            )
            state.upsert_pod_group(
                {"metadata": {"name": "pg", "namespace": "default"}, "spec": {"minMember": 1}}
            )
            for one in steps:
                state.upsert_pod(copy.deepcopy(one))
    assert repr(of_pods(states[0])) == repr(of_pods(states[1]))


def test_what_a_pod_said_before_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(policy())
    world.nodes("n1")
    world.job("train", cpu=1)
    world.run()
    monkeypatch.setattr(PodTable, "read", None)
    world.settle()
    (tree,) = world.pods.values()
    tree["status"]["phase"] = "Running"
    world.state.upsert_pod(tree)
    assert not world.state.rejected
    assert [task.status for task in world.state.tasks.values()] == [Status.RUNNING]


def test_what_a_pod_of_the_template_said_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(policy())
    world.nodes("n1")
    world.job("train", pods=1, cpu=1)
    monkeypatch.setattr(PodTable, "_read_template", None)
    ((key, first),) = world.pods.items()
    second = copy.deepcopy(first)
    second["metadata"] |= {"name": "train-main-7", "uid": "another", "creationTimestamp": None}
    world.state.upsert_pod(second)
    assert not world.state.rejected
    kept, come = world.state.tasks[key], world.state.tasks["default/train-main-7"]
    assert come.annotations is kept.annotations and come.pods is kept.pods
    assert (come.uid, come.index, come.creation) == ("another", 7, 0.0)
    assert set(world.run().bound()) == {key, come.key}


def one_that_runs() -> World:
    world = World(policy())
    world.nodes("n1")
    world.job("train", phase="Pending", cpu=1, min_resources={"cpu": 1})
    for _ in range(3):
        world.run()
        world.settle()
    world.run()
    return world


def test_the_echo_of_a_status_changes_nothing() -> None:
    world = one_that_runs()
    group, state = world.groups["default/train"], world.state
    version = state.version
    echo = {**group, "metadata": {**group["metadata"], "resourceVersion": "7"}}
    state.upsert_pod_group(echo)
    state.upsert_pod_group(
        {**echo, "metadata": {**echo["metadata"], "annotations": {EXPLANATION: "{}"}}}
    )
    assert (state.version, state.job_table.dirty) == (version, {})
    job = state.jobs["default/train"]
    assert job.conditions == group["status"]["conditions"]
    for changed in (
        {**echo, "status": {**echo["status"], "running": 5}},
        {**echo, "status": {**echo["status"], "phase": "Pending"}},
        {**echo, "spec": {**echo["spec"], "minMember": 3}},
        {
            **echo,
            "metadata": {**echo["metadata"], "annotations": {"volcano.sh/preemptable": "true"}},
        },
    ):
        state.upsert_pod_group(changed)
        assert list(state.job_table.dirty) == ["default/train"]
        state.count_changes()
        state.upsert_pod_group(echo)
        state.count_changes()


def test_a_group_that_left_and_came_again_is_read_whole() -> None:
    world = one_that_runs()
    group, state = world.groups["default/train"], world.state
    state.remove_pod_group("default/train")
    state.upsert_pod_group(group)
    job = state.jobs["default/train"]
    assert job.has_group
    assert list(state.job_table.dirty) == ["default/train"]


def test_a_count_that_waits_for_its_second_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(policy())
    world.nodes("n1", cpu=8)
    world.job("train", pods=2, min_available=1, cpu=1)
    world.run()
    world.settle()
    world.run()
    rested: list[str] = []
    rests = Session.rests

    def watched(self: Session, job: Job) -> bool:
        answer = rests(self, job)
        if answer:
            rested.append(job.key)
        return answer

    monkeypatch.setattr(Session, "rests", watched)
    for tree in world.pods.values():
        tree["status"]["phase"] = "Succeeded"
        world.state.upsert_pod(tree)
        break
    world.now += 0.2
    world.run()
    assert not world.decisions.pod_groups
    world.now += 0.2
    world.run()
    assert not world.decisions.pod_groups
    assert "default/train" in rested
    world.now += 1
    world.run()
    (status,) = world.decisions.pod_groups
    assert (status.running, status.succeeded) == (1, 1)
