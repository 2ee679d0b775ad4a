"""What a policy's plugins say of the nodes for one pod: their scores, and why not."""

from __future__ import annotations

from typing import Any

import numpy as np

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.placement.placer import placer_of
from hekla.engine.world import World, policy

A10, T4, GPU = "nvidia.com/a10", "nvidia.com/t4", "nvidia.com/gpu"


def world(plugin: str, arguments: Any = None, **flags: bool) -> World:
    return World(
        policy(
            plugins=[{"name": plugin, "arguments": arguments or {}, **flags}], actions="allocate"
        )
    )


def scores(here: World, name: str) -> dict[str, float]:
    """Node -> what the policy's plugins give it together for a pod, rounded."""
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    nodes = here.state.nodes
    task = here.state.tasks[f"default/{name}"]
    total = placer_of(session).scores.total(session, task, np.arange(len(nodes)))
    return {node: round(float(value), 3) for node, value in zip(nodes.names, total)}


def verdicts(here: World, name: str) -> dict[str, str]:
    """Node -> why it is out of the question for a pod; empty where it is not."""
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    task = here.state.tasks[f"default/{name}"]
    errors = placer_of(session).filters.explain(session, task, room=False)
    said = dict.fromkeys(here.state.nodes.names, "")
    for reason in errors.reasons:
        for row in np.flatnonzero(reason.mask):
            said[here.state.nodes.names[row]] = reason.text
    return said


def pod(here: World, name: str, annotations: dict[str, str] | None = None, **amounts: Any) -> None:
    here.job(f"job-{name}", pods=0, min_available=1)
    requests = {
        key.replace("a10", A10).replace("t4", T4).replace("gpu", GPU): str(value)
        for key, value in amounts.items()
    }
    here.pod(
        name,
        job=f"job-{name}",
        spec={"containers": [{"name": "c", "resources": {"requests": requests}}]},
        annotations=annotations,
    )


def loaded(here: World, name: str, cpu: float, memory: float, age: float | None = 0.0) -> None:
    usage = {
        "metadata": {"name": name},
        "cpu_usage_avg_percent": {"10m": cpu},
        "memory_usage_avg_percent": {"10m": memory},
    }
    here.state.upsert_other(
        "NodeUsage", {**usage, **({} if age is None else {"time": here.now - age})}
    )
