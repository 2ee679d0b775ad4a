"""The jobs that came lately, as estimates take them to come again."""

from __future__ import annotations

from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import Estimation, likeliest
from hekla.engine.framework.session import Session
from hekla.engine.model.time.arrivals import DAY, MOST_TO_COME, Arrivals
from hekla.engine.placement.forecast import NOBODY, Start
from hekla.engine.world import World, policy

HOUR = {"hekla.io/walltime": "1h"}


def noting(since: float = 0.0) -> tuple[World, Arrivals]:
    world = World(policy(plugins=["gang", "predicates"]))
    world.nodes("n1", cpu=4)
    made = Arrivals(world.state.queues, since)
    world.state.job_table.arrivals = made
    return world, made


def test_what_came_is_noted_once_also_what_starts_at_once() -> None:
    world, found = noting()
    world.job("pair", pods=3, min_available=2, cpu=1, annotations=HOUR)
    (job,) = world.state.jobs.values()
    came = job.creation
    for _ in range(3):
        world.now += 60
        world.run()
        world.settle()
    (one,) = found.known
    ((task, number),) = one.parts
    assert (one.moment, one.queue, one.pods, one.walltime) == (came, "default", 3, 3600.0)
    assert number == 2 and task.request.amounts["cpu"] == 1000


def test_what_was_there_before_is_no_arrival() -> None:
    world, found = noting(since=1e12)
    world.job("old", cpu=1)
    world.run()
    assert not found.known


def test_each_known_day_comes_again_and_again() -> None:
    world, found = noting()
    world.job("one", cpu=1)
    world.run()
    came = found.known[0].moment
    found.runs.append((1.0, 1.0))
    later = came + DAY / 2
    assert [[moment for moment, _ in day][:2] for day in found.days(later)] == [
        [came + DAY, came + 2 * DAY],
        [],
    ]
    assert all(len(day) <= MOST_TO_COME for day in found.days(later))
    yesterday, before = found.days(later + DAY)
    assert not yesterday and before[0][0] == came + 2 * DAY


def test_a_day_of_which_not_all_is_known_is_left_out() -> None:
    world, found = noting()
    world.job("one", cpu=1)
    world.run()
    now = found.known[0].moment + 60
    found.since = now - DAY
    found.runs.append((1.0, 1.0))
    assert len(list(found.days(now))) == 1
    assert not list(found.days(now - 1.0))


def test_where_jobs_end_long_before_they_say_nobody_is_taken_to_come() -> None:
    world, found = noting()
    for number, hours in enumerate([1.0, 0.95, 0.5]):
        world.job(f"train-{number}", cpu=1, annotations=HOUR)
        world.run()
        world.settle()
        world.now += 3600 * hours
        (key,) = world.pods
        world.state.remove_pod(key)
        del world.pods[key]
        world.run()
        assert len(list(found.days(world.now))) == (0 if hours < 0.9 else 2)
    assert list(found.runs) == [(3600.0, 3600.0), (3420.0, 3600.0), (1800.0, 3600.0)]


def test_jobs_of_a_queue_that_is_gone_do_not_come_again() -> None:
    world, found = noting()
    hooks_of(world.state, world.policy).keeps_session = True
    world.queue("gone")
    for name, queue in (("first", "gone"), ("stays", "default"), ("waits", "default")):
        world.job(name, cpu=3, queue=queue, annotations=HOUR)
        world.run()
        world.settle()
    world.state.remove_pod(next(key for key in world.pods if "first" in key))
    world.run()
    found.runs.clear()
    found.runs.append((1.0, 1.0))
    days = []
    for _ in range(2):
        session = hooks_of(world.state, world.policy).session
        assert isinstance(session, Session)
        made = Estimation(session)
        assert list(made.run()) == ["default/waits"]
        days.append([len(day) for day in made._snapshot.days])
        world.state.remove_queue("gone")
        world.run()
    assert days == [[MOST_TO_COME], [2 * MOST_TO_COME // 3]]


def test_the_start_that_most_agree_on_counts() -> None:
    starts = [Start(at, NOBODY) for at in (100.0, 900.0, 950.0)]
    assert likeliest(starts).at == 900.0
    assert likeliest(starts[:2]).at == 100.0
    endless = [Start(one, NOBODY) for one in (5.0, float("inf"), float("inf"))]
    assert likeliest(endless).at == float("inf")
