"""What the job controller counts, under the names that dashboards know (reference: controllers 13)."""

from __future__ import annotations

from prometheus_client import Histogram

from hekla.api import batch
from hekla.controllers.job import states
from hekla.kube.metrics import Tally

COMPLETED = Tally(
    "volcano_job_completed_phase_count",
    "The number of times a job has completed",
    ["job_name", "queue_name"],
)
FAILED = Tally(
    "volcano_job_failed_phase_count",
    "The number of times a job has failed",
    ["job_name", "queue_name"],
)
CREATION = Histogram(
    "volcano_controller_job_to_pod_creation_latency_milliseconds",
    "From the creation of a job to that of its pods, in milliseconds",
    buckets=[50 * (60000 / 50) ** (step / 29) for step in range(30)],
)
_ENTERED = {states.COMPLETED: COMPLETED, states.FAILED: FAILED}


def count_phase(job: batch.Job, key: str, phase: str) -> None:
    """A job has come into a phase."""
    for counted, counter in _ENTERED.items():
        if phase == counted:
            counter.labels(key, job.spec.queue).inc()


def forget(job: batch.Job, key: str) -> None:
    """A job is gone, and its series with it."""
    for counter in _ENTERED.values():
        try:
            counter.remove(key, job.spec.queue)
        except KeyError:
            pass  # it was never counted
