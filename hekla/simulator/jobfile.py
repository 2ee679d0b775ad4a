"""A workload in YAML: jobs with the time that they take, and the cluster beside them if it is small.

Read strictly: a key that does not exist, or a value that makes no sense, is an error that names its
line.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
import yaml

from hekla.api.text import durations, yamltext
from hekla.api.trees import Tree
from hekla.engine.model.resources import amounts
from hekla.simulator.workload import (
    InputError,
    SimulatedJob,
    Workload,
    microseconds,
    node,
    queue,
)

Duration = str | int | float
"""`1h30m`, or a number of seconds."""


class Node(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes of one size."""

    allocatable: dict[str, str | int | float]
    name: str = "node"
    count: int = 1
    labels: dict[str, str] = {}


class Queue(msgspec.Struct, forbid_unknown_fields=True):
    """A queue; `order` is that of its jobs, `spec` as in the API."""

    name: str
    order: str = ""
    spec: dict[str, Any] = {}


class Job(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Jobs of one kind.  With `count` and `every` it comes again and again."""

    name: str
    duration: Duration
    requests: dict[str, str | int | float]
    submit: Duration = 0
    walltime: Duration = ""
    pods: int = 1
    min_available: int | None = None
    queue: str = "default"
    priority_class: str = ""
    count: int = 1
    every: Duration = 0
    arrivals: Literal["regular", "poisson"] = "regular"
    """With `poisson` the time between two is drawn, and `every` is its mean."""
    sigma: float = 0.0
    """How far durations are from each other: their logarithms are drawn with this deviation, and
    `duration` is the median."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}


class Workfile(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    jobs: list[dict[str, Any]]
    nodes: list[dict[str, Any]] = []
    queues: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    """Further objects of the API, such as PriorityClasses."""


def read(text: str, name: str, seed: int = 0) -> Workload:
    """The workload of a file.  `seed`: of what is drawn.  Raises InputError."""
    try:
        tree = yamltext.load(text)
        root = yaml.compose(text, yamltext.Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise InputError.at(name, line, f"not YAML: {getattr(error, 'problem', error)}") from error
    reader = _Reader(name, root, seed)
    whole = reader.convert(tree, Workfile, ())
    jobs: list[SimulatedJob] = []
    for number, one in enumerate(whole.jobs):
        jobs += reader.jobs(one, ("jobs", number))
    cluster: list[Tree] = []
    for number, one in enumerate(whole.nodes):
        cluster += reader.nodes(one, ("nodes", number))
    for number, one in enumerate(whole.queues):
        made = reader.convert(one, Queue, ("queues", number))
        cluster.append(queue(made.name, made.order, made.spec))
    cluster += whole.objects
    if cluster and not any(one.get("kind") == "Queue" for one in cluster):
        cluster.append(queue("default"))
    return Workload(jobs, cluster)


class _Reader:
    """Knows where in the file everything stands."""

    def __init__(self, name: str, root: Any, seed: int) -> None:
        self.name, self.root, self.seed = name, root, seed

    def convert(self, tree: Any, kind: Any, path: tuple[str | int, ...]) -> Any:
        if not isinstance(tree, Mapping):
            self.refuse(path, f"{path[-1] if path else 'the file'}: a mapping")
        known = [one.encode_name for one in msgspec.structs.fields(kind)]
        for key in tree:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
                self.refuse((*path, key), f'key "{key}" does not exist; {hint}')
        for one in msgspec.structs.fields(kind):
            if one.encode_name not in tree:
                if one.required:
                    self.refuse(path, f'"{one.encode_name}" is missing')
                continue
            value = tree[one.encode_name]
            try:
                msgspec.convert(value, one.type)
            except msgspec.ValidationError as error:
                why = str(error).split(" - at ")[0].lower()
                self.refuse((*path, one.encode_name), f"{one.encode_name} = {value!r:.80}: {why}")
        return msgspec.convert(tree, kind)

    def jobs(self, tree: Any, path: tuple[str | int, ...]) -> list[SimulatedJob]:
        one: Job = self.convert(tree, Job, path)
        duration = self.length(one.duration, (*path, "duration"))
        submit = self.length(one.submit, (*path, "submit"))
        every = self.length(one.every, (*path, "every"))
        walltime = self.length(one.walltime, (*path, "walltime")) if one.walltime != "" else None
        for key, value in (("pods", one.pods), ("count", one.count)):
            if value < 1:
                self.refuse((*path, key), f"{key} = {value}: a whole number from 1 up")
        if not 0 <= one.sigma <= 10:
            self.refuse((*path, "sigma"), f"sigma = {one.sigma:g}: a number from 0 to 10")
        least = one.pods if one.min_available is None else one.min_available
        if not 1 <= least <= one.pods:
            self.refuse(
                (*path, "minAvailable"), f"minAvailable = {least}: from 1 to pods = {one.pods}"
            )
        requests = self.amounts(one.requests, (*path, "requests"))
        template = {"labels": one.labels, "annotations": one.annotations, "spec": one.spec}
        cpu = amounts(requests).get("cpu", 0.0) / 1000
        # Of each entry by its own name, so that another entry in the file changes nothing here.
        chance = random.Random(f"{self.seed}/{one.name}")
        moments, lengths = [submit], [duration] * one.count
        for _ in range(1, one.count):
            gap = every if one.arrivals == "regular" else round(chance.expovariate(1) * every)
            moments.append(moments[-1] + gap)
        if one.sigma:
            lengths = [round(duration * chance.lognormvariate(0, one.sigma)) for _ in lengths]
        return [
            SimulatedJob(
                name=one.name if one.count == 1 else f"{one.name}-{number}",
                submit=moments[number],
                duration=lengths[number],
                requests=requests,
                pods=one.pods,
                min_available=least,
                walltime=walltime,
                queue=one.queue,
                priority_class=one.priority_class,
                template={key: value for key, value in template.items() if value},
                processors=cpu * one.pods,
            )
            for number in range(one.count)
        ]

    def nodes(self, tree: Any, path: tuple[str | int, ...]) -> list[Tree]:
        one: Node = self.convert(tree, Node, path)
        if one.count < 1:
            self.refuse((*path, "count"), f"count = {one.count}: a whole number from 1 up")
        room = self.amounts(one.allocatable, (*path, "allocatable"))
        room.setdefault("pods", "110")
        names = [one.name] if one.count == 1 else [f"{one.name}-{at}" for at in range(one.count)]
        return [node(name, room, one.labels) for name in names]

    def amounts(self, stated: Mapping[str, object], path: tuple[str | int, ...]) -> dict[str, str]:
        made = {key: str(value) for key, value in stated.items()}
        for key, value in made.items():
            try:
                if amounts({key: value})[key] < 0:
                    raise ValueError
            except (ValueError, KeyError):
                self.refuse((*path, key), f"{key} = {value!r}: an amount such as 2, 500m or 8Gi")
        return made

    def length(self, value: Duration, path: tuple[str | int, ...]) -> int:
        """Microseconds."""
        try:
            found = durations.seconds(value) if isinstance(value, str) else float(value)
            if not 0 <= found < 1e11:
                raise ValueError
        except ValueError:
            self.refuse(
                path,
                f"{path[-1]} = {value!r}: a duration such as 90s or 1h30m, or seconds from 0 up",
            )
            raise
        return microseconds(found)

    def refuse(self, path: tuple[str | int, ...], problem: str) -> None:
        """Raises InputError with the line that the path leads to, or the nearest above it."""
        found = self.root
        line = found.start_mark.line if found is not None else 0
        for step in path:
            if isinstance(found, yaml.MappingNode):
                pair = next(((k, v) for k, v in found.value if k.value == str(step)), None)
            elif isinstance(found, yaml.SequenceNode) and isinstance(step, int):
                pair = (found.value[step], found.value[step])
            else:
                pair = None
            if pair is None:
                break
            line, found = pair[0].start_mark.line, pair[1]
        where = ".".join(str(step) for step in path[:-1])
        raise InputError.at(self.name, line + 1, f"{where}: {problem}" if where else problem)
