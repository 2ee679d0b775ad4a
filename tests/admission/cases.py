"""Play one recorded admission case through the rules: case in, differences out.

The cases are data of the conformance collection (its README says what each field means); both the
test of this room and `python -m tests.conformance` come through here.
"""

from __future__ import annotations

import json
from typing import Any

from hekla.admission import Review, Settings, StaticLookup, Verdict, review
from hekla.admission.rules import cronjobs, jobs, queuetree
from hekla.admission.rules.groups import group_of

CHILD_PART = "child against its ancestors only"
CHILDREN_PART = "parent against the given children (and their descendants in existing) only"
DEPTH_PART = "queue depth only"
JOB_PART = "the job's own check"
CRON_PART = "spec only (the name is not looked at)"


def run(case: dict[str, Any]) -> list[str]:
    """What differs from what the case expects, one text each; empty: it passes."""
    verdict = play(case)
    expect = case["expect"]
    return [
        problem
        for problem in (
            _allowed(expect, verdict),
            _message(expect, verdict),
            _patch(expect, verdict),
            _tasks(expect, verdict, case["object"]),
        )
        if problem
    ]


def play(case: dict[str, Any]) -> Verdict:
    settings = settings_of(case.get("settings") or {})
    existing = case.get("existing") or {}
    lookup = StaticLookup(existing.get("queues") or [], existing.get("namespaces") or [])
    queue = case["object"] or {}
    part, name = case.get("part"), (queue.get("metadata") or {}).get("name") or ""
    if (
        case["resource"] == "jobs"
        and case["phase"] == "validate"
        and case["operation"] == "CREATE"
        and not case.get("whole_review")
    ):
        part = JOB_PART  # recorded from the check itself, whose text is not trimmed yet
    if part is None:
        return review(
            f"/{case['resource']}/{case['phase']}",
            case["operation"],
            queue,
            case.get("old_object"),
            lookup,
            settings,
            name=case.get("request_name") or "",
        )
    message = {
        JOB_PART: lambda: jobs.create_problems(
            Review("CREATE", queue, {}, name, "", lookup, settings)
        ),
        CRON_PART: lambda: cronjobs.spec_problems(queue["spec"]),
        DEPTH_PART: lambda: queuetree.depth_problem(queue, name, lookup, settings.max_queue_depth),
        CHILD_PART: lambda: queuetree.ancestor_problem(queue, name, lookup),
        CHILDREN_PART: lambda: queuetree.children_problem(queue, name, case["children"], lookup),
    }[part]()
    return Verdict(not message, message)


def settings_of(given: dict[str, Any]) -> Settings:
    gates = given.get("feature_gates") or {}
    groups = given.get("resource_groups")
    return Settings(
        scheduler_names=tuple(given.get("scheduler_names") or ("volcano",)),
        max_queue_depth=given.get("max_queue_depth", 5),
        queue_allocated_pods_check=given.get("enable_queue_allocated_pods_check", False),
        root_queue_protection=given.get("enable_root_queue_protection", True),
        pod_level_resources=gates.get("PodLevelResources", True),
        scheduling_gates=gates.get("SchedulingGatesQueueAdmission", False),
        resource_groups=None
        if groups is None
        else tuple(
            group_of({key.lower(): value for key, value in group.items()}) for group in groups
        ),
    )


def _allowed(expect: dict[str, Any], verdict: Verdict) -> str:
    if "allowed" in expect and expect["allowed"] != verdict.allowed:
        return f"allowed: expected {expect['allowed']}, got {verdict.allowed} ({verdict.message!r})"
    return ""


def _message(expect: dict[str, Any], verdict: Verdict) -> str:
    if "message" in expect and expect["message"] != verdict.message:
        return f"message: expected {expect['message']!r}, got {verdict.message!r}"
    parts = [
        *expect.get("message_contains_all", []),
        *([expect["message_contains"]] if expect.get("message_contains") else []),
    ]
    missing = [part for part in parts if part not in verdict.message]
    return f"message: expected {missing!r} in {verdict.message!r}" if missing else ""


def _patch(expect: dict[str, Any], verdict: Verdict) -> str:
    if "patch" in expect and (expect["patch"] or None) != (verdict.patch or None):
        return f"patch: expected {json.dumps(expect['patch'])}, got {json.dumps(verdict.patch)}"
    return ""


def _tasks(expect: dict[str, Any], verdict: Verdict, job: dict[str, Any]) -> str:
    """Of defaulted tasks only the fields that the case names are compared."""
    if "tasks" not in expect:
        return ""
    fields = [field.strip() for field in expect["compare"].removeprefix("per task:").split(",")]
    found = next(
        (step["value"] for step in verdict.patch or [] if step["path"] == "/spec/tasks"),
        job["spec"]["tasks"],
    )
    for want, got in zip(expect["tasks"], found, strict=True):
        for field in fields:
            if _at(want, field) != _at(got, field):
                return f"{want.get('name')}.{field}: expected {_at(want, field)}, got {_at(got, field)}"
    return ""


def _at(tree: dict[str, Any], path: str) -> Any:
    value: Any = tree
    for key in path.split("."):
        value = (value or {}).get(key)
    return value or 0
