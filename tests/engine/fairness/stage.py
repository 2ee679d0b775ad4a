"""What the stories of queues and gangs share: clusters, jobs and pods by name, open sessions, and
what was decided, in few words."""

from __future__ import annotations

from typing import Any

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.session import Session
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.tasks import Job, Task
from hekla.engine.world import World, policy

SHIPPED = [
    ["priority", {"name": "gang", "enablePreemptable": False}, "conformance"],
    [
        "overcommit",
        {"name": "drf", "enablePreemptable": False},
        "predicates",
        "proportion",
        "nodeorder",
        "binpack",
    ],
]
CAPACITY = [["priority", "gang", "conformance", "capacity"], ["predicates", "nodeorder"]]


def cluster(
    slots: int = 8,
    nodes: int = 2,
    *,
    tiers: list[Any] | None = None,
    actions: str = "enqueue, allocate, backfill",
    **more: Any,
) -> World:
    """Nodes with so many slots of 1 cpu in all."""
    world = World(policy(tiers=tiers or SHIPPED, actions=actions, **more))
    for name, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(name, value)
    world.nodes(*(f"n{number}" for number in range(nodes)), cpu=slots // nodes, memory="64Gi")
    return world


def submitted(world: World, name: str, pods: int, least: int | None = None, **more: Any) -> None:
    world.job(name, pods=pods, min_available=least, phase="Pending", **{"cpu": 1, **more})


def group(world: World, name: str, **about: Any) -> None:
    """A PodGroup whose pods are told one by one; by default it needs one pod."""
    world.job(name, pods=0, **{"min_available": 1, **about})


def lone(
    world: World,
    pod: str,
    queue: str = "default",
    *,
    priority: str = "",
    about: dict[str, Any] | None = None,
    **rest: Any,
) -> None:
    """A PodGroup `pg-POD` of one pod."""
    group(world, f"pg-{pod}", queue=queue, priority=priority, **(about or {}))
    world.pod(pod, job=f"pg-{pod}", **rest)


def tree(world: World, pod: str) -> dict[str, Any]:
    return world.pods[f"default/{pod}"]


def terminating(world: World, *pods: str) -> None:
    """These pods are being deleted."""
    for pod in pods:
        tree(world, pod)["metadata"]["deletionTimestamp"] = "1970-01-12T13:46:40Z"
        world.state.upsert_pod(tree(world, pod))


def opened(world: World) -> Session:
    """A session in which no action has run."""
    return open_session(world.state, hooks_of(world.state, world.policy), world.now)


def task(world: World, name: str) -> Task:
    return world.state.tasks[f"default/{name}"]


def job(world: World, name: str) -> Job:
    return world.state.jobs[f"default/{name}"]


def names(tasks: list[Task]) -> list[str]:
    return [one.name for one in tasks]


def bound(decisions: Decisions) -> dict[str, str]:
    return {bind.pod.removeprefix("default/"): bind.node for bind in decisions.binds}


def evicted(decisions: Decisions) -> list[str]:
    return [one.pod.removeprefix("default/") for one in decisions.evictions]


def pipelined(decisions: Decisions) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in decisions.pipelined}


def gauges(decisions: Decisions, name: str) -> dict[str, float]:
    """The values of a gauge by its labels, the last one told."""
    return {
        ",".join(text for _, text in labels): value
        for key, labels, value in decisions.metrics
        if key == name
    }


def conditions(world: World, name: str) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in job(world, name).conditions}


def running(world: World, name: str) -> int:
    """How many pods of a job run or are bound."""
    pods = (
        one
        for one in world.pods.values()
        if one["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == name
    )
    return sum(1 for one in pods if one["spec"]["nodeName"])


def play(world: World, cycles: int = 12, *, seconds: float = 2.0) -> list[Decisions]:
    """Cycles whose decisions come true, until one decides nothing; it must come to that."""
    told = []
    for _ in range(cycles):
        world.now += seconds
        decisions = world.run()
        told.append(decisions)
        world.settle()
        if not decisions.binds and not decisions.evictions:
            return told
    raise AssertionError(f"still at work: {decisions.binds} {decisions.evictions}")


def sees(world: World, job: str) -> str:
    return str(world.groups[f"default/{job}"]["status"]["phase"])


def gated(
    world: World, name: str, pods: int, *gates: str, least: int | None = None, **more: Any
) -> None:
    submitted(
        world,
        name,
        pods,
        least,
        spec={"schedulingGates": [{"name": gate} for gate in gates or ("example.com/wait",)]},
        **more,
    )


def lift(world: World, job: str, *gates: str) -> None:
    """Somebody takes these gates, or all, off the pods of a job."""
    for pod in world.pods.values():
        if pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == job:
            left = [
                one
                for one in pod["spec"].get("schedulingGates", [])
                if gates and one["name"] not in gates
            ]
            pod["spec"] = {**pod["spec"], "schedulingGates": left}
            world.state.upsert_pod(pod)


def quiet(world: World) -> bool:
    """Until nothing is decided, nobody was evicted."""
    return not [one for decisions in play(world) for one in decisions.evictions]
