"""`nodeFit: engine`: the scheduler's own policy says where a pod would land, and who would land no better stays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from hekla.descheduler.plugins.draining import LANDS_BADLY
from hekla.descheduler.policy.policy import Policy, PolicyError
from hekla.descheduler.reading import node_of, pod_of
from hekla.descheduler.scheduler_copy import (
    BACK,
    MOST_SECONDS,
    NO_MORE,
    NOWHERE,
    TOO_LONG,
    SchedulerCopy,
)
from hekla.descheduler.tables import Tables
from hekla.engine.tape import RecordingError
from hekla.engine.world import World, policy
from tests.descheduler.stories import Ran, profile, run

PACKING = policy(
    plugins=["priority", "gang", "predicates", "binpack"],
    actions="enqueue, allocate, preempt, backfill",
)
SPREADING = policy(
    plugins=[
        "priority",
        "gang",
        "predicates",
        {"name": "nodeorder", "arguments": {"leastrequested.weight": 10}},
    ]
)
ENGINE = "{nodeFit: engine}"


def low(evictor: str = ENGINE) -> Policy:
    arguments = "{thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}"
    return profile("LowNodeUtilization", arguments, evictor, "balance")


class Here:
    """A world, and the same cluster in the descheduler's tables."""

    def __init__(self, world: World, **nodes: float) -> None:
        self.world = world
        for name, cpu in nodes.items():
            world.nodes(name, cpu=cpu)
        self.nodes = nodes
        self.copy: SchedulerCopy | None = None

    def standing(self) -> dict[str, tuple[str, str]]:
        """Where the scheduler believes each pod to be."""
        state = self.world.state
        return {
            key: (task.status.value, state.nodes.names[task.row])
            for key, task in state.tasks.items()
        }

    def tables(self) -> Tables:
        rows = [
            node_of(
                {
                    "metadata": {"name": name},
                    "status": {"allocatable": {"cpu": str(cpu), "memory": "16Gi", "pods": "110"}},
                }
            )
            for name, cpu in self.nodes.items()
        ]
        tables = Tables(rows, [pod_of(tree) for tree in self.world.pods.values()])
        for key, group in self.world.groups.items():
            tables.minimum[key] = group["spec"]["minMember"]
        return tables

    def copied(self, clock: Callable[[], float] = lambda: 0.0) -> SchedulerCopy:
        return SchedulerCopy(
            self.world.state,
            self.world.policy,
            dict(self.world.pods),
            frozenset({"volcano"}),
            self.world.now,
            clock,
        )

    def run(self, given: Policy, *, clock: Callable[[], float] = lambda: 0.0, **more: Any) -> Ran:
        self.copy = self.copied(clock)
        return run(given, self.tables(), scheduler=self.copy, now=self.world.now, **more)


def hot(chosen: Any, **nodes: float) -> Here:
    """n1 has 3 of 4 cores given away."""
    here = Here(World(chosen), **(nodes or {"n1": 4, "n2": 4}))
    for number in range(3):
        here.world.job(
            f"web-{number}",
            cpu=1,
            on=["n1"],
            phase="Running",
            min_available=1,
            owner="ReplicaSet/web",
        )
    return here


def test_a_pod_that_the_scheduler_would_put_back_stays() -> None:
    here = hot(PACKING)
    assert run(low("{nodeFit: true}"), here.tables()).names, "by the rules of fit alone it goes"
    ran = here.run(low())
    assert ran.names == []
    assert ran.report.refused["LowNodeUtilization", BACK] == 3
    assert here.copy is not None and here.copy.questions == 1, "replicas are asked about once"


def test_a_pod_that_would_land_elsewhere_goes() -> None:
    assert len(hot(SPREADING).run(low()).names) == 1


def test_a_pod_that_would_make_another_node_hot_stays() -> None:
    here = hot(SPREADING, n1=4, n2=4, n3=16)
    here.world.job("on-3", cpu=9.5, on=["n3"], phase="Running")
    # by requests n3 is at 59%, and it has the most free; another pod would put it over 60%
    here.world.job("on-2", cpu=1, on=["n2"], phase="Running")
    here.world.policy = policy(
        plugins=[
            "priority",
            "gang",
            "predicates",
            {
                "name": "nodeorder",
                "arguments": {"leastrequested.weight": 0, "mostrequested.weight": 10},
            },
        ]
    )
    here.world.nodes("n1", cpu=4, unschedulable=True)
    ran = here.run(low())
    assert ran.names == []
    assert ran.report.refused["LowNodeUtilization", LANDS_BADLY] == 3


def test_what_was_not_evicted_after_all_leaves_no_trace() -> None:
    here = hot(SPREADING)
    refused = here.run(low(), taken=lambda _: False)
    assert refused.names == [] and here.copy is not None and here.copy.questions == 3
    assert here.standing() == hot(SPREADING).standing()
    again = here.run(low())
    assert len(again.names) == 1


def test_room_that_somebody_waits_for_is_no_place_to_come_back_to() -> None:
    here = hot(PACKING)
    here.world.nodes("n2", cpu=4, unschedulable=True)
    here.world.priority_class("high", 10)
    here.world.job("waits", cpu=2, priority="high")
    ran = here.run(low())
    assert ran.names == [] and ran.report.refused["LowNodeUtilization", NOWHERE] == 3
    assert here.standing()["default/waits-task-0"][0] == "Pending", "it was not really let in"


def test_what_was_evicted_holds_its_room_in_later_questions() -> None:
    here = hot(SPREADING, n1=4, n2=1)
    here.world.nodes("n1", cpu=4, unschedulable=True)
    ran = here.run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", ENGINE))
    assert len(ran.names) == 1, "n2 has room for one"


