"""The rules of autoscalers: what they scale, by which measures, how fast (local-cluster 5.9)."""

from __future__ import annotations

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.errors import forbidden, invalid, not_supported, required
from hekla.local.apiserver.objects.validation.metadata import counts, metadata

SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Type of a measure -> the field that describes it, in the order in which they are looked at."""
LONGEST_WINDOW, LONGEST_PERIOD = 3600, 1800


def autoscaler(tree: Json) -> Errors:
    found = metadata(tree)
    spec = tree.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        found.append(invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
    if most == 0:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    elif most < 0:
        found.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    if least is not None and most < least:
        found.append(
            invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
        )
    _target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", found)
    metrics = spec.get("metrics") or ()
    for position, metric in enumerate(metrics):
        _metric(metric, f"spec.metrics[{position}]", found)
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden("spec.metrics", why))
    for way in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(way)
        if rules is not None:
            _rules(rules, f"spec.behavior.{way}", found)
    return found


def autoscaler_status(new: Json, old: Json) -> Errors:
    found = metadata(new)
    counts(new.get("status") or {}, ("currentReplicas", "desiredReplicas"), found)
    return found


def _target(target: Json, path: str, found: Errors) -> None:
    for name in ("kind", "name"):
        value = target.get(name) or ""
        if not value:
            found.append(required(f"{path}.{name}"))
        else:
            found += [
                invalid(f"{path}.{name}", value, reason) for reason in names.path_segment(value)
            ]
    version = target.get("apiVersion") or ""
    if version.count("/") > 1:
        found.append(
            invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
        )
    elif not version.rpartition("/")[0]:
        found.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))


def _metric(metric: Json, path: str, found: Errors) -> None:
    kind = metric.get("type") or ""
    if not kind:
        found.append(required(f"{path}.type", "must specify a metric source type"))
    if kind not in SOURCES:
        found.append(not_supported(f"{path}.type", kind, sorted(SOURCES)))
    given = [name for name in SOURCES.values() if metric.get(name) is not None]
    if given:
        _source(given[0], metric[given[0]], f"{path}.{given[0]}", found)
    wanted = SOURCES.get(kind)
    if wanted is None:
        found.append(not_supported(f"{path}.type", kind, sorted(SOURCES)))
    elif wanted not in given:
        found.append(
            required(f"{path}.{wanted}", "must populate information for the given metric source")
        )
    if len(given) != 1:
        found += [
            forbidden(f"{path}.{name}", "must populate the given metric source only")
            for name in given
            if name != wanted
        ]


def _source(name: str, source: Json, path: str, found: Errors) -> None:
    target = source.get("target") or {}
    if name == "object":
        _target(source.get("describedObject") or {}, f"{path}.describedObject", found)
    if name in ("resource", "containerResource"):
        if not source.get("name"):
            found.append(required(f"{path}.name", "must specify a resource name"))
        if name == "containerResource":
            container = source.get("container") or ""
            if not container:
                found.append(required(f"{path}.container", "must specify a container"))
            else:
                found += [
                    invalid(f"{path}.container", container, reason)
                    for reason in names.dns_label(container)
                ]
    else:
        text = (source.get("metric") or {}).get("name") or ""
        if not text:
            found.append(required(f"{path}.metric.name", "must specify a metric name"))
        else:
            found += [
                invalid(f"{path}.metric.name", text, reason) for reason in names.path_segment(text)
            ]
    _aim(target, f"{path}.target", found)
    value, average, share = (
        target.get(key) for key in ("value", "averageValue", "averageUtilization")
    )
    if name == "pods":
        if average is None:
            found.append(
                required(
                    f"{path}.target.averageValue", "must specify a positive target averageValue"
                )
            )
    elif name in ("object", "external"):
        if value is None and average is None:
            what = (
                "either a target value or averageValue"
                if name == "object"
                else "either a target value for metric or a per-pod target"
            )
            found.append(required(f"{path}.target.averageValue", f"must set {what}"))
        if name == "external" and value is not None and average is not None:
            found.append(
                forbidden(
                    f"{path}.target.value",
                    "may not set both a target value for metric and a per-pod target",
                )
            )
    elif share is None and average is None:
        found.append(
            required(
                f"{path}.target.averageUtilization",
                "must set either a target raw value or a target utilization",
            )
        )
    elif share is not None and average is not None:
        found.append(
            forbidden(
                f"{path}.target.averageValue",
                "may not set both a target raw value and a target utilization",
            )
        )


def _aim(target: Json, path: str, found: Errors) -> None:
    kind = target.get("type") or ""
    if not kind:
        found.append(required(f"{path}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        found.append(
            invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
        )
    for name in ("value", "averageValue"):
        if target.get(name) is not None and amount(target[name]).nanos <= 0:
            found.append(invalid(f"{path}.{name}", target[name], "must be positive"))
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        found.append(invalid(f"{path}.averageUtilization", share, "must be greater than 0"))


def _rules(rules: Json, path: str, found: Errors) -> None:
    window, choice = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        found.append(
            invalid(
                f"{path}.stabilizationWindowSeconds",
                window,
                "must be greater than or equal to zero",
            )
        )
    if window is not None and window > LONGEST_WINDOW:
        found.append(
            invalid(
                f"{path}.stabilizationWindowSeconds",
                window,
                f"must be less than or equal to {LONGEST_WINDOW}",
            )
        )
    if choice is not None and choice not in ("Disabled", "Max", "Min"):
        found.append(not_supported(f"{path}.selectPolicy", choice, ("Disabled", "Max", "Min")))
    if not rules.get("policies"):
        found.append(required(f"{path}.policies", "must specify at least one Policy"))
    for position, policy in enumerate(rules.get("policies") or ()):
        where, period = f"{path}.policies[{position}]", policy.get("periodSeconds") or 0
        if policy.get("type") not in ("Pods", "Percent"):
            found.append(
                not_supported(f"{where}.type", policy.get("type") or "", ("Percent", "Pods"))
            )
        if (policy.get("value") or 0) <= 0:
            found.append(
                invalid(f"{where}.value", policy.get("value") or 0, "must be greater than zero")
            )
        if period <= 0:
            found.append(invalid(f"{where}.periodSeconds", period, "must be greater than zero"))
        if period > LONGEST_PERIOD:
            found.append(
                invalid(
                    f"{where}.periodSeconds",
                    period,
                    f"must be less than or equal to {LONGEST_PERIOD}",
                )
            )
    tolerance = rules.get("tolerance")
    if tolerance is not None and amount(tolerance).nanos < 0:
        found.append(invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0"))


CREATE = {("autoscaling", "HorizontalPodAutoscaler"): autoscaler}
STATUS = {("autoscaling", "HorizontalPodAutoscaler"): autoscaler_status}
