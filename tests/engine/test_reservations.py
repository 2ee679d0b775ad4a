"""Reservations: nodes are kept for their owners in a window of time, and for nobody in one of maintenance."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.text.times import stamp
from hekla.engine.model.decisions import ReservationStatus
from hekla.engine.world import World, policy

PLUGINS = ["priority", "gang", "predicates", "nodeorder", "binpack"]
WALLTIME = "hekla.io/walltime"


def world(mode: str = "", plugins: list[Any] = PLUGINS) -> World:
    made = World(
        policy(plugins=plugins, configurations=[{"name": "backfill", "arguments": {"mode": mode}}])
    )
    made.tells_starts = True
    return made


def reserve(
    of: World,
    name: str,
    nodes: dict[str, Any],
    *,
    opens: float = 600,
    duration: str = "10m",
    window: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> None:
    of.state.upsert_other(
        "Reservation",
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": stamp(of.now)},
            "spec": {
                "nodes": nodes,
                "window": window or {"start": stamp(of.now + opens), "duration": duration},
                **spec,
            },
            "status": status or {},
        },
    )


def told(of: World) -> dict[str, ReservationStatus]:
    return {one.name: one for one in of.decisions.reservations or ()}


@pytest.mark.parametrize("mode", ["", "strict", "easy", "conservative"])
def test_only_what_ends_before_the_window_starts_on_reserved_nodes(mode: str) -> None:
    """Given a node under maintenance in ten minutes, a job of five minutes starts there, and neither
    one of twenty nor one without a walltime does."""
    given = world(mode)
    given.nodes("n1", cpu=4)
    reserve(given, "maintenance", {"names": ["n1"]})
    given.job("short", cpu=1, annotations={WALLTIME: "5m"})
    given.job("long", cpu=1, annotations={WALLTIME: "20m"})
    given.job("endless", cpu=1)

    decisions = given.run()

    assert set(decisions.bound()) == {"default/short-task-0"}
    assert "says no walltime" in given.why("endless") or mode != ""
    if mode == "":
        assert given.why("endless") == (
            "endless needs 1 pod of cpu=1; 0 fit. 1 node: 1 is reserved for maintenance from "
            "1970-01-12T13:56:40Z to 1970-01-12T14:06:40Z, and this job says no walltime. "
            "It starts once 1 more node with cpu=1 free is open to it."
        )
        assert "and this job may run until 1970-01-12T14:06:40Z" in given.why("long")


@pytest.mark.parametrize("mode", ["", "easy", "conservative"])
def test_the_owner_starts_when_the_window_opens_and_others_when_it_closes(mode: str) -> None:
    given = world(mode)
    given.nodes("n1", cpu=4)
    given.queue("physics")
    reserve(given, "run", {"names": ["n1"]}, owners={"queues": ["physics"]})
    given.job("theirs", cpu=4)
    given.job("gang", pods=4, cpu=1, queue="physics", annotations={"hekla.io/reservation": "run"})
    assert given.run().bound() == {}
    assert told(given)["run"].state == "Pending"
    assert "opens at 1970-01-12T13:56:40Z" in given.why("gang") or mode

    given.now += 600
    assert given.run().nodes_of("gang") == {"n1"}
    assert told(given)["run"].state == "Active"
    given.settle()

    given.now += 300
    given.end("gang")
    assert given.run().bound() == {}

    given.now += 300
    assert given.run().nodes_of("theirs") == {"n1"}
    assert (told(given)["run"].state, told(given)["run"].past) == ("Ended", 1)


def test_a_job_that_names_a_reservation_runs_there_alone() -> None:
    given = world()
    given.nodes("n1", "n2", cpu=4)
    reserve(given, "run", {"names": ["n2"]}, opens=0, owners={"jobs": ["default/mine"]})
    given.job("mine", cpu=1, annotations={"hekla.io/reservation": "run"})
    given.job("stranger", cpu=1, annotations={"hekla.io/reservation": "run"})
    given.job("lost", cpu=1, annotations={"hekla.io/reservation": "nowhere"})

    decisions = given.run()

    assert decisions.bound() == {"default/mine-task-0": "n2"}
    assert "reservation run, which is not for its queue, user or name" in given.why("stranger")
    assert "reservation nowhere, which does not exist" in given.why("lost")


def test_users_own_reservations_by_the_annotation_of_their_jobs() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    reserve(given, "hers", {"names": ["n1"]}, opens=0, owners={"users": ["ada"]})
    given.job("hers", cpu=1, annotations={"hekla.io/user": "ada"})
    given.job("his", cpu=1, annotations={"hekla.io/user": "bob"})
    assert set(given.run().bound()) == {"default/hers-task-0"}


def test_a_count_gets_the_nodes_that_are_free_soonest_and_keeps_them() -> None:
    """Also after a restart, which reads them from the status."""
    given = world()
    given.nodes("n1", "n2", "n3", cpu=4)
    given.nodes("small", cpu=1)
    given.job("endless", cpu=4, on=["n1"])
    given.job("short", cpu=4, on=["n3"], annotations={WALLTIME: "5m"})
    reserve(given, "two", {"count": 2, "resources": {"cpu": "4"}})
    given.run()
    status = told(given)["two"]
    assert (status.nodes, status.state) == (["n2", "n3"], "Pending")

    given.end("endless")
    given.job("more", cpu=4, on=["n2"])
    given.now += 1
    given.run()
    assert told(given)["two"].nodes == ["n2", "n3"]
    assert told(given)["two"].state == "Draining"

    again = world()
    again.nodes("n1", "n2", "n3", cpu=4)
    again.now = given.now
    reserve(
        again,
        "two",
        {"count": 2, "resources": {"cpu": "4"}},
        opens=599,
        status={"nodes": ["n2", "n3"]},
    )
    again.run()
    assert told(again)["two"].nodes == ["n2", "n3"]


def test_what_cannot_be_met_says_why() -> None:
    given = world()
    given.nodes("n1", "n2", cpu=4)
    reserve(given, "absent", {"names": ["n9"]})
    reserve(given, "many", {"count": 3})
    reserve(given, "first", {"names": ["n1"]}, opens=6000)
    reserve(given, "second", {"selector": {"matchLabels": {}}}, opens=6300)
    given.run()
    said = {name: (one.state, one.reason, one.message) for name, one in told(given).items()}
    assert said["absent"] == ("Failed", "NoSuchNodes", "there is no node n9")
    assert said["many"] == (
        "Failed",
        "TooFewNodes",
        "it asks for 3 nodes, and 2 are as spec.nodes asks",
    )
    assert said["second"] == (
        "Conflict",
        "Overlap",
        "n1 is reserved for first from 1970-01-12T15:31:40Z to 1970-01-12T15:36:40Z; "
        "both have to say overlap: true to share",
    )
    assert told(given)["second"].nodes == ["n2"]


def test_a_window_that_drains_says_who_is_still_there_and_until_when() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    given.job("short", cpu=1, on=["n1"], annotations={WALLTIME: "5m"})
    given.job("long", cpu=1, on=["n1"], annotations={WALLTIME: "20m"})
    given.job("endless", cpu=1, on=["n1"])
    reserve(given, "maintenance", {"names": ["n1"]})
    given.run()
    status = told(given)["maintenance"]
    assert (status.state, status.reason) == ("Draining", "RunsIntoIt")
    assert [(one["pod"], one.get("until")) for one in status.occupants] == [
        ("default/endless-task-0", None),
        ("default/long-task-0", "1970-01-12T14:06:40Z"),
    ]
    given.now += 600
    assert not given.run().evictions
    assert told(given)["maintenance"].reason == "Occupied"


def test_evict_evicts_when_the_window_opens_and_not_before() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    given.job("endless", cpu=1, on=["n1"])
    reserve(given, "maintenance", {"names": ["n1"]}, drain="Evict")
    assert not given.run().evictions
    given.now += 599
    assert not given.run().evictions
    given.now += 1
    (eviction,) = given.run().evictions
    assert (eviction.pod, eviction.text) == (
        "default/endless-task-0",
        "reservation: its node is reserved for maintenance",
    )


def test_evict_gives_notice_that_ends_as_the_window_opens() -> None:
    """With calm-eviction, whose notice here is two minutes; a reservation that goes takes it back."""
    calm = {"name": "calm-eviction", "arguments": {"notice": "2m"}}
    given = world(plugins=[*PLUGINS, calm])
    given.nodes("n1", cpu=4)
    given.job("endless", cpu=1, on=["n1"])
    reserve(given, "maintenance", {"names": ["n1"]}, drain="Evict")
    given.run()
    assert given.state.reservations.edge == given.now + 480
    given.now += 480
    decisions = given.run()
    assert not decisions.evictions
    assert decisions.notices
    (notice,) = decisions.notices
    assert (notice.at, notice.claimant) == (given.now + 120, "reservation:maintenance")
    given.settle()

    given.state.remove_other("Reservation", "maintenance")
    given.run()
    assert given.decisions.notices
    (back,) = given.decisions.notices
    assert back.at == 0


def test_windows_of_a_series_are_counted_also_those_that_were_missed() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    daily = {"schedule": "0 20 * * *", "timeZone": "Europe/Vienna", "duration": "2h"}
    reserve(given, "nightly", {"names": ["n1"]}, window=daily)
    given.run()
    assert told(given)["nightly"].start == "1970-01-12T19:00:00Z"
    given.now += 3 * 86400
    given.run()
    assert (told(given)["nightly"].start, told(given)["nightly"].past) == (
        "1970-01-15T19:00:00Z",
        3,
    )


def test_two_that_may_overlap_share_their_nodes() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    for name in ("a", "b"):
        given.queue(name)
        reserve(given, name, {"names": ["n1"]}, opens=0, overlap=True, owners={"queues": [name]})
        given.job(name, cpu=1, queue=name)
    given.job("other", cpu=1)
    assert set(given.run().bound()) == {"default/a-task-0", "default/b-task-0"}


def test_a_status_that_comes_back_is_nothing_new() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    reserve(given, "maintenance", {"names": ["n1"]})
    given.run()
    before = given.state.version
    status = {"state": "Pending", "reason": "FreeByThen"}
    reserve(given, "maintenance", {"names": ["n1"]}, status=status)
    assert given.state.version == before


def test_one_that_cannot_be_read_says_so_and_reserves_nothing() -> None:
    given = world()
    given.nodes("n1", cpu=4)
    reserve(given, "odd", {"names": ["n1"]}, window={"start": "soon", "duration": "1h"})
    given.job("any", cpu=1)
    assert given.run().bound() == {"default/any-task-0": "n1"}
    assert (told(given)["odd"].state, told(given)["odd"].reason) == ("Failed", "Unreadable")
