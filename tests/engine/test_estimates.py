"""What a waiting job is told of its start: when, after whom, and what it waits for until then."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from hekla.api.text.times import stamp
from hekla.api.trees import Tree
from hekla.engine.cycle import hooks_of
from hekla.engine.estimates.estimates import Estimation, StartEstimate
from hekla.engine.estimates.snapshot import AT_ONCE as JOBS_AT_ONCE
from hekla.engine.estimates.snapshot import Reading
from hekla.engine.framework.session import Session
from hekla.engine.placement.forecast import AT_ONCE, Forecast, Why
from hekla.engine.world import World, policy

HOUR = {"hekla.io/walltime": "1h"}
HALF = {"hekla.io/walltime": "30m"}
SHORT = {"hekla.io/walltime": "10m"}


def world(mode: str = "easy", *plugins: str | Tree, actions: str = "allocate, backfill") -> World:
    made = World(
        policy(
            plugins=["gang", "predicates", *plugins],
            actions=actions,
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
    assert because["waits"] == "it needs 1 pod of cpu=4 and cpu is short: 0 fit now"


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
        "it needs 1 pod of cpu=8 and cpu is short on the node that it may use: 0 fit now"
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


def test_a_promise_that_is_undone_frees_no_more_of_a_budget_than_it_took() -> None:
    """The first is promised the room of a pod that leaves, and needs all of the budget."""
    limits = {"budget": {"resources": {"cpu": "4h"}, "renew": "@daily"}}
    of = world("", {"name": "party-limits", "arguments": limits})
    of.nodes("n1", cpu=8)
    of.job("leaves", cpu=8, on=["n1"], phase="Running", annotations=BEN)
    pod = of.pods["default/leaves-task-0"]
    pod["metadata"]["deletionTimestamp"] = stamp(of.now)
    of.state.upsert_pod(pod)
    of.job("first", cpu=4, annotations={**ANNA, **HOUR})
    of.job("next", cpu=4, annotations={**ANNA, **HOUR})
    found, _ = estimates(of)
    assert of.decisions.pipelined
    assert found["next"].at == 1_036_800 - of.now and found["next"].why is Why.LIMIT


ANNA, BEN, CY = ({"hekla.io/user": name} for name in ("anna", "ben", "cy"))


def test_who_runs_as_many_jobs_as_he_may_starts_when_one_of_them_ends() -> None:
    """One that runs for ever never makes room, and others pass."""
    of = world("easy", {"name": "party-limits", "arguments": {"running": 2}})
    of.nodes("n1", cpu=16)
    of.job("a1", cpu=2, on=["n1"], phase="Running", annotations={**ANNA, **HOUR})
    of.job("a2", cpu=1, on=["n1"], phase="Running", annotations=ANNA)
    of.job("a3", cpu=1, annotations={**ANNA, **HALF})
    of.job("a4", cpu=1, annotations={**ANNA, **HALF})
    of.job("wide", cpu=14, annotations={**BEN, **HALF})
    found, because = estimates(of)
    assert found["a3"].at == pytest.approx(3600) and found["a3"].after == "default/a1"
    assert found["a4"].at == pytest.approx(5400) and found["a4"].after == "default/a3"
    assert found["a3"].why is found["a4"].why is Why.LIMIT
    assert because["a3"] == "user anna runs 2 of 2 jobs"
    assert found["wide"].at == pytest.approx(3600) and found["wide"].why is Why.ROOM


def test_who_holds_as_much_as_he_may_starts_when_that_is_less() -> None:
    """Pods of one job leave at different times; accounts above count too; more than the limit has never
    room."""
    limits = {"by": "account", "of": {"physics": {"resources": {"cpu": 8}}}}
    of = world("", {"name": "party-limits", "arguments": limits})
    of.nodes("n1", cpu=32)
    anna, ben = ({**one, "hekla.io/account": "physics"} for one in (ANNA, BEN))
    of.job("ends", cpu=2, on=["n1"], phase="Running", annotations={**CY, **HOUR})
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations={**anna, **HOUR})
    of.job("first", pods=2, cpu=2, annotations={**ben, **SHORT})
    of.job("small", cpu=2, annotations={**ben, **HALF})
    of.job("more", cpu=9, annotations={**ben, **SHORT})
    found, because = estimates(of)
    assert found["first"].at == pytest.approx(3600) and found["first"].why is Why.LIMIT
    assert because["first"] == ("account physics holds 8 of 8 cpu, and the job's minimum takes 4")
    assert found["first"].after == "default/runs"
    assert not found["more"].known and found["more"].why is Why.LIMIT


def test_a_limit_of_jobs_holds_for_those_that_start_meanwhile() -> None:
    of = world("conservative", {"name": "party-limits", "arguments": {"running": 1}})
    of.nodes("n1", cpu=8)
    of.job("other", cpu=8, on=["n1"], phase="Running", annotations={**BEN, **HOUR})
    of.job("a1", cpu=2, annotations={**ANNA, **HALF})
    of.job("a2", cpu=2, annotations={**ANNA, **HALF})
    found, _ = estimates(of)
    assert found["a1"].latest and not found["a2"].latest
    assert found["a2"].at == pytest.approx(found["a1"].at + 1800, abs=30)


def reserve_for_anna(of: World) -> None:
    """`n1`, from twenty minutes on for ten."""
    of.state.upsert_other(
        "Reservation",
        {
            "metadata": {"name": "nightly", "uid": "r1"},
            "spec": {
                "nodes": {"names": ["n1"]},
                "window": {"start": stamp(of.now + 1200), "end": stamp(of.now + 1800)},
                "owners": {"users": ["anna"]},
            },
        },
    )


def test_who_waits_for_a_reservation_is_told_that_it_is_one() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    reserve_for_anna(of)
    of.job("long", cpu=4, annotations={**BEN, **HOUR})
    of.job("hers", cpu=8, annotations={**ANNA, **SHORT, "hekla.io/reservation": "nightly"})
    of.job("his", cpu=8, annotations={**BEN, "hekla.io/reservation": "nightly"})
    found, because = estimates(of)
    assert because["long"] == (
        "it needs 1 pod of cpu=4, and nodes that have room now are reserved before it would end"
    )
    assert found["hers"].at == pytest.approx(1200) and found["hers"].why is Why.RESERVATION
    assert because["hers"] == "it runs in the windows of reservation nightly, which it names"
    assert "his" not in found, "it is not his"


def test_a_window_is_foretold_to_nobody_who_could_not_start_in_it() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.queue("closed", state="Closed")
    reserve_for_anna(of)
    marks = {**ANNA, **SHORT, "hekla.io/reservation": "nightly"}
    of.job("closed-out", cpu=1, queue="closed", annotations=marks)
    of.job("incomplete", pods=1, min_available=2, cpu=1, annotations=marks)
    of.job("runs", cpu=8, on=["n1"], phase="Running", annotations=HOUR)
    of.job("waits", cpu=1, annotations=marks)
    assert set(estimates(of)[0]) == {"waits"}


def strict_queue(of: World, name: str) -> None:
    of.state.upsert_queue(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": stamp(of.now),
                "annotations": {"hekla.io/job-order": "strict-fifo"},
            },
            "spec": {"weight": 1},
            "status": {"state": "Open"},
        }
    )


def test_nobody_passes_in_a_queue_of_strict_order() -> None:
    """Though there is room, and no other queue minds."""
    of = world("")
    of.nodes("n1", cpu=8)
    strict_queue(of, "strict")
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations=HOUR)
    of.job("first", cpu=4, queue="strict", annotations=HALF)
    of.job("second", cpu=1, queue="strict", annotations=HALF)
    found, because = estimates(of)
    assert (found["second"].why, found["second"].behind) == (Why.ORDER, "default/first")
    assert because["second"] == "first waits before it, and jobs of queue strict pass nobody"
    assert because["first"] == "it needs 1 pod of cpu=4 and cpu is short: 0 fit now"


def test_behind_a_job_of_another_queue_those_of_strict_order_wait_too() -> None:
    of = world("easy")
    of.nodes("n1", cpu=8)
    strict_queue(of, "strict")
    of.job("runs", cpu=6, on=["n1"], phase="Running", annotations=HOUR)
    of.job("first", cpu=4, annotations=HALF)
    of.job("second", cpu=1, queue="strict", annotations=SHORT)
    found, because = estimates(of)
    assert found["second"].why is Why.ORDER
    assert because["second"] == "first waits before it, and jobs of queue strict pass nobody"


def test_who_has_room_and_is_yet_to_be_let_in_is_told_that_there_is() -> None:
    limits: Tree = {"name": "party-limits", "arguments": {"submitted": 1}}
    of = world("easy", limits, actions="enqueue, allocate, backfill")
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=1, on=["n1"], phase="Running", annotations=ANNA)
    for name, cpu in (("first", 5), ("next", 4)):
        of.job(name, pods=0, min_available=1, phase="Pending", min_resources={"cpu": cpu}, annotations=ANNA)  # fmt: skip
    found, because = estimates(of)
    assert found["first"].at == 0
    assert because["first"] == "it needs 1 pod of cpu=5, and there is room"
    assert because["next"] == (
        "it needs 1 pod of cpu=4, and others before it take the room that there is, and nothing "
        "that is known to end makes room for it (what has no walltime counts as endless)"
    )


def test_where_no_node_will_do_no_end_is_waited_for() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.job("picky", cpu=8, spec={"nodeSelector": {"disk": "ssd"}}, annotations=HOUR)
    of.job("gang", pods=2, cpu=1, spec={"nodeSelector": {"disk": "ssd"}}, annotations=HOUR)
    found, because = estimates(of)
    assert not found["picky"].known
    assert because["picky"] == "it needs 1 pod of cpu=8, and no node may take it"
    assert because["gang"] == "it needs 2 pods of cpu=1 at once, and no node may take them"


def test_reserved_nodes_keep_a_job_and_not_who_waits_before_it() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.nodes("n2", cpu=8)
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
    of.job("runs", cpu=8, on=["n2"], phase="Running", annotations=HALF)
    of.job("first", pods=2, cpu=8, annotations=SHORT)
    of.job("long", cpu=4, annotations=HOUR)
    found, because = estimates(of)
    assert found["first"].at == pytest.approx(1800)
    assert because["first"] == "it needs 2 pods of cpu=8 at once and cpu is short: 1 fits now"
    assert because["long"] == (
        "it needs 1 pod of cpu=4, and nodes that have room now are reserved before it would end"
    )


def test_a_queue_that_may_hold_nothing_is_told_in_numbers() -> None:
    of = world("easy", "capacity")
    of.queue("small", capability={"cpu": 4})
    of.nodes("n1", cpu=16)
    of.job("large", cpu=5, queue="small", annotations=HOUR)
    _, because = estimates(of)
    assert because["large"] == (
        "queue small holds cpu=0 of its capability cpu=4, and the job needs cpu=5"
    )


def test_reading_pauses_also_where_every_user_has_limits_of_his_own() -> None:
    of = world("easy", {"name": "party-limits", "arguments": {"running": 1}})
    of.nodes("n1", cpu=1)
    for number in range(200):
        of.job(f"waits-{number}", cpu=2, annotations={**HALF, "hekla.io/user": f"u{number}"})
    of.run()
    session = hooks_of(of.state, of.policy).session
    assert isinstance(session, Session)
    reading = Reading(session, of.now)
    parties = [0, *(len(reading.parties) for _ in reading.steps()), len(reading.parties)]
    assert parties[-1] == 200
    assert max(after - before for before, after in pairwise(parties)) <= JOBS_AT_ONCE


def test_pods_of_several_templates_that_have_room_alone_are_named_together() -> None:
    of = world()
    of.nodes("n1", cpu=8)
    of.job("runs", cpu=3, on=["n1"], phase="Running", annotations=HOUR)
    of.job("wide", pods=1, min_available=2, cpu=4, annotations=HOUR)
    of.pod("wide-ps", job="wide", cpu=2)
    _, because = estimates(of)
    assert because["wide"] == (
        "it needs 1 pod of cpu=4 and 1 pod of cpu=2 at once, and not all of them have room beside each other"
    )
