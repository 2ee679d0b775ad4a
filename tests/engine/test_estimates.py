"""What a waiting job is told of its start: when, after whom, and what it waits for until then."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from hekla.api.text.times import stamp
from hekla.api.trees import Tree
from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import Estimation, StartEstimate
from hekla.engine.estimates.snapshot import Reading
from hekla.engine.framework.session import Session
from hekla.engine.placement.forecast import AT_ONCE, Forecast, Why
from hekla.engine.world import World, policy

HOUR = {"hekla.io/walltime": "1h"}
HALF = {"hekla.io/walltime": "30m"}
SHORT = {"hekla.io/walltime": "10m"}


def world(mode: str = "easy", *plugins: str | Tree) -> World:
    made = World(
        policy(
            plugins=["gang", "predicates", *plugins],
            actions="allocate, backfill",
            configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
        )
    )
    hooks_of(made.state, made.policy).keeps_session = True
    return made


def estimates(world: World) -> tuple[dict[str, StartEstimate], dict[str, str]]:
    """After a cycle: job -> its estimate, with the start in seconds from now, and the reason."""
    world.run()
    session = hooks_of(world.state, world.policy).session
    assert isinstance(session, Session)
    made = Estimation(session)
    found = made.run()
    return (
        {key.rpartition("/")[2]: one._replace(at=one.at - world.now) for key, one in found.items()},
        {key.rpartition("/")[2]: made.because(key) for key in found},
    )


def test_a_job_starts_when_the_one_before_it_ends() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations=HOUR)
    of.job("waits", cpu=4, annotations=HOUR)
    found, because = estimates(of)
    assert found["waits"].at == pytest.approx(3600)
    assert found["waits"].after == "default/runs" and found["waits"].why is Why.ROOM
    assert found["waits"].latest
    assert because["waits"] == "it needs 1 pod of cpu=4 at once and cpu is short: 0 fit now"


def test_who_would_hold_up_the_first_starts_after_it() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations=HOUR)
    of.job("first", cpu=8, annotations=HALF)
    of.job("long", cpu=2, annotations={"hekla.io/walltime": "2h"})
    found, because = estimates(of)
    assert found["first"].at == pytest.approx(3600)
    assert found["long"].at == pytest.approx(5400)
    assert (found["long"].why, found["long"].behind) == (Why.RESERVATION, "default/first")
    assert found["long"].after == "default/first" and not found["long"].latest
    assert because["long"] == "it might hold up first, which waits before it"


def test_nobody_passes_where_the_policy_is_strict() -> None:
    of = world("strict")
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations=HOUR)
    of.job("first", cpu=8, annotations=HALF)
    of.job("small", cpu=2, annotations=SHORT)
    found, because = estimates(of)
    assert found["small"].at == pytest.approx(5400)
    assert because["small"] == "first waits before it, and nobody passes"


def test_among_endless_jobs_nothing_is_known() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=6, on=["n1"], phase="Running")
    of.job("waits", cpu=4, annotations=HOUR)
    found, because = estimates(of)
    assert found["waits"].at == math.inf and not found["waits"].known
    assert because["waits"].endswith("(what has no walltime counts as endless)")


def test_a_queue_may_not_take_more_until_its_own_job_ends() -> None:
    of = world("easy", "capacity")
    of.queue("small", capability={"cpu": 4})
    of.nodes("n1", cpu=16)
    of.job("runs", cpu=3, queue="small", on=["n1"], phase="Running", annotations=HOUR)
    of.job("waits", cpu=2, queue="small", annotations=HOUR)
    found, because = estimates(of)
    assert found["waits"].at == pytest.approx(3600)
    assert found["waits"].why is Why.QUOTA and found["waits"].after == "default/runs"
    assert because["waits"] == (
        "queue small holds cpu=3 of its capability cpu=4, and the job needs cpu=2"
    )


def test_nothing_is_foretold_of_a_gang_that_is_larger_than_its_queues_share() -> None:
    """There is room, and it does not start all the same."""
    of = world("easy", "proportion")
    of.nodes("n1", cpu=6)
    for name in ("one", "two"):
        of.queue(name)
        of.job(name, pods=4, cpu=1, queue=name, annotations=HOUR)
    assert estimates(of) == ({}, {})
    assert not of.decisions.binds


def test_only_the_nodes_that_a_job_may_use_count() -> None:
    of = world()
    of.nodes("n1", cpu=8, labels={"disk": "ssd"})
    of.nodes("n2", cpu=8)
    of.job("long", cpu=8, on=["n1"], phase="Running", annotations=HOUR)
    of.job("brief", cpu=8, on=["n2"], phase="Running", annotations=SHORT)
    of.job("picky", cpu=8, spec={"nodeSelector": {"disk": "ssd"}}, annotations=HOUR)
    found, because = estimates(of)
    assert found["picky"].at == pytest.approx(3600)
    assert because["picky"] == (
        "it needs 1 pod of cpu=8 at once and cpu is short on the node that it may use: 0 fit now"
    )


def test_a_job_too_long_for_the_time_before_a_window_starts_after_it() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.state.upsert_other(
        "Reservation",
        {
            "metadata": {"name": "maintenance", "uid": "r1"},
            "spec": {
                "nodes": {"names": ["n1"]},
                "window": {"start": stamp(of.now + 1200), "end": stamp(of.now + 1800)},
            },
        },
    )
    of.job("brief", cpu=4, annotations=SHORT)
    of.job("long", cpu=8, annotations=HOUR)
    found, _ = estimates(of)
    assert "brief" not in found, "it runs: it ends before the window opens"
    assert found["long"].at == pytest.approx(1800)


@pytest.mark.parametrize("mode", ["", "easy"])
def test_it_pauses_where_many_start_at_one_moment(mode: str) -> None:
    of = world(mode)
    of.nodes("n1", cpu=200)
    of.job("runs", cpu=200, on=["n1"], phase="Running", annotations=HOUR)
    for number in range(100):
        of.job(f"waits-{number}", cpu=1, annotations=HALF)
    of.run()
    session = hooks_of(of.state, of.policy).session
    assert isinstance(session, Session)
    reading = Reading(session, of.now)
    for _ in reading.steps():
        pass
    assert reading.snapshot is not None
    forecast = Forecast(reading.snapshot)
    started = [0, *(len(forecast.starts) for _ in forecast.steps()), len(forecast.starts)]
    assert started[-1] == 100
    assert max(after - before for before, after in pairwise(started)) <= AT_ONCE


def test_who_waits_for_a_budget_is_told_its_renewal_and_holds_up_nobody() -> None:
    """Though its turn is before the others', and one passes it that would be in its way."""
    limits = {"budget": {"resources": {"cpu": "4h"}, "renew": "@daily"}}
    of = world("easy", {"name": "party-limits", "arguments": limits})
    of.nodes("n1", cpu=8)
    anna, ben = {"hekla.io/user": "anna"}, {"hekla.io/user": "ben"}
    of.job("runs", cpu=4, on=["n1"], phase="Running", annotations={**anna, **HOUR})
    of.job("next", cpu=2, annotations={**anna, **HOUR})
    of.job("wide", cpu=8, annotations={**ben, **HALF})
    found, because = estimates(of)
    assert found["next"].at == 1_036_800 - of.now and found["next"].why is Why.LIMIT
    assert because["next"].startswith(
        "user anna has used 0 of 4 cpu hours, what runs may use 4 more"
    )
    assert found["wide"].at == pytest.approx(3600) and found["wide"].latest
