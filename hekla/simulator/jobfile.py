"""A workload in YAML: jobs with the time that they take, and the cluster beside them if it is small.

Read strictly: a key that does not exist, or a value that makes no sense, is an error that names its
line.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal, get_args, get_origin

import msgspec
import yaml

from hekla.api.text import durations, quantity, yamltext
from hekla.api.trees import Tree
from hekla.engine.framework.joborder import ORDERS
from hekla.engine.model.resources import amounts
from hekla.simulator import network, workload
from hekla.simulator import work as model
from hekla.simulator.workload import (
    InputError,
    SimulatedJob,
    Workload,
    microseconds,
    node,
    queue,
)

OBJECTS = (
    "Node", "Queue", "PriorityClass", "Namespace", "HyperNode", "Numatopology", "Reservation", "ResourceQuota",
    "PodDisruptionBudget", "ConfigMap", "Service", "ReplicationController", "ReplicaSet", "StatefulSet",
    "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity",
    "ResourceClaim", "ResourceSlice", "DeviceClass",
)  # fmt: skip
"""Kinds that a scheduler reads, besides those of jobs."""
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


class Role(msgspec.Struct, forbid_unknown_fields=True):
    """Pods of one template in a job of several."""

    name: str
    requests: dict[str, str | int | float]
    pods: int = 1
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}
    after: str = ""


class Work(msgspec.Struct, forbid_unknown_fields=True):
    """How the work of a job goes on that it does as a whole."""

    role: str = ""
    together: bool = False
    speed: dict[int, int | float] = {}
    serial: float | None = None
    checkpoint: Duration = ""
    restart: Duration = 0
    traffic: dict[str, str | int | float] = {}
    """`role/other` -> bytes between each pod of the one and each of the other in a second of work;
    `/` in a job without roles."""


class Group(msgspec.Struct, forbid_unknown_fields=True):
    """Further fields of a PodGroup."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: dict[str, Any] = {}


class Links(msgspec.Struct, forbid_unknown_fields=True):
    """Bandwidths of the network in bytes a second, by the tier that two nodes have in common."""

    tiers: dict[int, str | int | float] = {}
    beyond: str | int | float = 0


