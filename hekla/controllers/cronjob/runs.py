"""Which run of a cron job is due, by what the object says (reference: controllers 8.4)."""

from __future__ import annotations

from hekla.api import batch
from hekla.api.text.schedule import Schedule
from hekla.api.text.times import instant
from hekla.kube import runs
from hekla.kube.runs import DELTA, Missed, Recent

__all__ = ["DELTA", "Missed", "Recent", "job_name", "most_recent", "until_next"]


def most_recent(cron: batch.CronJob, schedule: Schedule, now: float, *, deadline: bool) -> Recent:
    """The latest time of the schedule up to now.  Raises ValueError for a schedule that never
    advances."""
    earliest = instant(cron.status.last_schedule_time) or instant(cron.metadata.creation_timestamp)
    if deadline and cron.spec.starting_deadline_seconds is not None:
        earliest = max(earliest, now - cron.spec.starting_deadline_seconds)
    return runs.most_recent(earliest, schedule, now)


def until_next(cron: batch.CronJob, schedule: Schedule, now: float) -> float | None:
    """Seconds until the next run has to be looked at; None when there is no next run."""
    earliest = instant(cron.status.last_schedule_time) or instant(cron.metadata.creation_timestamp)
    return runs.until_next(earliest, schedule, now)


def job_name(cron: batch.CronJob, run: float) -> str:
    """The name of a run's job.  It depends on the run alone, so a second attempt finds the first
    one's job."""
    return f"{cron.metadata.name}-{int(run) // 60}"
