"""Usage between two measurements.  Pure.

A node's kubelet tells processor time since the start and memory now; how much processor something
uses is the difference of two such points, over the time between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

FRESH_START = 10.0
"""Seconds that a container must have run to be shown by its one point, counted from its start."""
CPU, MEMORY, START = (
    "cpu_usage_seconds_total",
    "memory_working_set_bytes",
    "container_start_time_seconds",
)


class Point(NamedTuple):
    at: float
    """Seconds since the epoch."""
    cpu: float
    """Seconds of processor time so far."""
    memory: float
    """Bytes of working set."""
    started: float = 0.0
    """Seconds since the epoch; 0 where it is not known."""


class Usage(NamedTuple):
    cpu: float
    """Cores."""
    memory: float
    """Bytes."""


class Measured(NamedTuple):
    """What something used in the `window` seconds before `at`."""

    at: float
    window: float
    usage: Usage


ContainerKey = tuple[str, str, str]
"""Namespace, pod and container."""


@dataclass(slots=True)
class Scrape:
    """What one node said."""

    node: Point | None = None
    containers: dict[ContainerKey, Point] = field(default_factory=dict)


def read(text: str) -> Scrape:
    """The points of a kubelet's `/metrics/resource`; what lacks a number is left out.  Raises
    ValueError."""
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            scope, _, what = sample.name.partition("_")
            if scope == "node":
                key: tuple[str, ...] = ()
            elif scope == "container":
                labels = sample.labels
                key = (labels["namespace"], labels["pod"], labels["container"])
            else:
                continue
            values = found.setdefault(key, {})
            values[what if sample.name != START else START] = sample.value
            if what == CPU and sample.timestamp is not None:
                values["at"] = float(sample.timestamp)
    scrape = Scrape()
    for key, values in found.items():
        if not {"at", CPU, MEMORY} <= values.keys():
            continue
        point = Point(values["at"], values[CPU], values[MEMORY], values.get(START, 0.0))
        if len(key) == 3:
            scrape.containers[key[0], key[1], key[2]] = point
        else:
            scrape.node = point
    return scrape


def between(before: Point | None, now: Point) -> Measured | None:
    """What was used between two points; None while that cannot be said."""
    if before is not None and now.started <= before.at < now.at and now.cpu >= before.cpu:
        window = now.at - before.at
        return Measured(now.at, window, Usage((now.cpu - before.cpu) / window, now.memory))
    window = now.at - now.started
    begun = now.started and (before is None or now.started > before.at)
    if begun and window >= FRESH_START:
        return Measured(now.at, window, Usage(now.cpu / window, now.memory))
    return None


def pods_of(before: Scrape, now: Scrape) -> Mapping[tuple[str, str], dict[str, Measured]]:
    """By namespace and name, the containers of each pod; a pod of which one container cannot be said
    yet is left out."""
    found: dict[tuple[str, str], dict[str, Measured] | None] = {}
    for key, point in now.containers.items():
        namespace, pod, container = key
        measured = between(before.containers.get(key), point)
        containers = found.setdefault((namespace, pod), {})
        if measured is None:
            found[namespace, pod] = None
        elif containers is not None:
            containers[container] = measured
    return {key: containers for key, containers in found.items() if containers is not None}
