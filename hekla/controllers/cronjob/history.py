"""Which finished jobs of a cron job are deleted (reference: controllers 8.3)."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api import batch
from hekla.api.batch import JobPhase
from hekla.api.text.times import instant


def surplus(cron: batch.CronJob, jobs: Iterable[batch.Job]) -> list[batch.Job]:
    """The jobs beyond the limits, the oldest of each kind first.  An absent limit keeps all;
    Terminated jobs always stay."""
    found: list[batch.Job] = []
    listed = list(jobs)
    for phase, limit in (
        (JobPhase.COMPLETED, cron.spec.successful_jobs_history_limit),
        (JobPhase.FAILED, cron.spec.failed_jobs_history_limit),
    ):
        if limit is not None:
            ended = sorted((job for job in listed if job.status.state.phase == phase), key=age)
            found += ended[: max(0, len(ended) - limit)]
    return found


def age(job: batch.Job) -> tuple[float, str]:
    """By time of creation, then by name; a job without a time comes last."""
    return instant(job.metadata.creation_timestamp) or float("inf"), job.metadata.name
