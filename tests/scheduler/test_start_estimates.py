"""What is told of a job's start, when it is told again, and what a scheduler that restarts still knows."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from hekla.api.text.times import stamp
from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import StartEstimate
from hekla.engine.model.decisions import Event
from hekla.engine.placement.forecast import Why
from hekla.engine.world import World, policy
from hekla.scheduler.estimates.start_estimates import REST, StartEstimates, Told, moved_much, read

HOUR = {"hekla.io/walltime": "1h"}


class Written:
    """The scheduler's estimates over a world, with what was written and recorded."""

    def __init__(self) -> None:
        self.world = World(
            policy(
                plugins=["gang", "predicates"],
                actions="allocate, backfill",
                configurations=[{"name": "backfill", "arguments": {"mode": "easy"}}],
            )
        )
        self.world.nodes("n1", cpu=8)
        self.writes: list[str] = []
        self.events: list[Event] = []
        self.restart()

    def restart(self) -> None:
        self.estimates = StartEstimates(
            self.world.state,
            lambda: self.world.policy,
            self.writes.append,
            self.events.append,
            asyncio.Event(),
            lambda: self.world.now,
        )

    def renew(self) -> list[str]:
        """After a cycle; what is to be written by itself is, and stands on the PodGroup."""
        self.estimates.before_cycle()
        self.world.run()
        self.writes.clear()
        asyncio.run(self.estimates.renew())
        for key in self.writes:
            job = self.world.state.jobs[key]
            text = self.estimates.annotation(job)
            assert text is not None
            job.annotations = {**job.annotations, "hekla.io/start-estimate": text}
            self.estimates.written(job)
        return list(self.writes)

    def says(self, key: str) -> dict[str, object]:
        found = json.loads(self.world.state.jobs[key].annotations["hekla.io/start-estimate"])
        return dict(found)


def test_it_is_told_once_and_again_when_it_has_moved_much() -> None:
    of = Written()
    of.world.job("runs", cpu=8, on=["n1"], phase="Running", annotations=HOUR)
    of.world.job("waits", cpu=8, annotations=HOUR)
    assert of.renew() == ["default/waits"]
    assert of.says("default/waits")["after"] == "default/runs"
    of.world.now += 30
    assert of.renew() == [] and not of.events

    # Somebody else has taken the room meanwhile, for three hours.
    first = of.says("default/waits")["first"]
    of.world.end("runs")
    of.world.job("urgent", cpu=8, on=["n1"], phase="Running", annotations={"hekla.io/walltime": "3h"})  # fmt: skip
    assert of.renew() == ["default/waits"]
    assert [event.reason for event in of.events] == ["StartEstimate"]
    assert "when urgent ends" in of.events[0].message
    assert of.says("default/waits")["first"] == first


def test_a_restart_keeps_what_was_said_first_and_is_quiet() -> None:
    of = Written()
    of.world.job("runs", cpu=8, on=["n1"], phase="Running", annotations=HOUR)
    of.world.job("waits", cpu=8, annotations=HOUR)
    of.renew()
    first = of.says("default/waits")["first"]
    of.restart()
    assert of.renew() == []
    assert of.estimates.told["default/waits"].first == read(json.dumps({"first": first}))["first"]


def test_what_waits_no_more_is_forgotten() -> None:
    of = Written()
    of.world.job("runs", cpu=8, on=["n1"], phase="Running", annotations=HOUR)
    of.world.job("waits", cpu=8, annotations=HOUR)
    of.renew()
    of.world.end("runs")
    of.renew()
    assert not of.estimates.told
    assert of.estimates.annotation(of.world.state.jobs["default/waits"]) is None


def test_who_has_no_estimate_any_more_is_no_reason_to_renew_them() -> None:
    """The window of its reservation has opened, and it waits for room in it."""
    of = Written()
    of.world.state.upsert_other(
        "Reservation",
        {
            "metadata": {"name": "nightly", "uid": "r1"},
            "spec": {
                "nodes": {"names": ["n1"]},
                "window": {"start": stamp(of.world.now + 1200), "end": stamp(of.world.now + 7200)},
                "owners": {"users": ["anna"]},
            },
        },
    )
    of.world.job("runs", cpu=8, on=["n1"], phase="Running")
    marks = {"hekla.io/user": "anna", "hekla.io/reservation": "nightly"}
    of.world.job("hers", cpu=8, annotations=marks)
    assert of.renew() == ["default/hers"]
    assert of.estimates.patience() == pytest.approx(1200 + REST)
    of.world.now += 1260
    of.renew()
    assert "default/hers" in of.estimates.told, "what she was told first is kept"
    assert of.estimates.patience() is None


def test_moving_much_is_more_than_a_minute_and_more_where_it_is_far_away() -> None:
    def told(before: float, now: float, since: float = 0.0) -> bool:
        estimate = StartEstimate(now, False, Why.ROOM, "", "")
        return moved_much(Told("u", before, before, since, estimate), 1000.0)

    assert not told(2000, 2050, since=1000)
    assert told(2000, 2200, since=1000)
    assert not told(20_000, 21_500, since=1000)
    assert told(20_000, 30_000, since=1000)
    assert not told(2000, 2150, since=0), "told long ago, so it is told again less soon"
    assert told(math.inf, 2000) and told(2000, math.inf)
    assert not told(math.inf, math.inf)


def test_an_annotation_that_somebody_else_wrote_is_no_harm() -> None:
    assert read("no json") == {} and read("[1]") == {} and read('{"start": 5}') == {}


def test_with_estimates_off_no_session_is_kept() -> None:
    of = Written()
    of.world.run()
    assert hooks_of(of.world.state, of.world.policy).session is None
