"""Which Reservations are admitted, and with which defaults."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission.registry import review
from hekla.admission.review import Settings, StaticLookup, Verdict

ONCE = {"start": "2026-12-01T20:00:00Z", "duration": "2h"}
HERE = {"names": ["n1", "n2"]}


def reservation(name: str = "mine", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodes": HERE, "window": ONCE, **spec}}


def ask(tree: dict[str, Any], *others: dict[str, Any], path: str = "validate") -> Verdict:
    lookup = StaticLookup(queues=[{"metadata": {"name": "physics"}}], reservations=others)
    return review(f"/reservations/{path}", "CREATE", tree, None, lookup, Settings())


def window(**fields: str) -> dict[str, Any]:
    return reservation(window=fields)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (reservation(nodes={}), "spec.nodes: say which nodes: names, selector or count"),
        (
            reservation(nodes={"names": ["n1"], "count": 2}),
            "spec.nodes.count: Invalid value: 2: more than the 1 nodes that are named",
        ),
        (
            reservation(nodes={"names": ["n1", "n1"]}),
            'spec.nodes.names: Invalid value: "n1": it is there twice',
        ),
        (
            reservation(owners={"queues": ["chemistry"]}),
            'spec.owners.queues: Invalid value: "chemistry": there is no such queue',
        ),
        (
            reservation(owners={"jobs": ["train"]}),
            'spec.owners.jobs: Invalid value: "train": write namespace/name',
        ),
        (
            window(),
            "spec.window: it opens never: say start (a time such as 2026-11-24T20:00:00Z) or schedule",
        ),
        (
            window(start="2026-12-01T20:00:00Z"),
            "spec.window: say either end or duration beside start",
        ),
        (
            window(start="2026-12-01T20:00:00Z", end="2026-12-01T19:00:00Z"),
            'spec.window.end = "2026-12-01T19:00:00Z": it has to be after start = "2026-12-01T20:00:00Z"',
        ),
        (
            window(start="2026-12-01T20:00:00", duration="1h"),
            'spec.window.start = "2026-12-01T20:00:00": no time such as 2026-11-24T20:00:00Z, with its zone',
        ),
        (
            window(start="2026-12-01T20:00:00Z", duration="soon"),
            'spec.window.duration = "soon": no duration such as 90m or 2h',
        ),
        (
            window(schedule="0 20 * *", duration="1h"),
            "spec.window.schedule = \"0 20 * *\": expected exactly 5 fields, found 4: '0 20 * *'",
        ),
        (
            window(schedule="@daily", duration="1h", timeZone="Mars"),
            'spec.window.timeZone = "Mars": unknown time zone Mars',
        ),
        (
            window(schedule="@every 1h", duration="1m"),
            'spec.window.schedule = "@every 1h": windows open by the clock: five fields such as '
            '"0 20 * * 5", or @daily',
        ),
        (
            window(schedule="@hourly", duration="2h"),
            "spec.window.duration: windows of 7200 s run into each other, because the schedule comes "
            "again after 3600 s",
        ),
        (
            window(schedule="0 0 30 2 *", duration="1h"),
            'spec.window.schedule = "0 0 30 2 *": it opens never, as no such time comes: say one that '
            'does, such as "0 20 * * 5"',
        ),
        (
            window(
                schedule="0 20 * * 5",
                duration="1h",
                start="2026-12-01T00:00:00Z",
                end="2026-12-04T20:00:00Z",
            ),
            'spec.window.schedule = "0 20 * * 5": it opens never, as no such time comes after start = '
            '"2026-12-01T00:00:00Z" before end = "2026-12-04T20:00:00Z": say one that does, or a longer time',
        ),
        (window(schedule="@daily"), "spec.window.duration: a schedule needs one, such as 2h"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(tree: dict[str, Any], message: str) -> None:
    verdict = ask(tree)
    assert (verdict.allowed, verdict.message) == (False, message)


def test_nodes_that_another_has_at_that_time_are_refused_unless_both_share() -> None:
    late = {"start": "2026-12-01T21:00:00Z", "duration": "2h"}
    other = reservation("other", nodes={"names": ["n2"]}, window=late)
    verdict = ask(reservation(), other)
    assert verdict.message == (
        "spec.window: reservation other has n2 from 2026-12-01T21:00:00Z to 2026-12-01T22:00:00Z; "
        "both have to say overlap: true to share"
    )
    sharing = reservation("other", nodes={"names": ["n2"]}, window=late, overlap=True)
    assert not ask(reservation(), sharing).allowed
    assert ask(reservation(overlap=True), sharing).allowed
    assert ask(reservation("other"), other).allowed  # itself, before the update
    nightly = reservation("other", window={"schedule": "30 20 * * *", "duration": "1h"})
    assert (
        "from 2026-12-01T20:30:00Z to 2026-12-01T21:30:00Z" in ask(reservation(), nightly).message
    )


def test_defaults_say_what_holds() -> None:
    tree = window(schedule="@daily", duration="1h")
    assert ask(tree, path="mutate").patch == [
        {"op": "add", "path": "/spec/drain", "value": "Wait"},
        {"op": "add", "path": "/spec/window/timeZone", "value": "UTC"},
    ]
    assert ask(reservation(drain="Evict"), path="mutate").patch is None