class Job(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Jobs of one kind.  With `count` and `every` it comes again and again."""

    name: str
    duration: Duration
    requests: dict[str, str | int | float] = {}
    roles: list[dict[str, Any]] = []
    work: dict[str, Any] | None = None
    group: dict[str, Any] = {}
    submit: Duration = 0
    walltime: Duration = ""
    pods: int = 1
    min_available: int | None = None
    user: str = ""
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
    network: dict[str, Any] = {}
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
        if made.order and made.order not in ORDERS:
            known = ", ".join(ORDERS)
            reader.refuse(("queues", number, "order"), f"order = {made.order!r}: one of {known}")
        cluster.append(queue(made.name, made.order, made.spec))
    for number, one in enumerate(whole.objects):
        kind = one.get("kind") if isinstance(one, Mapping) else None
        if kind not in OBJECTS:
            known = ", ".join(OBJECTS)
            reader.refuse(("objects", number, "kind"), f"kind = {kind!r}: one of {known}")
    cluster += whole.objects
    if cluster and not any(one.get("kind") == "Queue" for one in cluster):
        cluster.append(queue("default"))
    return Workload(jobs, cluster, network=reader.network(whole.network, ("network",)))


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
                if get_origin(one.type) is Literal:
                    why = f"one of {', '.join(get_args(one.type))}"
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
        if one.arrivals == "poisson" and one.count > 1 and not every:
            self.refuse(
                (*path, "arrivals"), "arrivals = 'poisson': every says the mean time between two"
            )
        if not 0 <= one.sigma <= 10:
            self.refuse((*path, "sigma"), f"sigma = {one.sigma:g}: a number from 0 to 10")
        roles = [self.role(each, (*path, "roles", at)) for at, each in enumerate(one.roles)]
        if bool(roles) == bool(one.requests):
            what = "both requests and roles" if roles else "neither requests nor roles"
            self.refuse(
                (*path, "roles" if roles else "name"), f"{one.name} has {what}; one of them"
            )
        if roles:
            self.check_roles(roles, one, path)
            one.pods = sum(role.pods for role in roles)
        first = sum(role.pods for role in roles if not role.after) if roles else one.pods
        least = first if one.min_available is None else one.min_available
        if not 1 <= least <= first:
            which = "pods" if first == one.pods else "pods that come at once"
            self.refuse(
                (*path, "minAvailable"), f"minAvailable = {least}: from 1 to {which} = {first}"
            )
        requests = self.amounts(one.requests, (*path, "requests"))
        template = {"labels": one.labels, "annotations": one.annotations, "spec": one.spec}
        templates = roles or [workload.Role("", one.pods, requests)]
        cpu = sum(amounts(role.requests).get("cpu", 0.0) * role.pods for role in templates) / 1000
        work = None if one.work is None else self.work(one.work, roles, (*path, "work"))
        group: Group = self.convert(one.group, Group, (*path, "group"))
        overlay = {"labels": group.labels, "annotations": group.annotations, "spec": group.spec}
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
                user=one.user,
                queue=one.queue,
                priority_class=one.priority_class,
                template={key: value for key, value in template.items() if value},
                processors=cpu,
                roles=roles,
                work=work,
                overlay={key: value for key, value in overlay.items() if value},
            )
            for number in range(one.count)
        ]

    def role(self, tree: Any, path: tuple[str | int, ...]) -> workload.Role:
        one: Role = self.convert(tree, Role, path)
        if one.pods < 1:
            self.refuse((*path, "pods"), f"pods = {one.pods}: a whole number from 1 up")
        template = {"labels": one.labels, "annotations": one.annotations, "spec": one.spec}
        requests = self.amounts(one.requests, (*path, "requests"))
        kept = {key: value for key, value in template.items() if value}
        return workload.Role(one.name, one.pods, requests, kept, one.after)

    def check_roles(
        self, roles: list[workload.Role], job: Job, path: tuple[str | int, ...]
    ) -> None:
        """Raises InputError where names of roles are not what they have to be."""
        stated = {
            "pods": job.pods != 1,
            "labels": job.labels,
            "annotations": job.annotations,
            "spec": job.spec,
        }
        for key, value in stated.items():
            if value:
                self.refuse((*path, key), f"{key} of a job with roles: each role has its own")
        names = [role.name for role in roles]
        for at, role in enumerate(roles):
            here = (*path, "roles", at)
            if not role.name or role.name in names[:at]:
                self.refuse((*here, "name"), f'name = "{role.name}": roles have names, once each')
            if role.after and role.after not in names[:at]:
                before = ", ".join(names[:at]) or "none"
                self.refuse(
                    (*here, "after"),
                    f'after = "{role.after}": a role above it; there are: {before}',
                )

    def work(
        self, tree: Any, roles: list[workload.Role], path: tuple[str | int, ...]
    ) -> model.Work:
        one: Work = self.convert(tree, Work, path)
        names = [role.name for role in roles] or [""]
        if one.role not in ("", *names):
            known = ", ".join(names) if roles else "no roles"
            self.refuse((*path, "role"), f'role = "{one.role}": there are: {known}')
        models = {
            "together": one.together,
            "speed": one.speed,
            "serial": one.serial is not None,
        }
        said = [key for key, value in models.items() if value]
        if len(said) > 1:
            self.refuse((*path, said[1]), f"{said[0]} and {said[1]}: one of them")
        if any(count < 1 or speed <= 0 for count, speed in one.speed.items()):
            self.refuse((*path, "speed"), f"speed = {one.speed}: workers from 1 up: above 0")
        if one.serial is not None and not 0 <= one.serial <= 1:
            self.refuse((*path, "serial"), f"serial = {one.serial:g}: a part from 0 to 1")
        traffic: dict[tuple[str, str], int] = {}
        for key, size in one.traffic.items():
            left, slash, right = key.partition("/")
            if not slash or left not in names or right not in names:
                known = ", ".join(names) if roles else 'no roles, so "/"'
                self.refuse((*path, "traffic", key), f'"{key}": role/other; there are: {known}')
            traffic[left, right] = self.bytes(size, (*path, "traffic", key))
        return model.Work(
            role=one.role,
            together=one.together,
            speeds=[(count, Fraction(str(speed))) for count, speed in sorted(one.speed.items())],
            serial=None if one.serial is None else Fraction(str(one.serial)),
            checkpoint=None if one.checkpoint == "" else self.length(one.checkpoint, (*path, "checkpoint")),
            restart=self.length(one.restart, (*path, "restart")),
            traffic=traffic,
        )  # fmt: skip

    def network(self, tree: Any, path: tuple[str | int, ...]) -> network.Network:
        one: Links = self.convert(tree, Links, path)
        tiers = {
            tier: self.bytes(width, (*path, "tiers", tier)) for tier, width in one.tiers.items()
        }
        for tier, width in tiers.items():
            if not width:
                self.refuse((*path, "tiers", tier), f"{tier} = 0: bytes a second above 0")
        return network.Network(tiers, self.bytes(one.beyond, (*path, "beyond")))

    def bytes(self, stated: object, path: tuple[str | int, ...]) -> int:
        try:
            found = quantity.milli(str(stated)) // 1000
            if found < 0:
                raise ValueError
        except ValueError:
            self.refuse(path, f"{path[-1]} = {stated!r}: bytes such as 200Mi, from 0 up")
            raise
        return found

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
