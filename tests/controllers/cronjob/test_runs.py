"""Which run is due: the reference's own numbers.  The cron job was made at 10:00 on 1 January 2026."""

from typing import Any

import pytest

from hekla.api import batch
from hekla.api.meta import ObjectMeta
from hekla.api.text.schedule import parse
from hekla.api.text.times import instant, stamp
from hekla.controllers.cronjob.controller import delay_after_change, job_body
from hekla.controllers.cronjob.history import surplus
from hekla.controllers.cronjob.runs import DELTA, Missed, job_name, most_recent, until_next

DAY = "2026-01-01T"
MINUTE, HOUR = 60.0, 3600.0


def cron(schedule: str = "*/5 * * * *", *, last: str = "", **spec: Any) -> batch.CronJob:
    return batch.CronJob(
        metadata=ObjectMeta(
            name="c", namespace="default", uid="u", creation_timestamp=f"{DAY}10:00:00Z"
        ),
        spec=batch.CronJobSpec(schedule=schedule, **spec),
        status=batch.CronJobStatus(last_schedule_time=f"{DAY}{last}:00Z" if last else ""),
    )


def due(made: batch.CronJob, now: str) -> tuple[str | None, Missed, float]:
    """(the run, how many were missed, seconds until the next look)."""
    when = instant(now if "T" in now else f"{DAY}{now}:00Z")
    schedule = parse(made.spec.schedule, made.spec.time_zone or "UTC")
    recent = most_recent(made, schedule, when, deadline=True)
    run = stamp(recent.run)[11:16] if recent.run is not None else None
    following = until_next(made, schedule, when)
    assert following is not None
    return run, recent.missed, round(following - DELTA, 3)


@pytest.mark.scenario("controllers", 112)
def test_nothing_before_its_time() -> None:
    assert due(cron(), "10:03") == (None, Missed.NONE, 2 * MINUTE)
    assert due(cron(), "10:05") == ("10:05", Missed.NONE, 5 * MINUTE)


@pytest.mark.scenario("controllers", 113)
def test_a_zone_of_its_own() -> None:
    made = cron("0 10 * * *", time_zone="Pacific/Honolulu")
    assert due(made, "10:00") == (None, Missed.NONE, 10 * HOUR)
    assert due(made, "20:00") == ("20:00", Missed.NONE, 24 * HOUR)


@pytest.mark.scenario("controllers", 115)
def test_a_run_may_be_late() -> None:
    assert due(cron(), "10:07") == ("10:05", Missed.NONE, 3 * MINUTE)
    assert due(cron(starting_deadline_seconds=180), "10:07") == ("10:05", Missed.NONE, 3 * MINUTE)
    assert due(cron(starting_deadline_seconds=60), "10:07") == (None, Missed.NONE, 3 * MINUTE)


@pytest.mark.scenario("controllers", 116)
def test_of_many_missed_runs_the_last_is_made() -> None:
    assert due(cron(), "20:00") == ("20:00", Missed.MANY, 5 * MINUTE)
    assert due(cron("* * * * *", starting_deadline_seconds=60060), "2026-01-02T10:00:00Z") == (
        "10:00",
        Missed.MANY,
        MINUTE,
    )


@pytest.mark.scenario("controllers", 120)
def test_intervals() -> None:
    assert due(cron("@every 1h"), "10:05") == (None, Missed.NONE, 55 * MINUTE)
    assert due(cron("@every 1h"), "11:00") == ("11:00", Missed.NONE, HOUR)
    assert due(cron("@every 1h", starting_deadline_seconds=60), "11:30")[0] is None
    assert due(cron("@every 1h", starting_deadline_seconds=60), "11:30")[2] == 30 * MINUTE
    assert due(cron("@every 1h", starting_deadline_seconds=86400), "11:30")[0] == "11:00"


@pytest.mark.scenario("controllers", 127)
def test_recent_runs() -> None:
    assert due(cron("0 * * * *"), f"{DAY}10:00:30Z")[:2] == (None, Missed.NONE)
    assert due(cron("0 * * * *"), "11:01")[:2] == ("11:00", Missed.NONE)
    assert due(cron("0 * * * *"), "15:01")[:2] == ("15:00", Missed.FEW)
    week = cron("@every 1h", starting_deadline_seconds=10)
    recent = most_recent(week, parse("@every 1h"), instant("2026-01-08T10:00:00Z"), deadline=False)
    assert recent.missed is Missed.MANY
    with pytest.raises(ValueError, match="less than 1 second"):
        due(cron("59 23 31 2 *"), "11:00")


@pytest.mark.scenario("controllers", 124)
@pytest.mark.parametrize(
    ("schedule", "delay"),
    [("*/1 * * * *", MINUTE), ("@every 3m", 3 * MINUTE), ("@every 1m", MINUTE)],
)
def test_a_new_schedule_begins_with_its_next_run(schedule: str, delay: float) -> None:
    made = cron(schedule, last="10:10", time_zone="UTC")
    found = delay_after_change(made, instant(f"{DAY}10:10:00Z"))
    assert found is not None and round(found - DELTA, 3) == delay


@pytest.mark.scenario("controllers", 121)
@pytest.mark.scenario("controllers", 126)
def test_history() -> None:
    def job(name: str, phase: str, created: str) -> batch.Job:
        made = batch.Job(metadata=ObjectMeta(name=name, creation_timestamp=created or None))
        made.status.state.phase = phase
        return made

    jobs = [
        job("b", "Completed", f"{DAY}10:05:00Z"),
        job("a", "Completed", f"{DAY}10:05:00Z"),
        job("new", "Completed", f"{DAY}10:10:00Z"),
        job("timeless", "Completed", ""),
        job("bad", "Failed", f"{DAY}10:00:00Z"),
        job("stopped", "Terminated", f"{DAY}09:00:00Z"),
        job("busy", "Running", f"{DAY}09:00:00Z"),
    ]
    made = cron(successful_jobs_history_limit=1, failed_jobs_history_limit=0)
    assert [job.metadata.name for job in surplus(made, jobs)] == ["a", "b", "new", "bad"]
    assert surplus(cron(successful_jobs_history_limit=5), jobs) == []
    assert surplus(cron(), jobs) == [], "no limit keeps all"


@pytest.mark.scenario("controllers", 128)
def test_the_job_of_a_run() -> None:
    made = cron(time_zone="Pacific/Honolulu")
    made.spec.job_template.metadata.annotations = {"kept": "x"}
    run = instant(f"{DAY}20:00:00Z")
    body = job_body(made, job_name(made, run), run)
    assert body["metadata"]["name"] == f"c-{int(run) // 60}"
    assert body["metadata"]["annotations"] == {
        "kept": "x",
        "volcano.sh/cronjob-scheduled-timestamp": "2026-01-01T10:00:00-10:00",
    }
    made.spec.time_zone = None
    assert (
        job_body(made, "c", run)["metadata"]["annotations"][
            "volcano.sh/cronjob-scheduled-timestamp"
        ]
        == f"{DAY}20:00:00Z"
    )
