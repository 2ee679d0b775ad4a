"""The rules of HorizontalPodAutoscalers: scale target, metrics, behavior (local-cluster 5.9)."""

from __future__ import annotations

from hekla.api.text.fielderrors import forbidden
from hekla.api.text.fieldrules import Errors, named
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.amounts import amount
from hekla.local.apiserver.objects.validation.metadata import metadata, status_counts

METRIC_SOURCE_FIELDS = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Metric type -> the field that describes it, in the order in which they are checked."""
MAX_STABILIZATION_WINDOW_SECONDS, MAX_POLICY_PERIOD_SECONDS = 3600, 1800


def autoscaler(tree: Json) -> Errors:
    errors = metadata(tree)
    spec = tree.get("spec") or {}
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and least < 1:
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1")
    if most == 0:
        errors.required("spec.maxReplicas", "must be set and greater than 0")
    elif most < 0:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1")
    if least is not None and most < least:
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`")
    _scale_target(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef", errors)
    metrics = spec.get("metrics") or ()
    for position, metric in enumerate(metrics):
        _metric(metric, f"spec.metrics[{position}]", errors)
    if least == 0 and not any(metric.get("type") in ("Object", "External") for metric in metrics):
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.forbidden("spec.metrics", why)
    for way in ("scaleUp", "scaleDown"):
        rules = (spec.get("behavior") or {}).get(way)
        if rules is not None:
            _scaling_rules(rules, f"spec.behavior.{way}", errors)
    return errors


def _scale_target(target: Json, path: str, errors: Errors) -> None:
    for name in ("kind", "name"):
        value = target.get(name) or ""
        named(value, names.path_segment, f"{path}.{name}", errors)
    version = target.get("apiVersion") or ""
    if version.count("/") > 1:
        errors.invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif not version.rpartition("/")[0]:
        errors.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group")


def _metric(metric: Json, path: str, errors: Errors) -> None:
    kind = metric.get("type") or ""
    if not kind:
        errors.required(f"{path}.type", "must specify a metric source type")
    if kind not in METRIC_SOURCE_FIELDS:
        errors.not_supported(f"{path}.type", kind, sorted(METRIC_SOURCE_FIELDS))
    given = [name for name in METRIC_SOURCE_FIELDS.values() if metric.get(name) is not None]
    if given:
        _source(given[0], metric[given[0]], f"{path}.{given[0]}", errors)
    wanted = METRIC_SOURCE_FIELDS.get(kind)
    if wanted is None:
        errors.not_supported(f"{path}.type", kind, sorted(METRIC_SOURCE_FIELDS))
    elif wanted not in given:
        errors.required(f"{path}.{wanted}", "must populate information for the given metric source")
    if len(given) != 1:
        errors += [
            forbidden(f"{path}.{name}", "must populate the given metric source only")
            for name in given
            if name != wanted
        ]


def _source(name: str, source: Json, path: str, errors: Errors) -> None:
    target = source.get("target") or {}
    if name == "object":
        _scale_target(source.get("describedObject") or {}, f"{path}.describedObject", errors)
    if name in ("resource", "containerResource"):
        if not source.get("name"):
            errors.required(f"{path}.name", "must specify a resource name")
        if name == "containerResource":
            container = source.get("container") or ""
            if not container:
                errors.required(f"{path}.container", "must specify a container")
            else:
                errors.malformed(f"{path}.container", container, names.dns_label(container))
    else:
        text = (source.get("metric") or {}).get("name") or ""
        if not text:
            errors.required(f"{path}.metric.name", "must specify a metric name")
        else:
            errors.malformed(f"{path}.metric.name", text, names.path_segment(text))
    _metric_target(target, f"{path}.target", errors)
    value, average, share = (
        target.get(key) for key in ("value", "averageValue", "averageUtilization")
    )
    if name == "pods":
        if average is None:
            errors.required(
                f"{path}.target.averageValue", "must specify a positive target averageValue"
            )
    elif name in ("object", "external"):
        if value is None and average is None:
            what = (
                "either a target value or averageValue"
                if name == "object"
                else "either a target value for metric or a per-pod target"
            )
            errors.required(f"{path}.target.averageValue", f"must set {what}")
        if name == "external" and value is not None and average is not None:
            why = "may not set both a target value for metric and a per-pod target"
            errors.forbidden(f"{path}.target.value", why)
    elif share is None and average is None:
        why = "must set either a target raw value or a target utilization"
        errors.required(f"{path}.target.averageUtilization", why)
    elif share is not None and average is not None:
        why = "may not set both a target raw value and a target utilization"
        errors.forbidden(f"{path}.target.averageValue", why)


def _metric_target(target: Json, path: str, errors: Errors) -> None:
    kind = target.get("type") or ""
    if not kind:
        errors.required(f"{path}.type", "must specify a metric target type")
    if kind not in ("Utilization", "Value", "AverageValue"):
        errors.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        if target.get(name) is not None and amount(target[name]).nanos <= 0:
            errors.invalid(f"{path}.{name}", target[name], "must be positive")
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        errors.invalid(f"{path}.averageUtilization", share, "must be greater than 0")


def _scaling_rules(rules: Json, path: str, errors: Errors) -> None:
    window, choice = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    if window is not None and window < 0:
        errors.invalid(
            f"{path}.stabilizationWindowSeconds", window, "must be greater than or equal to zero"
        )
    if window is not None and window > MAX_STABILIZATION_WINDOW_SECONDS:
        why = f"must be less than or equal to {MAX_STABILIZATION_WINDOW_SECONDS}"
        errors.invalid(f"{path}.stabilizationWindowSeconds", window, why)
    if choice is not None and choice not in ("Disabled", "Max", "Min"):
        errors.not_supported(f"{path}.selectPolicy", choice, ("Disabled", "Max", "Min"))
    if not rules.get("policies"):
        errors.required(f"{path}.policies", "must specify at least one Policy")
    for position, policy in enumerate(rules.get("policies") or ()):
        where, period = f"{path}.policies[{position}]", policy.get("periodSeconds") or 0
        if policy.get("type") not in ("Pods", "Percent"):
            errors.not_supported(f"{where}.type", policy.get("type") or "", ("Percent", "Pods"))
        if (policy.get("value") or 0) <= 0:
            errors.invalid(f"{where}.value", policy.get("value") or 0, "must be greater than zero")
        if period <= 0:
            errors.invalid(f"{where}.periodSeconds", period, "must be greater than zero")
        if period > MAX_POLICY_PERIOD_SECONDS:
            why = f"must be less than or equal to {MAX_POLICY_PERIOD_SECONDS}"
            errors.invalid(f"{where}.periodSeconds", period, why)
    tolerance = rules.get("tolerance")
    if tolerance is not None and amount(tolerance).nanos < 0:
        errors.invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0")


CREATE = {("autoscaling", "HorizontalPodAutoscaler"): autoscaler}
STATUS = {
    ("autoscaling", "HorizontalPodAutoscaler"): status_counts("currentReplicas", "desiredReplicas")
}
