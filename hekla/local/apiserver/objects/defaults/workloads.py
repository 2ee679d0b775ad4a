"""Defaults of workloads: Deployment to CronJob (local-cluster 5.8)."""

from __future__ import annotations

from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults import pod as pods


def fill(tree: Json, **values: Any) -> Json:
    """Set the fields that are absent; returns the tree."""
    for name, value in values.items():
        if tree.get(name) is None:
            tree[name] = value
    return tree


def _with_template(tree: Json) -> Json:
    spec: Json = tree.setdefault("spec", {})
    pods.template(spec.setdefault("template", {}))
    return spec


def _deployment(tree: Json) -> None:
    spec = fill(
        _with_template(tree), replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600
    )
    strategy = spec.setdefault("strategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def _replica_set(tree: Json) -> None:
    fill(_with_template(tree), replicas=1)


def _replication_controller(tree: Json) -> None:
    spec = fill(tree.setdefault("spec", {}), replicas=1)
    template = spec.get("template")
    if template is None:
        return
    pods.template(template)
    labels = template["metadata"].get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        metadata = tree.setdefault("metadata", {})
        if not metadata.get("labels"):
            metadata["labels"] = dict(labels)


def _stateful_set(tree: Json) -> None:
    spec = _with_template(tree)
    if not spec.get("podManagementPolicy"):
        spec["podManagementPolicy"] = "OrderedReady"
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        fill(strategy["rollingUpdate"], partition=0)
    fill(
        spec.setdefault("persistentVolumeClaimRetentionPolicy", {}),
        whenDeleted="Retain",
        whenScaled="Retain",
    )
    fill(spec, replicas=1, revisionHistoryLimit=10)
    for claim in spec.get("volumeClaimTemplates") or ():
        fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        fill(claim.setdefault("spec", {}), volumeMode="Filesystem")
        fill(claim.setdefault("status", {}), phase="Pending")


def _daemon_set(tree: Json) -> None:
    tree.setdefault("metadata", {}).setdefault("annotations", {}).setdefault(
        "deprecated.daemonset.template.generation", "0"
    )
    spec = fill(_with_template(tree), revisionHistoryLimit=10)
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)


def _job_spec(spec: Json) -> None:
    pods.template(spec.setdefault("template", {}))
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    fill(spec, parallelism=1, completionMode="NonIndexed", suspend=False)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 2**31 - 1 if spec.get("backoffLimitPerIndex") is not None else 6
    if not spec.get("podReplacementPolicy"):
        spec["podReplacementPolicy"] = (
            "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
        )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            fill(pattern, status="True")


def _job(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    _job_spec(spec)
    spec.setdefault("manualSelector", False)
    labels = spec["template"]["metadata"].get("labels")
    metadata = tree.setdefault("metadata", {})
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _cron_job(tree: Json) -> None:
    spec = tree.setdefault("spec", {})
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    fill(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    job = spec.setdefault("jobTemplate", {})
    job.setdefault("metadata", {})
    pods.template(job.setdefault("spec", {}).setdefault("template", {}))


def _pod_template(tree: Json) -> None:
    pods.template(tree.setdefault("template", {}))


DEFAULTS = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("", "ReplicationController"): _replication_controller,
    ("", "PodTemplate"): _pod_template,
}
