"""How a pod is doing in three words, as kubectl's table of pods has them: Ready, Status and Restarts
(local-cluster 1.10)."""

from __future__ import annotations

from typing import Any, NamedTuple

from hekla.api.text.ages import human
from hekla.api.text.times import instant
from hekla.api.trees import Json


class Summary(NamedTuple):
    """What the statuses of a pod's containers add up to."""

    ready: int
    total: int
    status: str
    restarts: int
    last_restart: float
    """Seconds since the epoch; 0 if no container was restarted."""

    def readiness(self) -> str:
        return f"{self.ready}/{self.total}"

    def restarts_text(self, now: float) -> str:
        if self.restarts and self.last_restart:
            return f"{self.restarts} ({human(now - self.last_restart)} ago)"
        return str(self.restarts)


def summary(pod: Json) -> Summary:
    """The values of the columns Ready, Status and Restarts, as kubectl's `printPod` computes them."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or ""
    if any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    ):
        reason = "SchedulingGated"
    sidecars = {
        c.get("name")
        for c in spec.get("initContainers") or ()
        if c.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or ()) + len(sidecars)
    first = _init(spec, status, sidecars)
    ready, restarts, last = first.ready, first.restarts, first.last_restart
    if first.reason:
        reason = first.reason
    if not first.reason or has_condition(status, "Initialized"):
        restarts, last = first.sidecar_restarts, first.sidecar_last
        running = False
        for container in reversed(status.get("containerStatuses") or ()):
            restarts += container.get("restartCount") or 0
            last = max(last, _finished(container))
            state = container.get("state") or {}
            waiting, ended = state.get("waiting") or {}, state.get("terminated")
            if waiting.get("reason"):
                reason = waiting["reason"]
            elif ended is not None:
                reason = ended.get("reason") or _ending(ended)
            elif container.get("ready") and state.get("running") is not None:
                running = True
                ready += 1
        if reason == "Completed" and running:
            reason = "Running" if has_condition(status, "Ready") else "NotReady"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    return Summary(ready, total, reason, restarts, last)


class _Init(NamedTuple):
    reason: str
    """Init:..., empty if all init containers are done."""
    ready: int
    restarts: int
    last_restart: float
    sidecar_restarts: int
    sidecar_last: float


def _init(spec: Json, status: Json, sidecars: set[Any]) -> _Init:
    ready = restarts = sidecar_restarts = 0
    last = sidecar_last = 0.0
    for position, container in enumerate(status.get("initContainerStatuses") or ()):
        restarts += container.get("restartCount") or 0
        last = max(last, _finished(container))
        sidecar = container.get("name") in sidecars
        if sidecar:
            sidecar_restarts += container.get("restartCount") or 0
            sidecar_last = max(sidecar_last, _finished(container))
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if ended is not None:
            reason = f"Init:{ended.get('reason') or _ending(ended)}"
        elif waiting.get("reason") and waiting["reason"] != "PodInitializing":
            reason = f"Init:{waiting['reason']}"
        else:
            reason = f"Init:{position}/{len(spec.get('initContainers') or ())}"
        return _Init(reason, ready, restarts, last, sidecar_restarts, sidecar_last)
    return _Init("", ready, restarts, last, sidecar_restarts, sidecar_last)


def _ending(ended: Json) -> str:
    return (
        f"Signal:{ended['signal']}"
        if ended.get("signal")
        else f"ExitCode:{ended.get('exitCode', 0)}"
    )


def _finished(container: Json) -> float:
    moment = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
    try:
        return instant(moment) if isinstance(moment, str) else 0.0
    except ValueError:
        return 0.0


def has_condition(status: Json, name: str) -> bool:
    return any(
        c.get("type") == name and c.get("status") == "True" for c in status.get("conditions") or ()
    )
