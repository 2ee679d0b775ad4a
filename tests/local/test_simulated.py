"""Simulator and daemon decide alike: what a local cluster's scheduler did with real jobs is recorded,
and simulated from what went in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api import batch
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.scheduler.recording import read
from hekla.scheduler.replay import recorded_policy
from hekla.simulator import recording
from hekla.simulator.simulation import simulate
from tests.local.home import ask, home, until

JOB = batch.JOB.untyped
JOBS = [
    # name, workers, cpu of each, seconds that they run, when it comes
    ("wide", 6, "1", 3, 0.0),
    ("whole", 2, "4", 2, 0.3),
    ("small", 1, "1", 1, 0.6),
    ("pair", 2, "2", 2, 0.9),
    ("late", 4, "2", 1, 2.5),
    ("last", 3, "1", 1, 2.6),
]
"""On two nodes of 4 cpu, so that most of them wait for others."""


def job(name: str, workers: int, cpu: str, seconds: int) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sleep", str(seconds)],
        "resources": {"requests": {"cpu": cpu}},
    }
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minAvailable": workers,
            "schedulerName": "volcano",
            "tasks": [{"name": "worker", "replicas": workers, "template": {"spec": spec}}],
        },
    }


@pytest.mark.slow
def test_the_same_binds_in_the_same_order(tmp_path: Path) -> None:
    tape = tmp_path / "tape"

    async def submit(client: Client) -> None:
        before = 0.0
        for name, workers, cpu, seconds, when in JOBS:
            await asyncio.sleep(when - before)
            before = when
            await client.create(JOB, job(name, workers, cpu, seconds))
        alone = job("alone", 1, "1", 1)["spec"]["tasks"][0]["template"]
        pod = {"metadata": {"name": "alone", "namespace": "default"}, **alone}
        pod["spec"]["schedulerName"] = "volcano"
        await client.create(core.POD.untyped, pod)

    def done() -> bool:
        jobs = ask(own, lambda client: client.list(JOB, "default")).items
        states = [one.get("status", {}).get("state", {}).get("phase") for one in jobs]
        return len(states) == len(JOBS) and set(states) == {"Completed"}

    with home() as own:
        own.good("up", "--nodes=2", "--node-cpu=4", f"--record={tape}")
        ask(own, submit)
        until("all jobs have ended", done, 120)
        own.good("down")

    bound = [
        (bind["pod"], bind["node"])
        for word, *given in read(tape)
        if word == "cycle"
        for bind in msgspec.msgpack.decode(given[1])["binds"]
    ]
    workload, policy = recording.read(read(tape), "tape")
    assert policy is not None
    (found,) = simulate(workload, [recorded_policy(*policy)])

    assert len(bound) >= sum(workers for _, workers, *_ in JOBS) + 1
    assert [(one.pod, one.node) for one in found.acts if one.what == "bind"] == bound
    assert not found.problems
