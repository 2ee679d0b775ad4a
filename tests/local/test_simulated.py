"""Simulator and daemon decide alike: what a local cluster's scheduler did with real jobs is recorded,
simulated from what went in, and rehearsed under another policy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.scheduler.recording import read
from hekla.scheduler.replay import recorded_policy
from hekla.simulator import recording
from hekla.simulator.simulation import simulate
from tests.local.home import Home, ask, home, until

JOB, QUEUE, POD = batch.JOB.untyped, scheduling.QUEUE.untyped, core.POD.untyped
QUEUES = {"research": 1, "production": 2, "lab": 1}
"""And their weights."""
JOBS = [
    # name, queue, workers, of which at least, cpu of each, seconds that they run, when it comes
    ("wide", "research", 8, 2, "1", 5, 0.0),
    ("whole", "production", 2, 2, "2", 2, 0.1),
    ("pair", "lab", 2, 2, "1", 2, 0.3),
    ("late", "production", 2, 2, "2", 1, 0.5),
    ("small", "lab", 1, 1, "1", 1, 0.7),
    ("again", "research", 2, 2, "1", 1, 0.9),
    ("last", "production", 4, 4, "1", 1, 4.5),
]
"""On two nodes of 4 cpu.  The first takes all of them; the others come once it runs, and wait."""
POLICY = """
actions: "{actions}"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: overcommit
    arguments: {{overcommit-factor: 4}}
  - name: predicates
  - name: proportion
  - name: binpack
"""

pytestmark = pytest.mark.slow


def job(name: str, queue: str, workers: int, least: int, cpu: str, seconds: int) -> dict[str, Any]:
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
            "minAvailable": least,
            "schedulerName": "volcano",
            "queue": queue,
            "tasks": [{"name": "worker", "replicas": workers, "template": {"spec": spec}}],
        },
    }


async def submit_the_first(client: Client) -> None:
    for name, weight in QUEUES.items():
        await client.create(QUEUE, {"metadata": {"name": name}, "spec": {"weight": weight}})
    await client.create(JOB, job(*JOBS[0][:-1]))


async def submit_the_others(client: Client) -> None:
    before = 0.0
    for *asked, when in JOBS[1:]:
        await asyncio.sleep(when - before)
        before = when
        await client.create(JOB, job(*asked))
    alone = job("alone", "lab", 1, 1, "1", 1)["spec"]["tasks"][0]["template"]
    pod = {"metadata": {"name": "alone", "namespace": "default"}, **alone}
    pod["spec"]["schedulerName"] = "volcano"
    await client.create(POD, pod)


def phases(own: Home, kind: Any) -> dict[str, str]:
    """Name -> phase, of jobs or pods."""
    items = ask(own, lambda client: client.list(kind, "default")).items
    stated = {one["metadata"]["name"]: one.get("status", {}) for one in items}
    return {
        name: status.get("phase") or status.get("state", {}).get("phase", "")
        for name, status in stated.items()
    }


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a scheduler recorded that evicts nobody."""
    return record(tmp_path_factory.mktemp("recorded"), "enqueue, allocate, backfill")


def record(directory: Path, actions: str) -> Path:
    """The recording of a scheduler with these actions, from the first job to the end of the last."""
    policy, recorded = directory / "policy.yaml", directory / "tape"
    policy.write_text(POLICY.format(actions=actions))
    with home() as own:
        own.good(
            "up", "--nodes=2", "--node-cpu=4", f"--scheduler-conf={policy}", f"--record={recorded}"
        )
        ask(own, submit_the_first)
        until("the first job runs", lambda: list(phases(own, POD).values()) == ["Running"] * 8)
        ask(own, submit_the_others)

        def done() -> bool:
            found = phases(own, JOB)
            return len(found) == len(JOBS) and set(found.values()) == {"Completed"}

        until("all jobs have ended", done, 120)
        own.good("down")
    return recorded


Doings = list[tuple[str, str, str]]
"""What a scheduler did: bind or evict, a pod, and where it is bound to."""


def recorded(tape: Path) -> Doings:
    found = []
    for word, *given in read(tape):
        if word == "cycle":
            decided = msgspec.msgpack.decode(given[1])
            found += [("evict", one["pod"], "") for one in decided["evictions"]]
            found += [("bind", one["pod"], one["node"]) for one in decided["binds"]]
    return found


def simulated(tape: Path) -> Doings:
    workload, policy = recording.read(read(tape), "tape")
    assert policy is not None
    (found,) = simulate(workload, [recorded_policy(*policy)])
    assert not found.problems
    return [
        (one.what, one.pod, one.node if one.what == "bind" else "")
        for one in found.acts
        if one.what in ("bind", "evict")
    ]


def test_the_same_binds_in_the_same_order(tape: Path) -> None:
    done = recorded(tape)
    assert len(done) == sum(workers for _, _, workers, *_ in JOBS) + 1
    assert {what for what, *_ in done} == {"bind"}
    assert simulated(tape) == done


def test_the_same_victims_too(tmp_path: Path) -> None:
    tape = record(tmp_path, "enqueue, allocate, preempt, reclaim, backfill")
    done = recorded(tape)
    assert [what for what, *_ in done].count("evict") >= 6, "others take back their shares"
    assert simulated(tape) == done


def test_a_rehearsal_says_who_would_have_started_sooner_and_who_would_have_gone(
    tape: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "reclaiming.yaml"
    policy.write_text(POLICY.format(actions="enqueue, allocate, reclaim, backfill"))
    own = Home(tmp_path)
    words = ("rehearse", str(policy), "--recording", str(tape))
    done = own.hekla(*words, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "the simulation of the recorded policy is the recorded day"

    told = json.loads(done.stdout)
    assert [one["policy"] for one in told["policies"]] == ["recorded", "reclaiming"]
    jobs = {one["job"].split("/")[1].split("-")[0]: one for one in told["jobs"]}
    wide, whole = jobs["wide"], jobs["whole"]
    assert (wide["verdict"], wide["evictions"]) == ("same", 0)
    assert wide["would_be_evicted"] >= 4, "production takes back its share of four cpus"
    assert whole["verdict"] == "sooner"
    assert whole["start"] - whole["would_start"] > 2, "it waits for no end"
    assert all(one["would_start"] is not None for one in told["jobs"])

    shown = own.good(*words)
    assert "whole-" in shown and "sooner" in shown
