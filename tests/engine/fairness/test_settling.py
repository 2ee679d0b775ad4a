"""Evictions end: queues that both see themselves in the right do not take the same room from each
other for ever."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.engine.framework.plugin import Plugin, Victims
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.tasks import Job, Task
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.fairness.settling import (
    LAYOUTS,
    MOVING,
    RECLAIM,
    Settled,
    drawn,
    played,
    settled,
    turn,
    two_queues,
)
from tests.engine.fairness.stage import evicted
from tests.engine.fairness.test_rest import held

JOBS: dict[str, Mapping[str, Any]] = {
    "one pod": {},
    "one pod with much memory": {"memory": "3Gi"},
    "four pods, two at least": {"pods": 4, "least": 2},
    "four pods": {"pods": 4, "least": 4},
}
MOST = 8
"""Of 32 cpu in pods of 2, half change hands."""
SEEDS = 3


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_queues_that_both_want_everything_settle(layout: str, jobs: str) -> None:
    found = settled(two_queues(layout, **JOBS[jobs]))
    assert found.quiet
    assert found.evictions in (0, MOST)
    if layout in ("page", "upstream", "advised", "gangreclaim", "gangreclaim, first tier"):
        assert (held(found.world)["qx"], held(found.world)["qy"]) == (16000, 16000), (
            "as far above its 12 the one as the other"
        )


@pytest.mark.parametrize("block", ["yaml", "text"])
@pytest.mark.parametrize("jobs", JOBS)
def test_the_layouts_of_the_page_give_back(block: str, jobs: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "scheduler" / "capacity.md").read_text()
    (found,) = re.findall(rf"```{block}\n(.*?)```", page, re.DOTALL)
    tree = yaml.safe_load(found)
    rules = read_policy(tree if block == "yaml" else {"actions": RECLAIM, "tiers": tree})
    world = two_queues("page", **JOBS[jobs], rules=rules)
    assert settled(world).quiet
    assert (held(world)["qx"], held(world)["qy"]) == (16000, 16000)


@pytest.mark.parametrize("layout", [*LAYOUTS, *MOVING])
def test_random_clusters_settle(layout: str) -> None:
    for seed in range(SEEDS):
        assert played(layout, seed).quiet, seed


@pytest.mark.parametrize(
    ("layout", "seed"),
    [("proportion", 32), ("proportion, gangs", 44), ("all actions", 24), ("page, tree", 142)],
)
def test_circles_that_the_shares_allow_are_broken(layout: str, seed: int) -> None:
    """Found among random clusters: three queues in a circle, two actions against each other, room
    that an ancestor may not give."""
    found: Settled = played(layout, seed)
    assert found.quiet
    assert found.evictions < 30


@pytest.mark.parametrize(
    ("layout", "seed"),
    [
        ("rescheduling", 9),
        ("rescheduling", 19),
        ("rescheduling, packed", 3),
        ("rescheduling, capacity", 42),
    ],
)
def test_moves_off_busy_nodes_come_to_an_end(layout: str, seed: int) -> None:
    """Found among random clusters: a pod that makes busy whatever node it is on, two that change
    places, nodes that look idle once they are left, moves that queues take part in."""
    found = played(layout, seed)
    assert found.quiet
    assert found.evictions <= 3 * len(found.world.pods)


def test_a_claim_is_for_what_is_short() -> None:
    """Within its share of memory a queue takes no cpu from one that holds no more than its own."""
    world = drawn("page", 0)
    world = World(policy(tiers=LAYOUTS["no gang"][0], actions=RECLAIM))
    world.nodes("n1", cpu=4, memory="64Gi")
    for queue in ("qx", "qy"):
        world.queue(queue, deserved={"cpu": 2, "memory": "24Gi"})
        world.job(f"{queue}-0", cpu=2, memory="1Gi", queue=queue, phase="Pending")
    world.job("more", cpu=2, memory="1Gi", queue="qy", phase="Pending")
    assert settled(world).evictions == 0


class Greedy(Plugin):
    """Lets everybody take from everybody."""

    name = "greedy"

    def job_starving(self, job: Job) -> bool:
        return job.is_starving()

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return Victims(candidates)


def greedy() -> World:
    """One place, and a queue more than can have it."""
    world = World(policy(plugins=["greedy", "predicates"], actions=RECLAIM, custom=[Greedy]))
    world.nodes("n1", cpu=1)
    for queue in ("qa", "qb", "qc"):
        world.queue(queue)
        world.job(f"job-{queue}", cpu=1, queue=queue)
    return world


def victims(world: World, cycles: int = 12) -> list[str]:
    return [pod for _ in range(cycles) for pod in evicted(turn(world))]


def told(decisions: Decisions) -> list[str]:
    return [
        f"{one.key}: {one.message}" for one in decisions.events if one.reason == "EvictionHeldBack"
    ]


def test_nobody_takes_back_what_was_taken() -> None:
    world = greedy()
    gone, words, counted = [], [], 0.0
    for _ in range(12):
        decisions = turn(world)
        gone += evicted(decisions)
        words += told(decisions)
        counted += sum(
            value for name, _, value in decisions.metrics if name == "evictions_held_back_total"
        )
    assert len(gone) <= 3, gone
    assert words[0].endswith("took room from queue qa, and no queue, node or job has changed since")
    assert counted == len(words) == len(set(words)), "each is said once"
    world.queue("qa", weight=3)
    turn(world)
    assert "took this room before" not in world.why("job-qa")


def settle_greedy() -> World:
    world = greedy()
    assert settled(world).quiet
    assert world.state.transfers.disturbed
    return world


OUTSIDE: dict[str, Callable[[World], None]] = {
    "a queue changes": lambda world: world.queue("qb", weight=7),
    "a queue comes": lambda world: world.queue("qd"),
    "a queue goes": lambda world: world.state.remove_queue("qc"),
    "a node comes": lambda world: world.nodes("n2", cpu="100m"),
    "a node changes": lambda world: world.nodes("n1", cpu=1, labels={"zone": "a"}),
    "a node goes": lambda world: world.state.remove_node("n1"),
    "a job comes": lambda world: world.job("fresh", cpu=5, queue="qa"),
    "a job changes": lambda world: world.state.upsert_pod_group(
        {
            **world.groups["default/job-qa"],
            "spec": {**world.groups["default/job-qa"]["spec"], "minMember": 2},
        }
    ),
    "a job ends": lambda world: world.end(
        next(one.job.name for one in world.state.tasks.values() if one.job and one.row >= 0)
    ),
    "a job goes": lambda world: world.state.remove_pod_group("default/job-qc"),
    "a priority changes": lambda world: world.priority_class("high", 1000),
}


@pytest.mark.parametrize("change", OUTSIDE)
def test_what_changes_outside_opens_the_question_again(change: str) -> None:
    world = settle_greedy()
    OUTSIDE[change](world)
    assert not world.state.transfers.disturbed


def test_what_comes_of_evictions_changes_nothing() -> None:
    """Pods made anew, a job that restarts, nodes and queues whose status is written again."""
    world = settle_greedy()
    for name in ("job-qa", "job-qb", "job-qc"):
        pod = world.pods[f"default/{name}-task-0"]
        world.state.upsert_pod({**pod, "metadata": {**pod["metadata"], "resourceVersion": "7"}})
        world.state.upsert_pod_group(world.groups[f"default/{name}"])
    world.nodes("n1", cpu=1, annotations={"heartbeat": "3"})
    world.state.upsert_queue(
        {
            "metadata": {"name": "qa"},
            "spec": {"weight": 1},
            "status": {"state": "Open", "allocated": {"cpu": "1"}},
        }
    )
    restarted = next(
        name
        for name in ("job-qa", "job-qb", "job-qc")
        if f"default/{name}" in world.state.transfers.disturbed
    )
    pod = world.pods[f"default/{restarted}-task-0"]
    world.state.remove_pod(f"default/{restarted}-task-0")
    world.state.upsert_pod({**pod, "metadata": {**pod["metadata"], "uid": "again"}})
    assert world.state.transfers.disturbed
    assert victims(world) == []


def test_pods_of_one_owner_are_the_same_party_under_any_name() -> None:
    """A ReplicaSet's pod that was evicted comes back under another name, and is no new job."""
    world = settle_greedy()
    world.state.default_queue = "qa"
    owned = {"scheduler": "default-scheduler", "cpu": 1, "owner": "ReplicaSet/web"}
    world.pod("web-x1", **owned)
    task = world.state.tasks["default/web-x1"]
    assert not world.state.transfers.disturbed, "it is new"
    world.state.transfers.evicted(task, None)
    world.state.remove_pod("default/web-x1")
    world.pod("web-x2", **owned)
    assert world.state.transfers.disturbed


def test_who_never_gets_what_is_freed_for_him_gives_up() -> None:
    world = played("proportion", 114).world
    assert victims(world) == []
