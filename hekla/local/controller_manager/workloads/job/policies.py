"""What a Job's policies say about a failed pod and about the indexes that have succeeded.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple

from hekla.api.trees import Json
from hekla.local.controller_manager.pods import ContainerStatus, Pod
from hekla.local.controller_manager.workloads.job.indexes import parse


class Action(Enum):
    """What a failed pod means; COUNT also where no rule matches."""

    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"
    IGNORE = "Ignore"
    COUNT = "Count"


class Judgement(NamedTuple):
    """The action, and for FAIL_JOB the message that the job fails with."""

    action: Action
    message: str = ""


def judge(job: Json, pod: Pod) -> Judgement:
    """By the first rule of podFailurePolicy that matches a failed pod."""
    spec = job["spec"]
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        action = Action(rule["action"])
        if rule.get("onExitCodes"):
            ended = _matching_exit(rule["onExitCodes"], pod)
            if ended is None or ended.terminated is None:
                continue
            why = f"Container {ended.name} for pod {pod.key} failed with exit code {ended.terminated.exit_code}"
        else:
            condition = _matching_condition(rule.get("onPodConditions") or (), pod)
            if condition is None:
                continue
            why = f"Pod {pod.key} has condition {condition}"
        if action is Action.FAIL_INDEX and spec.get("backoffLimitPerIndex") is None:
            continue
        return Judgement(action, f"{why} matching {action.value} rule at index {number}")
    return Judgement(Action.COUNT)


def _matching_exit(wanted: Json, pod: Pod) -> ContainerStatus | None:
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        ended = status.terminated
        if (
            ended is None
            or not ended.exit_code
            or wanted.get("containerName") not in (None, "", status.name)
        ):
            continue
        listed = ended.exit_code in wanted.get("values", ())
        if listed == (wanted["operator"] == "In"):
            return status
    return None


def _matching_condition(patterns: Collection[Json], pod: Pod) -> str | None:
    for pattern in patterns:
        for condition in pod.status.conditions:
            if condition.type == pattern["type"] and condition.status == pattern.get(
                "status", "True"
            ):
                return condition.type
    return None


def success_rule(job: Json, succeeded: Collection[int]) -> int | None:
    """The number of the first rule of successPolicy that the succeeded indexes fulfil."""
    for number, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        named = parse(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        have = len(named.intersection(succeeded)) if named is not None else len(succeeded)
        if have >= rule.get("succeededCount", len(named) if named is not None else 1):
            return number
    return None
