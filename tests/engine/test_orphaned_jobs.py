"""Jobs whose queue or PodGroup does not exist are told so."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.world import World, policy


def world() -> World:
    made = World(policy(plugins=["gang", "predicates"], actions="enqueue, allocate"))
    made.nodes("n1", cpu=4)
    return made


def waiting(made: World, job: str) -> list[dict[str, Any]]:
    return [
        one
        for group in made.decisions.pod_groups
        if group.key == f"default/{job}"
        for one in group.conditions
    ]


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_a_group_whose_queue_does_not_exist_names_the_nearest_until_it_does(phase: str):
    made = world()
    made.queue("research")
    made.job("train", pods=1, cpu=1, queue="reserch", phase=phase)

    made.run()

    text = 'train names queue reserch, which does not exist; did you mean "research"? It is looked at once there is such a queue.'
    assert made.why("train") == text
    assert [(one["type"], one["reason"], one["message"]) for one in waiting(made, "train")] == [
        ("Waiting", "Queue", text)
    ]
    assert [(one.pod, one.reason, one.message) for one in made.decisions.conditions] == [
        ("default/train-task-0", "QueueNotFound", text)
    ]
    assert ("PodGroup", "Waiting", text) in {
        (one.kind, one.reason, one.message) for one in made.decisions.events
    }
    made.settle()
    assert made.run().empty, "once for the same words"

    made.queue("reserch")
    made.run()
    made.settle()
    made.run()
    made.settle()
    assert "Waiting" not in {
        one["type"] for one in made.groups["default/train"]["status"]["conditions"]
    }


def test_a_pod_whose_group_does_not_come_is_told_after_a_while():
    made = world()
    made.pod("lost", job="nobody", cpu=1)
    made.state.tasks["default/lost"].creation = made.now
    assert not made.run().conditions

    made.now += 6
    (condition,) = made.run().conditions
    assert (
        condition.message
        == "PodGroup nobody does not exist in namespace default. The pod is looked at once it does."
    )

    made.job("nobody", pods=0, min_available=1)
    assert len(made.run().binds) == 1


def test_what_is_gone_is_not_told_of():
    made = world()
    made.job("train", pods=1, cpu=1, queue="nowhere", phase="Pending")
    made.state.remove_pod("default/train-task-0")
    made.state.remove_pod_group("default/train")

    assert made.run().empty
    assert not made.state.job_table.orphaned


def test_a_queue_that_cannot_be_understood_is_not_called_missing():
    made = world()
    made.state.upsert_queue({"metadata": {"name": "odd"}, "spec": {"capability": {"cpu": "much"}}})
    made.job("train", pods=1, cpu=1, queue="odd", phase="Pending")

    made.run()

    assert made.why("train").startswith("train names queue odd, which is left out: ")
    assert "much" in made.why("train")


def test_a_group_that_cannot_be_understood_is_not_called_missing():
    made = world()
    made.state.upsert_pod_group(
        {
            "metadata": {"name": "odd", "namespace": "default"},
            "spec": {"minResources": {"cpu": "much"}},
        }
    )
    made.pod("train", job="odd", cpu=1)

    (condition,) = made.run().conditions

    assert condition.message.startswith("PodGroup odd is left out: ")
