"""Job: what is filled in where it says nothing.  Reference: api-and-admission 5.3.2.

The original fills in on create only.  A manifest that is applied a second time then takes the
filled-in fields of its tasks away again, because a patch replaces a list as a whole, and the rule
about updates refuses that as a change (decision 0188).  Here an update is filled in the same way
before it is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.admission.review import (
    DEFAULT_QUEUE,
    DEFAULT_SCHEDULER,
    Patch,
    Review,
    Settings,
    Tree,
    spec_of,
    with_spec,
)
from hekla.admission.rules.minimums import THE_JOB, Minimums, filled_minimum, least_of

DEFAULT_RETRIES = 3
MOST = 2**31 - 1
"""What the field holds; a larger sum is refused by its reason, and not for a number that nobody
wrote."""
NEEDS_SERVICE = frozenset({"tensorflow", "mpi", "pytorch", "ray"})
NEEDS_SSH = frozenset({"mpi"})


def mutate(review: Review) -> Patch | None:
    spec = spec_of(review.object)
    updated = review.operation == "UPDATE"
    patch: Patch = []
    for field, missing, value in plain_defaults(review.settings):
        if (spec.get(field) or missing) == missing:
            patch.append({"op": "add", "path": f"/spec/{field}", "value": value})
    given = spec.get("tasks") or []
    minimums = Minimums(review)
    tasks = [minimums.follow(defaulted_task(task, index), task) for index, task in enumerate(given)]
    if tasks != given:
        patch.append({"op": "replace", "path": "/spec/tasks", "value": tasks})
    # An update may set the minimum to 0; only where nothing is said about it is it worked out
    # again.
    least = min(MOST, sum(map(least_of, tasks)))
    if not spec.get("minAvailable") and not (updated and "minAvailable" in spec):
        patch.append({"op": "add", "path": "/spec/minAvailable", "value": least})
        minimums.filled.append(THE_JOB)
    elif minimums.follows_tasks(spec):
        if least != spec["minAvailable"]:
            patch.append({"op": "add", "path": "/spec/minAvailable", "value": least})
        minimums.filled.append(THE_JOB)
    if spec.get("plugins") is not None:
        plugins = defaulted_plugins(spec["plugins"])
        if not updated or plugins != spec["plugins"]:
            patch.append({"op": "replace", "path": "/spec/plugins", "value": plugins})
    return with_spec(
        review.object,
        [*patch, *minimums.note()] if isinstance(review.object.get("spec"), Mapping) else patch,
    )


def plain_defaults(settings: Settings) -> tuple[tuple[str, Any, Any], ...]:
    """(field of the spec, values that count as absent, default)."""
    scheduler = settings.scheduler_names[0] if settings.scheduler_names else DEFAULT_SCHEDULER
    return (
        ("queue", "", DEFAULT_QUEUE),
        ("schedulerName", "", scheduler),
        ("maxRetry", 0, DEFAULT_RETRIES),
    )


def defaulted_spec(spec: Tree, settings: Settings) -> dict[str, Any]:
    """A spec with all its defaults, except its own minimum."""
    filled = {
        **spec,
        "tasks": [
            defaulted_task(task, index) for index, task in enumerate(spec.get("tasks") or [])
        ],
    }
    for field, missing, value in plain_defaults(settings):
        if (spec.get(field) or missing) == missing:
            filled[field] = value
    if spec.get("plugins") is not None:
        filled["plugins"] = defaulted_plugins(spec["plugins"])
    return filled


def defaulted_task(task: Tree, index: int) -> dict[str, Any]:
    """A task with its defaults.  Its own values stay, also a minimum of 0."""
    result = dict(task)
    if not task.get("name"):
        result["name"] = f"default{index}"
    template = task.get("template") or {}
    pod = template.get("spec") or {}
    if pod.get("hostNetwork") and not pod.get("dnsPolicy"):
        result["template"] = {**template, "spec": {**pod, "dnsPolicy": "ClusterFirstWithHostNet"}}
    if task.get("minAvailable") is None:
        result["minAvailable"] = filled_minimum(task)
    if not task.get("maxRetry"):
        result["maxRetry"] = DEFAULT_RETRIES
    return result


def defaulted_plugins(plugins: Tree) -> dict[str, Any]:
    result = dict(plugins)
    for needing, needed in ((NEEDS_SERVICE, "svc"), (NEEDS_SSH, "ssh")):
        if needing & plugins.keys():
            result.setdefault(needed, [])
    return result
