"""A queue's own order of its jobs: what it changes, and what strict-fifo promises."""

from __future__ import annotations

import pytest

from hekla.engine.world import World, policy

PLUGINS = ["priority", "gang", "drf", "predicates", "nodeorder"]


def world(order: str, actions: str = "enqueue, allocate, backfill") -> World:
    made = World(policy(plugins=PLUGINS, actions=actions), default_queue=False)
    made.state.upsert_queue(
        {
            "metadata": {"name": "default", "annotations": {"hekla.io/job-order": order}},
            "status": {"state": "Open"},
        }
    )
    made.priority_class("high", 100)
    return made


@pytest.mark.parametrize(
    ("order", "first"), [("fifo", "early"), ("strict-fifo", "early"), ("priority", "late")]
)
def test_which_of_two_jobs_gets_the_one_place(order: str, first: str):
    made = world(order)
    made.nodes("n1", cpu=1)
    made.job("early", pods=1, cpu=1)
    made.job("late", pods=1, cpu=1, priority="high")

    assert {bind.job for bind in made.run().binds} == {f"default/{first}"}


def test_fair_share_serves_the_job_that_holds_least():
    made = world("fair-share")
    made.nodes("n1", cpu=2)
    made.job("holds", pods=2, cpu=1, min_available=1, on=["n1"])
    made.job("has-nothing", pods=1, cpu=1)

    assert {bind.job for bind in made.run().binds} == {"default/has-nothing"}


def test_sla_serves_the_nearest_deadline():
    made = world("sla")
    made.nodes("n1", cpu=1)
    made.job("patient", pods=1, cpu=1)
    made.job("hurried", pods=1, cpu=1, annotations={"sla-waiting-time": "1h"})

    assert {bind.job for bind in made.run().binds} == {"default/hurried"}


def test_fifo_lets_a_small_job_pass_one_that_does_not_fit():
    made = world("fifo")
    made.nodes("n1", cpu=2)
    made.job("large", pods=3, cpu=1)
    made.job("small", pods=1, cpu=1)

    assert {bind.job for bind in made.run().binds} == {"default/small"}


def test_strict_fifo_does_not_and_says_whom_it_waits_behind():
    made = world("strict-fifo")
    made.nodes("n1", cpu=2)
    made.job("large", pods=3, cpu=1)
    made.job("small", pods=1, cpu=1)

    decisions = made.run()

    assert not decisions.binds
    assert made.why("small") == (
        "small waits behind large in queue default, whose order is strict-fifo. It is looked at once large has started."
    )
    assert decisions.explanations["default/small"].constraint == "order"
    said = [event.message for event in decisions.events if event.key == "default/small"]
    assert any("waits behind large in queue default" in message for message in said)


def test_strict_fifo_goes_on_once_the_first_has_started():
    made = world("strict-fifo")
    made.nodes("n1", cpu=2)
    made.job("large", pods=3, cpu=1)
    made.job("small", pods=1, cpu=1)
    made.run()
    made.nodes("n2", cpu=2)

    assert {bind.job for bind in made.run().binds} == {"default/large", "default/small"}


def test_strict_fifo_holds_for_a_job_without_pods_yet_and_for_best_effort_pods():
    made = world("strict-fifo")
    made.nodes("n1", cpu=2)
    made.job("announced", pods=0, min_available=2)
    made.job("nothing-asked", pods=1)

    assert not made.run().binds
    assert "behind announced" in made.why("nothing-asked")


def test_strict_fifo_lets_nobody_in_before_an_earlier_one():
    made = World(policy(plugins=["gang", "proportion", "predicates"]), default_queue=False)
    made.state.upsert_queue(
        {
            "metadata": {"name": "default", "annotations": {"hekla.io/job-order": "strict-fifo"}},
            "spec": {"weight": 1, "capability": {"cpu": "2"}},
            "status": {"state": "Open"},
        }
    )
    made.nodes("n1", cpu=8)
    made.job("large", pods=0, min_available=1, phase="Pending", min_resources={"cpu": 4})
    made.job("small", pods=0, min_available=1, phase="Pending", min_resources={"cpu": 1})

    made.run()

    assert made.phase("small") == "Pending"
    assert made.why("small").startswith("small waits behind large")


def test_strict_fifo_does_not_preempt_past_an_earlier_job():
    made = world("strict-fifo", "enqueue, allocate, preempt")
    made.nodes("n1", cpu=2)
    made.job("runs", pods=2, cpu=1, min_available=1, on=["n1", "n1"])
    made.job("early", pods=5, cpu=1)
    made.job("late", pods=1, cpu=1, priority="high")

    assert not made.run().evictions


def test_strict_fifo_promises_no_room_past_an_earlier_job():
    """The second phase of preempt, which takes what room there is, promises none that the one in
    front is to have."""
    made = world("strict-fifo", "enqueue, allocate, preempt")
    made.nodes("n1", cpu=2)
    made.job("early", pods=1, cpu=4)
    made.job("late", pods=1, cpu=1, phase="Inqueue")

    assert not made.run().pipelined


def test_what_a_started_job_asks_for_beyond_its_minimum_keeps_nobody_waiting():
    made = world("strict-fifo")
    made.nodes("n1", cpu=2)
    made.job("started", pods=2, cpu=2, min_available=1, on=["n1"])
    made.nodes("n2", cpu=1)
    made.job("next", pods=1, cpu=1)

    assert {bind.job for bind in made.run().binds} == {"default/next"}


def test_other_queues_go_by_the_plugins():
    made = world("strict-fifo")
    made.queue("free")
    made.nodes("n1", cpu=2)
    made.job("large", pods=3, cpu=1)
    made.job("elsewhere", pods=1, cpu=1, queue="free")

    assert {bind.job for bind in made.run().binds} == {"default/elsewhere"}


def test_an_unknown_order_is_said_on_the_queue_once():
    made = world("strict-fifoo")
    made.nodes("n1", cpu=1)

    first = made.run().events
    made.nodes("n2", cpu=1)
    second = made.run().events

    (event,) = [event for event in first if event.kind == "Queue"]
    assert event.message == (
        'hekla.io/job-order: "strict-fifoo" is no order of jobs; did you mean "strict-fifo"? Until then the policy\'s plugins decide.'
    )
    assert not [event for event in second if event.kind == "Queue"]