def test_a_gang_is_asked_about_as_a_whole() -> None:
    old = "{maxPodLifeTimeSeconds: 60}"
    whole = "{nodeFit: engine, gangPolicy: wholeGroup}"
    for free, gone in ((2, 2), (1, 0)):
        here = Here(World(SPREADING), n1=2, n2=free, n3=1)
        here.world.nodes("n1", cpu=2, unschedulable=True)
        here.world.job("train", pods=2, cpu=1, on=["n1", "n1"], phase="Running", owner="Job/train")
        here.world.job("fills", cpu=1, on=["n3"], phase="Running", owner="DaemonSet/d")
        ran = here.run(profile("PodLifeTime", old, whole))
        assert len(ran.names) == gone


def test_of_pods_of_another_scheduler_the_rules_of_fit_decide() -> None:
    here = Here(World(PACKING), n1=4, n2=4)
    for number in range(3):
        here.world.pod(f"p{number}", node="n1", cpu=1, scheduler="other", owner="ReplicaSet/web")
    assert len(here.run(low()).names) == 1 and here.copy is not None and here.copy.questions == 0


def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hekla.descheduler.scheduler_copy.MOST_QUESTIONS", 1)
    ran = hot(SPREADING).run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", ENGINE))
    assert len(ran.names) == 1 and ran.report.refused["PodLifeTime", NO_MORE] == 2


def test_questions_take_so_long_and_no_longer() -> None:
    asks = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", ENGINE)
    ticks = count(0, MOST_SECONDS / 2 + 1)
    here = hot(SPREADING)
    ran = here.run(asks, clock=lambda: float(next(ticks)), taken=lambda _: False)
    assert here.copy is not None and here.copy.questions == 2
    assert ran.report.refused == {("PodLifeTime", TOO_LONG): 1}


def test_a_pod_of_another_queue_has_an_answer_of_its_own() -> None:
    shared = policy(plugins=["priority", "gang", "predicates", "proportion", "nodeorder"])
    here = Here(World(shared), n1=4, n2=4)
    here.world.nodes("n1", cpu=4, unschedulable=True)
    here.world.queue("full", capability={"cpu": 1})
    for name, queue in (("a", "full"), ("b", "full"), ("c", "default")):
        here.world.job(name, cpu=1, on=["n1"], phase="Running", queue=queue, owner="ReplicaSet/web")
    ran = here.run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", ENGINE))
    assert ran.names == ["c-task-0"] and ran.report.refused["PodLifeTime", NOWHERE] == 2


def test_a_pod_of_another_priority_has_an_answer_of_its_own() -> None:
    here = hot(PACKING)
    here.world.nodes("n2", cpu=4, unschedulable=True)
    here.world.priority_class("middle", 10)
    here.world.priority_class("high", 20)
    here.world.job(
        "first", cpu=1, on=["n1"], phase="Running", priority="high", owner="ReplicaSet/web"
    )
    here.world.job("waits", cpu=1, priority="middle")
    ran = here.run(low())
    refused = ran.report.refused
    assert refused["LowNodeUtilization", NOWHERE] == 3 and refused["LowNodeUtilization", BACK] == 1


def test_what_one_plugin_finds_no_better_another_may_take() -> None:
    here = hot(SPREADING)
    copy = here.copied()
    (pod, *_) = here.tables().pods.values()
    assert copy.ask([pod], lambda *_: LANDS_BADLY) == (LANDS_BADLY, {})
    assert copy.ask([pod], lambda *_: "") == ("", {pod.key: "n2"})


def test_a_gang_is_known_by_all_its_members() -> None:
    here = hot(SPREADING)
    here.world.job("huge", cpu=8, on=["n1"], phase="Running", owner="ReplicaSet/web")
    copy, pods = here.copied(), here.tables().pods
    one, other, huge = (pods[f"default/{name}-task-0"] for name in ("web-0", "web-1", "huge"))
    assert copy.ask([one, huge], lambda *_: "") == (NOWHERE, {})
    assert copy.ask([one, other], lambda *_: "")[0] == ""


def test_a_profile_whose_scheduler_cannot_be_asked_evicts_nothing() -> None:
    ran = run(low(), hot(SPREADING).tables(), unasked="no scheduler says where it is")
    assert ran.names == []
    assert ran.report.problems == [
        "profile p evicts nothing: nodeFit is engine, and no scheduler says where it is"
    ]


def test_a_snapshot_that_broke_off_is_none() -> None:
    with pytest.raises(RecordingError, match="broke off"):
        SchedulerCopy.of([("header", 1, "0", {})], "the snapshot")
    with pytest.raises(RecordingError, match="no snapshot has a frame 'upsert_planet' here"):
        SchedulerCopy.of(
            [("header", 1, "0", {}), ("upsert_planet", {}), ("moment", 1.0)], "the snapshot"
        )
    files = ("policy", "p.yaml", "", {"mine.py": "..."})
    with pytest.raises(RecordingError, match="plugins of its own"):
        SchedulerCopy.of([("header", 1, "0", {}), files, ("moment", 1.0)], "the snapshot")


def test_the_third_value_of_node_fit() -> None:
    assert low().asks_scheduler and not low("{nodeFit: true}").asks_scheduler
    with pytest.raises(PolicyError) as error:
        low("{nodeFit: engin}")
    assert error.value.problems == [
        "in profile p: DefaultEvictor: nodeFit 'engin': expected true, false or engine"
    ]
