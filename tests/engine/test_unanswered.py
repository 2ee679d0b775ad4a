"""Fields that only a plugin gives a meaning: who asks for one that no plugin of the policy answers
is told, once."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.cycle import hooks_of
from hekla.engine.explain.unanswered import OF_JOBS, OF_PODS, OF_QUEUES
from hekla.engine.world import World, policy

TOPOLOGY = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
PLUGINS = ["priority", "gang", "predicates", "proportion"]


def world(*more: Any, actions: str = "enqueue, allocate, backfill") -> World:
    made = World(policy(plugins=[*PLUGINS, *more], actions=actions))
    made.nodes("n1", cpu=8)
    return made


def told(made: World) -> list[str]:
    return [one.message for one in made.decisions.events if one.reason == "Ignored"]


def conditions(made: World, job: str) -> list[str]:
    return [
        one["message"]
        for one in made.state.jobs[f"default/{job}"].conditions
        if one["type"] == "Ignored"
    ]


def test_a_hard_topology_without_the_plugin_is_said_to_be_ignored() -> None:
    made = world()
    made.job("near", pods=2, cpu=1, group=TOPOLOGY)
    text = "The scheduler ignores networkTopology (plugin network-topology-aware): its policy has no plugin for it."
    made.run()
    assert told(made) == [text]
    assert conditions(made, "near") == [text]
    made.settle()
    for _ in range(3):
        made.run()
        assert told(made) == []


def test_with_the_plugin_nobody_is_told() -> None:
    made = world("network-topology-aware")
    made.job("near", pods=2, cpu=1, group=TOPOLOGY)
    made.run()
    assert told(made) == conditions(made, "near") == []


def test_a_policy_that_answers_takes_the_condition_away() -> None:
    made = world()
    made.job("near", pods=2, cpu=1, group=TOPOLOGY)
    made.run()
    made.settle()
    made.run()
    made.policy = policy(plugins=[*PLUGINS, "network-topology-aware"])
    made.run()
    assert conditions(made, "near") == []


@pytest.mark.parametrize(
    ("annotation", "plugin"),
    [
        ("volcano.sh/task-topology-affinity", "task-topology"), ("volcano.sh/task-topology-anti-affinity", "task-topology"),
        ("volcano.sh/sla-waiting-time", "sla"), ("sla-waiting-time", "sla"), ("volcano.sh/revocable-zone", "tdm"),
        ("volcano.sh/jdb-min-available", "tdm"), ("hekla.dev/task-traffic", "io-aware"),
    ],
)  # fmt: skip
def test_annotations_of_a_group(annotation: str, plugin: str) -> None:
    made = world()
    made.job("asks", cpu=1, annotations={annotation: "1h"})
    made.run()
    assert told(made) == [
        f"The scheduler ignores {annotation} (plugin {plugin}): its policy has no plugin for it."
    ]


@pytest.mark.parametrize(
    ("annotation", "plugin"),
    [
        ("volcano.sh/numa-topology-policy", "numa-aware"), ("volcano.sh/cooldown-time", "cdp"), ("volcano.sh/revocable-zone", "tdm"),
        ("volcano.sh/resource-strategy-scoring-type", "resource-strategy-fit"),
    ],
)  # fmt: skip
def test_annotations_of_pods(annotation: str, plugin: str) -> None:
    made = world()
    made.job("asks", pods=0, min_available=1)
    made.pod("p", job="asks", cpu=1, annotations={annotation: "1h"})
    made.run()
    assert told(made) == [
        f"The scheduler ignores {annotation} (plugin {plugin}): its policy has no plugin for it."
    ]


def test_shared_cards_and_two_things_at_once() -> None:
    made = world()
    made.job("asks", cpu=1, annotations={"sla-waiting-time": "1h"}, **{"volcano.sh/vgpu-number": 1})
    made.run()
    assert told(made) == [
        "The scheduler ignores sla-waiting-time (plugin sla) and volcano.sh/vgpu-number (plugin deviceshare): "
        "its policy has no plugin for them."
    ]


def test_a_minimum_without_gang() -> None:
    made = World(policy(plugins=["predicates"], actions="allocate"))
    made.nodes("n1", cpu=8)
    made.job("gang", pods=2, cpu=1)
    made.run()
    assert told(made) == [
        "The scheduler ignores minMember (plugin gang): its policy has no plugin for it."
    ]


def test_queues_and_budgets() -> None:
    made = world(actions="allocate, reclaim")
    made.queue("named", deserved={"cpu": 1})
    made.state.upsert_other(
        "PodDisruptionBudget",
        {"metadata": {"name": "kept", "namespace": "default"}, "spec": {}, "status": {}},
    )
    for expected in (
        [
            "The scheduler ignores spec.deserved (plugin capacity): its policy has no plugin for it.",
            "The scheduler ignores it when it evicts for preempt, reclaim, shuffle: its policy has no plugin pdb.",
        ],
        [],
    ):
        made.run()
        assert told(made) == expected


def test_every_plugin_that_is_named_exists() -> None:
    named = {name for field in (*OF_JOBS, *OF_PODS, *OF_QUEUES) for name in field.plugins}
    made = World(policy(plugins=sorted(named)))
    assert {plugin.name for plugin in hooks_of(made.state, made.policy).plugins} == named
