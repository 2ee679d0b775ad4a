"""Completion indexes: as sets in arithmetic, as text such as "0-3,7" in a Job's status, as
annotations on pods."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hekla.api.names import JOB_COMPLETION_INDEX
from hekla.api.trees import Json
from hekla.local.controller_manager.pods import Pod

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
VARIABLE = "JOB_COMPLETION_INDEX"


def parse(text: str, below: int | None = None) -> set[int]:
    """The indexes that a text names; those not below a number (a job made smaller) are left out."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return found if below is None else {index for index in found if index < below}


def text_of(indexes: Iterable[int]) -> str:
    """A set of indexes as text.  Runs of three and more are written as spans."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1][1:] = [index]
        else:
            parts.append([index])
    return ",".join(
        "-".join(map(str, part)) if part[-1] - part[0] != 1 else f"{part[0]},{part[-1]}"
        for part in parts
    )


def index_of(pod: Pod) -> int | None:
    text = pod.metadata.annotations.get(JOB_COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() else None


def failures_of(pod: Pod) -> int:
    """How often pods of this index had failed before this one."""
    text = pod.metadata.annotations.get(FAILURES, "0")
    return int(text) if text.isdigit() else 0


def ignored_failures_of(pod: Pod) -> int:
    text = pod.metadata.annotations.get(IGNORED_FAILURES, "0")
    return int(text) if text.isdigit() else 0


def first_free(count: int, completions: int, taken: Collection[int]) -> list[int]:
    """The lowest indexes that are not taken."""
    found: list[int] = []
    for index in range(completions):
        if len(found) >= count:
            break
        if index not in taken:
            found.append(index)
    return found


def with_variable(spec: Json) -> Json:
    """The pod spec whose containers are told their index."""
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_COMPLETION_INDEX}']"}}
    changed = dict(spec)
    for field in ("containers", "initContainers"):
        if spec.get(field):
            changed[field] = [_told(container, source) for container in spec[field]]
    return changed


def _told(container: Json, source: Json) -> Json:
    known = container.get("env") or []
    if any(variable["name"] == VARIABLE for variable in known):
        return container
    return {**container, "env": [*known, {"name": VARIABLE, "valueFrom": source}]}
