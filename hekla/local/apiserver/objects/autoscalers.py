"""HorizontalPodAutoscalers have two versions: v1 knows only a target for cpu, v2 any metric. They
are stored as v2 (local-cluster 1.7).

What v1 cannot express (other metrics, behavior, conditions) is left out when a client reads v1, and
is lost when a v1 client writes the object back. Kubernetes keeps it in annotations; v1 clients that
write are too rare to do the same.
"""

from __future__ import annotations

from hekla.api.trees import Json

_SPEC, _STATUS = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"


def present(stored: Json) -> Json:
    """The stored autoscaler as an object of autoscaling/v1."""
    shown = dict(stored)
    spec, status = stored.get("spec"), stored.get("status")
    if spec is not None:
        shown["spec"] = {
            key: value for key, value in spec.items() if key not in ("metrics", "behavior")
        }
        target = _cpu(spec.get("metrics"), "target")
        if target is not None:
            shown["spec"][_SPEC] = target
    if status is not None:
        shown["status"] = {
            key: value
            for key, value in status.items()
            if key not in ("currentMetrics", "conditions")
        }
        current = _cpu(status.get("currentMetrics"), "current")
        if current is not None:
            shown["status"][_STATUS] = current
    return shown


def keep(shown: Json) -> Json:
    """An object of autoscaling/v1 as it is stored."""
    stored = dict(shown)
    spec, status = shown.get("spec"), shown.get("status")
    if spec is not None:
        stored["spec"] = {key: value for key, value in spec.items() if key != _SPEC}
        target = spec.get(_SPEC)
        if target is not None:
            stored["spec"]["metrics"] = [
                _metric("target", {"type": "Utilization", "averageUtilization": target})
            ]
    if status is not None:
        stored["status"] = {key: value for key, value in status.items() if key != _STATUS}
        if status.get(_STATUS) is not None:
            stored["status"]["currentMetrics"] = [
                _metric("current", {"averageUtilization": status[_STATUS]})
            ]
    return stored


def _metric(name: str, value: Json) -> Json:
    return {"type": "Resource", "resource": {"name": "cpu", name: value}}


def _cpu(metrics: list[Json] | None, name: str) -> int | None:
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        if metric.get("type") == "Resource" and resource.get("name") == "cpu":
            utilization = (resource.get(name) or {}).get("averageUtilization")
            return utilization if isinstance(utilization, int) else None
    return None
