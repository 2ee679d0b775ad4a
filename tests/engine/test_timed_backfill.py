"""Backfill that minds time: who passes the first job that waits, and who does not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.placement.releases import coarse
from hekla.engine.world import World, policy

PLUGINS: list[Any] = ["priority", "gang", "predicates"]


def timed(
    mode: str = "easy", actions: str = "allocate, backfill", plugins: Any = PLUGINS
) -> Policy:
    return policy(
        plugins=plugins,
        actions=actions,
        configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
    )


def world(rules: Policy | None = None, cpu: int = 4, nodes: int = 1) -> World:
    made = World(rules or timed())
    made.nodes(*(f"n{number}" for number in range(nodes)), cpu=cpu)
    return made


def job(made: World, name: str, cpu: int, walltime: str = "", **more: Any) -> None:
    made.job(name, cpu=cpu, annotations={"hekla.io/walltime": walltime} if walltime else {}, **more)


def running(made: World, name: str, cpu: int, walltime: str = "", on: str = "n0") -> None:
    """A job that has just started."""
    job(made, name, cpu, walltime, on=[on], phase="Running")


def bound(made: World) -> set[str]:
    return {bind.job.partition("/")[2] for bind in made.run().binds}


def test_who_ends_before_the_reservation_passes() -> None:
    made = world()
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "short", 1, "1h")
    assert bound(made) == {"short"}


def test_who_would_hold_it_up_does_not() -> None:
    made = world()
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "long", 1, "61m")
    job(made, "endless", 1)
    assert bound(made) == set()
    assert made.why("long").startswith(
        "long cannot start: it might hold up first, which waits before it."
    )


def test_who_leaves_it_its_room_may_stay() -> None:
    made = world(cpu=8)
    running(made, "runs", 5, "1h")
    job(made, "first", 6)
    for name in ("one", "two", "three"):
        job(made, name, 1)
    assert bound(made) == {"one", "two"}


def test_without_a_mode_whatever_fits_passes() -> None:
    made = world(policy(plugins=PLUGINS, actions="allocate, backfill"))
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "endless", 1)
    assert bound(made) == {"endless"}


def test_strict_lets_nobody_pass() -> None:
    made = world(timed("strict"))
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "short", 1, "1m")
    assert bound(made) == set()


def test_the_reservation_comes_true() -> None:
    made = world()
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "short", 1, "30m")
    made.run()
    made.settle()
    made.now += 3600
    made.end("runs")
    made.end("short")
    job(made, "late", 1, "1m")
    assert bound(made) == {"first"}


def test_where_nothing_is_known_to_end_there_is_no_reservation() -> None:
    made = world()
    running(made, "endless", 3)
    job(made, "first", 4)
    job(made, "other", 1)
    assert bound(made) == {"other"}


def test_the_first_whose_start_can_be_foreseen_has_it() -> None:
    made = world(nodes=2)
    running(made, "endless", 4)
    running(made, "runs", 3, "1h", on="n1")
    job(made, "never", 4, pods=2)
    job(made, "first", 4)
    job(made, "long", 1, "2h")
    assert bound(made) == set()


def test_what_is_overdue_may_end_at_any_moment() -> None:
    made = world()
    running(made, "runs", 3, "1m")
    job(made, "first", 4)
    made.run()
    made.now += 3600
    job(made, "short", 1, "1s")
    assert bound(made) == set()


def test_a_gang_is_kept_room_on_all_its_nodes() -> None:
    made = world(nodes=3)
    running(made, "a", 3, "1h", on="n0")
    running(made, "b", 3, "2h", on="n1")
    job(made, "gang", 4, pods=3)
    job(made, "short", 4, "2h")
    job(made, "long", 4, "3h")
    assert bound(made) == {"short"}


def test_busy_nodes_are_kept_before_idle_ones() -> None:
    made = world(nodes=3)
    running(made, "a", 4, "1h", on="n0")
    running(made, "b", 3, on="n1")
    job(made, "first", 4, pods=2)
    job(made, "long", 1)
    assert bound(made) == {"long"}
    assert made.decisions.bound()["default/long-task-0"] == "n1"


def test_a_gang_passes_beside_a_node_that_is_kept_in_part() -> None:
    made = world(cpu=8)
    running(made, "runs", 3, "1h")
    job(made, "first", 6)
    job(made, "three", 1, pods=3)
    job(made, "two", 1, pods=2)
    assert bound(made) == {"two"}


def test_each_resource_counts() -> None:
    made = World(timed())
    made.nodes("n0", cpu=8, gpu=2)
    running(made, "runs", 1, "1h")
    made.job("holds", cpu=1, gpu=1, on=["n0"], annotations={"hekla.io/walltime": "1h"})
    made.job("first", cpu=1, gpu=2)
    made.job("card", cpu=1, gpu=1)
    made.job("plain", cpu=1)
    assert bound(made) == {"plain"}


def test_selectors_count() -> None:
    made = World(timed())
    made.nodes("n0", cpu=4, labels={"disk": "fast"})
    made.nodes("n1", cpu=4)
    running(made, "runs", 3, "1h")
    job(made, "first", 4, spec={"nodeSelector": {"disk": "fast"}})
    running(made, "fills", 1, on="n1")
    job(made, "long", 2)
    assert made.run().bound() == {"default/long-task-0": "n1"}


def test_a_queue_without_quota_left_holds_nobody_up() -> None:
    made = world(timed(plugins=[*PLUGINS, "capacity"]))
    made.queue("full", capability={"cpu": 1}, deserved={"cpu": 1})
    job(made, "over", 2, queue="full")
    job(made, "other", 4)
    assert bound(made) == {"other"}


def test_in_a_strict_queue_nobody_passes_though_others_do() -> None:
    made = world()
    made.state.upsert_queue(
        {
            "metadata": {"name": "line", "annotations": {"hekla.io/job-order": "strict-fifo"}},
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )
    running(made, "runs", 3, "1h")
    job(made, "first", 4, queue="line")
    job(made, "behind", 1, "1m", queue="line")
    job(made, "beside", 1, "1m")
    assert bound(made) == {"beside"}


def test_shortest_first() -> None:
    made = World(timed("strict"), default_queue=False)
    made.nodes("n0", cpu=1)
    made.state.upsert_queue(
        {
            "metadata": {
                "name": "default",
                "annotations": {"hekla.io/job-order": "shortest-first"},
            },
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )
    for name, length in (("endless", ""), ("long", "2h"), ("short", "1h")):
        job(made, name, 1, length)
    assert bound(made) == {"short"}


def test_priority_goes_first() -> None:
    made = world(cpu=1)
    made.priority_class("high", 10)
    job(made, "low", 1)
    job(made, "high", 1, priority="high")
    assert bound(made) == {"high"}


def test_pods_beyond_the_minimum_have_no_reservation_and_pass_like_others() -> None:
    made = world(cpu=8)
    running(made, "runs", 3, "1h")
    job(made, "some", 1, "10m", pods=3, min_available=1)
    job(made, "first", 6)
    job(made, "short", 1, "10m")
    job(made, "long", 1, "2h")
    binds = [bind.job.partition("/")[2] for bind in made.run().binds]
    assert binds == ["some", "short", "long", "some", "some"]


def test_best_effort_pods_are_placed_as_ever() -> None:
    made = world(cpu=1)
    running(made, "runs", 1, "1h")
    job(made, "first", 1)
    made.job("nothing", min_available=0)
    assert bound(made) == {"nothing"}


def test_it_is_let_in_before_it_passes() -> None:
    made = world(timed(actions="enqueue, allocate, backfill"))
    running(made, "runs", 3, "1h")
    job(made, "first", 4, phase="Pending")
    job(made, "short", 1, "1h", phase="Pending")
    assert bound(made) == {"short"}


def test_a_job_that_waits_is_told_why_once_and_then_rests() -> None:
    made = world()
    running(made, "runs", 4, "1h")
    job(made, "first", 4)
    job(made, "second", 4, "1h")
    made.run()
    assert made.why("second").startswith("second needs 1 pod of cpu=4; 0 fit.")
    made.run()
    job(made, "third", 4, "1h")
    assert "default/second" not in made.run().explanations
    assert "default/third" in made.decisions.explanations


def test_who_waits_though_nothing_is_known_to_make_room_is_told_what_it_lacks() -> None:
    made = world(nodes=2)
    running(made, "endless", 3)
    job(made, "never", 3, pods=2)
    made.run()
    assert made.why("never").startswith("never needs 2 pods of cpu=3; 1 fits. 1 node: 1 lacks cpu")


@pytest.mark.parametrize("queue", ["default", "other"])
def test_who_stands_behind_another_whom_nobody_passes_is_told_so(queue: str) -> None:
    made = world(timed("strict"))
    made.queue("other")
    running(made, "runs", 3, "1h")
    job(made, "first", 4)
    job(made, "second", 1, queue=queue)
    assert bound(made) == set()
    assert made.why("second") == "second cannot start: first waits before it, and nobody passes."


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PolicyError) as error:
        timed("eazy")
    assert str(error.value) == "backfill: mode = 'eazy' does not exist; did you mean \"easy\"?"
    with pytest.raises(PolicyError) as error:
        timed("aggressive")
    assert str(error.value).endswith("does not exist; known are conservative, easy, strict")


def test_conservative_holds_up_nobody() -> None:
    """`second` could start when `runs` ends, beside `first`; under EASY `long` would take its room."""
    for mode, passes in (("easy", {"long"}), ("conservative", set[str]())):
        made = world(timed(mode), cpu=8)
        running(made, "runs", 6, "1h")
        job(made, "first", 4, "1h")
        job(made, "second", 4, "1h")
        job(made, "long", 2, "2h")
        assert bound(made) == passes


def test_conservative_lets_pass_who_is_in_nobodys_way() -> None:
    made = world(timed("conservative"), cpu=8)
    running(made, "runs", 6, "1h")
    job(made, "first", 4, "1h")
    job(made, "second", 4, "1h")
    job(made, "short", 2, "1h")
    assert bound(made) == {"short"}


def test_beyond_the_depth_a_job_has_no_time_of_its_own() -> None:
    rules = policy(
        plugins=PLUGINS,
        actions="allocate, backfill",
        configurations=[{"name": "backfill", "arguments": {"mode": "conservative", "depth": 1}}],
    )
    made = world(rules, cpu=8)
    running(made, "runs", 6, "1h")
    job(made, "first", 4, "1h")
    job(made, "second", 4, "1h")
    job(made, "long", 2, "2h")
    assert bound(made) == {"long"}


def test_ends_that_lie_close_become_one() -> None:
    assert coarse(100.0, 60.0) == 100.0, "what is short is not put off"
    assert {coarse(start + 3600.0, 3600.0) for start in range(10_001, 10_030)} == {13_632.0}
    assert coarse(math.inf, math.inf) == math.inf
