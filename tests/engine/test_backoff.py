"""A job whose binds are refused stands back, and the others get its place."""

from __future__ import annotations

from hekla.engine.model.time.backoff import BackOff
from hekla.engine.world import World, policy


def world() -> World:
    made = World(policy(plugins=["priority", "gang", "predicates"], actions="allocate"))
    made.priority_class("high", 100)
    made.nodes("n1", cpu=1)
    made.job("refused", pods=1, cpu=1, priority="high")
    made.job("other", pods=1, cpu=1)
    return made


def refused(made: World, times: int = 1) -> None:
    for _ in range(times):
        (bind,) = made.run().binds
        assert bind.job == "default/refused"
        made.state.bind_failed(bind.pod, made.now)
        made.now += made.state.back_off.left("default/refused", made.now)


def test_the_others_are_served_while_it_stands_back():
    made = world()
    made.run()
    made.state.bind_failed("default/refused-task-0", made.now)

    assert {bind.job for bind in made.run().binds} == {"default/other"}
    assert "stands back" in made.why("refused")


def test_what_stands_back_is_promised_no_room_by_preempt():
    made = World(policy(plugins=["priority", "gang", "predicates"], actions="allocate, preempt"))
    made.nodes("n1", cpu=1)
    made.job("refused", pods=1, cpu=1)
    made.run()
    made.state.bind_failed("default/refused-task-0", made.now)

    assert not made.run().pipelined
    made.now += 1.0
    assert [bind.job for bind in made.run().binds] == ["default/refused"]


def test_it_comes_again_when_its_time_is_over_though_nothing_else_changed():
    made = world()
    made.run()
    made.state.bind_failed("default/refused-task-0", made.now)
    made.state.remove_pod("default/other-task-0")
    assert not made.run().binds
    assert not made.run().binds

    made.now += 1.0
    assert {bind.job for bind in made.run().binds} == {"default/refused"}


def test_each_refusal_costs_twice_as_long_and_at_most_a_minute():
    made = world()
    made.state.remove_pod("default/other-task-0")
    waits = []
    for _ in range(8):
        made.run()
        made.state.bind_failed("default/refused-task-0", made.now)
        waits.append(made.state.back_off.left("default/refused", made.now))
        made.now += waits[-1]

    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_job_that_was_refused_a_thousand_times_stands_back_for_a_minute():
    back_off, now = BackOff(), 0.0
    for _ in range(1100):
        back_off.failed("default/refused", now)
        now += back_off.left("default/refused", now)
    back_off.failed("default/refused", now)

    assert back_off.left("default/refused", now) == 60


def test_a_bind_that_held_forgets_it():
    made = world()
    made.state.remove_pod("default/other-task-0")
    refused(made, 3)
    made.run()
    made.settle()

    assert not made.state.back_off.waits


def test_a_gang_that_fails_together_counts_once():
    made = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    made.nodes("n1", cpu=4)
    made.job("gang", pods=4, cpu=1)
    for bind in made.run().binds:
        made.state.bind_failed(bind.pod, made.now)

    assert made.state.back_off.waits["default/gang"].failures == 1
