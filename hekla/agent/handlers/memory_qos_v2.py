"""MemoryQoSV2: memory.high, memory.low and memory.min of containers by the ratios that the
ColocationConfiguration of their pod states (reference: agent 6.6).

A ratio of 0 is one that is not set, for each of the three: the original's controller leaves zeros
out of the annotation, and a memory.high of nothing would stop the pod for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from hekla.agent.cgroups import MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN, Write
from hekla.agent.handlers.context import Context
from hekla.agent.pods import Pod
from hekla.api import names


class AnnotationError(ValueError):
    """The annotation cannot be used; the text names what is wrong in it."""


class Ratios(NamedTuple):
    """Percent: of the limit, and twice of the request."""

    high: int = 0
    low: int = 0
    min: int = 0


class Amounts(NamedTuple):
    """What one container's files say; no `high` is no limit."""

    container: str
    high: int
    low: int
    min: int


def writes(pod: Pod, context: Context) -> Iterator[Write]:
    """Raises AnnotationError."""
    cgroups = context.cgroups
    if not cgroups.has(MEMORY_HIGH):
        return
    for one in protections(pod, context):
        directory = cgroups.container(pod, one.container)
        if directory == cgroups.pod(pod):
            continue  # its id is not known yet
        for file, value, off in (
            (MEMORY_HIGH, str(one.high) if one.high else "max", "max"),
            (MEMORY_LOW, str(one.low), "0"),
            (MEMORY_MIN, str(one.min), "0"),
        ):
            yield Write(cgroups.path(directory, file), value, off, required=True)


def protections(pod: Pod, context: Context) -> Iterator[Amounts]:
    """Of each container of a pod that has the annotation.  Raises AnnotationError."""
    text = pod.metadata.annotations.get(names.COLOCATION_CONFIG, "")
    if not text:
        return
    ratios = ratios_of(text)
    for container in pod.spec.containers:
        limit = context.memory_of(pod, container.resources.limits)
        request = context.memory_of(pod, container.resources.requests)
        yield Amounts(
            container.name,
            limit * ratios.high // 100 if ratios.high < 100 else 0,
            request * ratios.low // 100,
            request * ratios.min // 100,
        )


def ratios_of(text: str) -> Ratios:
    """The ratios of an annotation such as {"memoryQos":{"highRatio":80}}; {} resets all.  Raises
    AnnotationError."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{names.COLOCATION_CONFIG} is no JSON: {error}") from None
    if isinstance(tree, dict):
        tree = tree.get("memoryQos") or {}
    if not isinstance(tree, dict):
        raise AnnotationError(f"{names.COLOCATION_CONFIG}: {text} is no object of memoryQos")
    found = []
    for field in ("highRatio", "lowRatio", "minRatio"):
        value = tree.get(field) or 0
        if type(value) is not int or not 0 <= value <= 100:
            raise AnnotationError(
                f"{names.COLOCATION_CONFIG}: memoryQos.{field} is {json.dumps(value)}, "
                "and must be a whole number from 0 to 100"
            )
        found.append(value)
    return Ratios(*found)
