"""A search for victims that failed is not made again for a pod like that one: every cycle decides
what it would with each search made."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.actions.preempt import _Preemption
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.explain.no_victims import FailedSearches, Search
from hekla.engine.framework.plugin import ABSTAIN, Plugin, Reads, Source, Victims
from hekla.engine.model.decisions import Decisions
from hekla.engine.world import World, policy
from tests.engine.test_one_pod_jobs import apart, tables, zone


class Each(Plugin):
    """Has no opinion about victims, but might look at the very pod that claims."""

    name = "onlooker"

    def preemptable(self, *asked: Any) -> Victims:
        return Victims(vote=ABSTAIN)

    def reclaimable(self, *asked: Any) -> Victims:
        return Victims(vote=ABSTAIN)


class Alike(Each):
    reads = Reads(victims=Source.PREEMPTOR)


class Heir(Alike):
    """Fills the hook itself, and so would have to say for itself that it asks alike."""


POLICIES: dict[str, tuple[list[list[Any]], str]] = {
    "chart": (
        [
            ["priority", "gang", "conformance"],
            ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
        ],
        "enqueue, allocate, preempt, reclaim, backfill",
    ),
    "capacity": (
        [
            ["priority", "gang", "conformance", "pdb"],
            ["drf", "predicates", "capacity", "nodeorder"],
        ],
        "allocate, preempt, reclaim",
    ),
    "drf": (
        [["gang", {"name": "drf", "enableHierarchy": True}, "predicates"]],
        "allocate, preempt, reclaim",
    ),
    "without gang": ([["priority", "cdp", "predicates", "tdm"]], "allocate, preempt, reclaim"),
}


def world_of(name: str, kind: type[Plugin], aware: bool = False) -> World:
    tiers, actions = POLICIES[name]
    configurations = [{"name": "preempt", "arguments": {"enableTopologyAwarePreemption": aware}}]
    made = policy(
        tiers=[[*tiers[0], "onlooker"], *tiers[1:]],
        actions=actions,
        configurations=configurations,
        custom=[kind],
    )
    return World(made, default_queue=False)


def begin(world: World, draw: random.Random) -> None:
    for name in ("default", "other"):
        deserved = {"cpu": draw.randint(1, 6)} if draw.random() < 0.7 else {}
        world.queue(
            name, weight=draw.randint(1, 3), reclaimable=draw.random() < 0.8, deserved=deserved
        )
    for name, value in (("low", 1), ("high", 100)):
        world.priority_class(name, value)
    for number in range(draw.randint(1, 4)):
        world.nodes(
            f"n{number}",
            cpu=draw.randint(1, 5),
            pods=draw.choice([3, 20]),
            labels={"zone": draw.choice("ab")},
        )


def step(world: World, draw: random.Random, number: int) -> None:
    kind = draw.randrange(6)
    if kind < 3:
        like = {
            "cpu": draw.choice([1, 1, 2, 3, None]),
            "queue": draw.choice(["default", "other"]),
            "priority": draw.choice(["", "low", "high"]),
            "preemptable": draw.choice([True, True, False]),
            "labels": {"app": draw.choice("ab")},
            "spec": draw.choice([{}, {}, zone(), apart(), {"preemptionPolicy": "Never"}]),
            "port": draw.choice([0, 0, 80]),
        }
        for at in range(draw.randint(1, 6)):
            pods = draw.choice([1, 1, 1, 3])
            world.job(
                f"job{number}-{at}",
                pods=pods,
                min_available=draw.randint(1, pods),
                phase="Inqueue",
                **like,
            )
    elif kind == 3:
        for key in [key for key in world.pods if draw.random() < 0.2]:
            del world.pods[key]
            world.state.remove_pod(key)
    else:
        world.now += 1
        world.run()
        if draw.random() < 0.8:
            world.settle()


def said(decisions: Decisions) -> dict[str, Any]:
    """All that was decided, but for how many victims the node looked at last had."""
    metrics = [one for one in decisions.metrics if one[0] != "pod_preemption_victims"]
    return {
        name: metrics if name == "metrics" else getattr(decisions, name)
        for name in decisions.__struct_fields__
    }


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(3, 20), aware=st.booleans())
def test_claims_that_are_alike_decide_as_if_each_had_searched(
    name: str, seed: int, length: int, aware: bool
) -> None:
    both = [world_of(name, kind, aware) for kind in (Each, Alike)]
    draws = [random.Random(seed), random.Random(seed)]
    for world, draw in zip(both, draws):
        begin(world, draw)
    for number in range(length):
        for world, draw in zip(both, draws):
            step(world, draw, number)
        assert said(both[0].decisions) == said(both[1].decisions)
    for world in both:
        world.now += 1
        world.run()
    assert said(both[0].decisions) == said(both[1].decisions)
    assert tables(both[0]) == tables(both[1])


def test_a_full_cluster_is_searched_once_for_many_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []
    best_score = _Preemption._best_score

    def counting(self: _Preemption, task: Any, *more: Any) -> Any:
        searched.append(task.key)
        return best_score(self, task, *more)

    monkeypatch.setattr(_Preemption, "_best_score", counting)
    reasons = []
    for kind, searches in ((Each, 40), (Heir, 40), (Alike, 1)):
        world = world_of("chart", kind)
        searched.clear()
        world.queue("default")
        world.nodes("n1", "n2", cpu=2)
        for number in range(4):
            world.job(f"runs{number}", cpu=1, phase="Running", on=[f"n{1 + number % 2}"])
        for number in range(40):
            world.job(f"waits{number}", cpu=1, phase="Inqueue")
        world.run()
        assert len(searched) == searches
        reasons.append([world.why(f"waits{number}") for number in range(40)])
    assert reasons[0] == reasons[1] == reasons[2]
    assert "No victim because 2 nodes have only pods that priority" in reasons[2][39]


def test_what_was_found_counts_until_anything_changes() -> None:
    world = World(policy(plugins=["priority"], actions="allocate"))
    world.nodes("n1", cpu=1)
    world.job("waits", cpu=1)
    (task,) = world.state.tasks.values()
    session = open_session(world.state, hooks_of(world.state, world.policy), 0.0)
    failures, mask = FailedSearches(session, "preemptable"), np.ones(1, dtype=np.bool_)
    like = failures.like(task, mask)
    assert like is not None
    assert failures.known(like) is None
    failures.note(like, search := Search())
    assert failures.known(like) is search
    assert failures.known(failures.like(task, ~mask)) is None, "other nodes"
    world.job("runs", cpu=1, on=["n1"])
    assert failures.known(like) is None
