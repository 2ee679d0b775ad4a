"""How long a Job waits before it tries again, from the pods that have failed.  Pure: a restart of
the controller changes nothing."""

from __future__ import annotations

from hekla.api.text.times import instant
from hekla.local.controller_manager.pods import Pod

FIRST, LONGEST = 10.0, 600.0


def ended_at(pod: Pod) -> float:
    """When a pod ended: when its last container did; where that is not known, when the pod was last
    ready, was deleted or was created."""
    status = pod.status
    times = [
        ended.finished_at
        for c in (*status.container_statuses, *status.init_container_statuses)
        if (ended := c.terminated)
    ]
    if any(times):
        return max(map(instant, filter(None, times)))
    ready = next((c.last_transition_time for c in status.conditions if c.type == "Ready"), None)
    return instant(ready or pod.metadata.deletion_timestamp or pod.metadata.creation_timestamp)


def delay(failures: int) -> float:
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 30)) if failures else 0.0


def remaining(failures: int, last: float, now: float) -> float:
    """Seconds still to wait after so many failures in a row, the last of them then."""
    return max(0.0, last + delay(failures) - now)


def of_job(pods: list[Pod], now: float) -> float:
    """Seconds until the next pod may be made: failures since the last success count."""
    failed = sorted(ended_at(pod) for pod in pods if pod.status.phase == "Failed")
    if not failed:
        return 0.0
    success = max((ended_at(pod) for pod in pods if pod.status.phase == "Succeeded"), default=0.0)
    return remaining(sum(at > success for at in failed), failed[-1], now)
