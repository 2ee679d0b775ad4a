"""Kill -9 of the API server, scheduler, controllers and kubelet, twenty times at random during
fifty running jobs.

Every job ends as it would have, no acknowledged object is lost, no container runs twice at once,
the logs are whole. HEKLA_CHAOS_SEED chooses another schedule; HEKLA_CHAOS_KILLS another number of
kills (0 shows what happens in peace).  Where a landing is decided (HEKLA_EXAMPLES), the schedule is
always the same one; otherwise each run has its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.cli.down import stop
from hekla.cli.up import bring_up
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import AlreadyExists, ApiError
from hekla.kube.http.client import TransportError
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status
from tests.chaos.killing import Ledger, carry_out, schedule
from tests.chaos.workload import Story, Workload, starts_of

JOB, POD, GROUP, CONFIG_MAP = (
    batch.JOB.untyped,
    core.POD.untyped,
    scheduling.POD_GROUP.untyped,
    core.CONFIG_MAP.untyped,
)
NAMESPACE = "default"
ENDED = ("Completed", "Failed", "Aborted", "Terminated")
LANDING = 1
"""The seed of a landing."""
PATIENCE = 120.0
"""Seconds in which the first jobs must run, those in which all must have ended after the last kill,
and in which all is at rest then."""

pytestmark = [
    pytest.mark.slow(seconds=90),
    pytest.mark.timeout(660),
    pytest.mark.skipif(
        shutil.which("flock") is None or shutil.which("getent") is None,
        reason="the pods use flock and getent",
    ),
]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    directory = Path(tempfile.mkdtemp(prefix="hkchaos"))
    made = Cluster(directory / "chaos")
    kept = False
    try:
        bring_up(made, {"nodes": 3, "node_cpu": "8", "node_memory": "8Gi"}, 90, lambda *_: None)
        yield made
        kept = bool(os.environ.get("HEKLA_CHAOS_KEEP"))
    finally:
        stop(made)
        if kept:
            print(f"the cluster's files are in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


async def test_twenty_kills_during_fifty_jobs_change_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    chosen = (
        LANDING
        if os.environ.get("HEKLA_EXAMPLES") == "landing"
        else random.SystemRandom().randrange(10_000)
    )
    seed = int(os.environ.get("HEKLA_CHAOS_SEED") or chosen)
    count = int(os.environ.get("HEKLA_CHAOS_KILLS", "20"))
    dice = random.Random(seed)
    workload = Workload(tmp_path / "marks", dice, seconds=60)
    stories = workload.fifty()
    kills = schedule(dice, count, 55.0)
    print(f"seed {seed}: " + ", ".join(f"+{kill.after:.1f} s {kill.name}" for kill in kills))
    async with Client(config.load(str(cluster.internal_kubeconfig)), user_agent="chaos") as client:
        began = time.monotonic()
        uids = {story.name: await create(client, story.manifest) for story in stories[:40]}
        await until_running(client, set(uids))
        ledger = Ledger(client)
        writing = asyncio.create_task(ledger.write())
        killing = asyncio.create_task(carry_out(cluster, kills))
        for story in stories[40:]:
            uids[story.name] = await create(client, story.manifest)
            await asyncio.sleep(dice.uniform(0.2, 2.0))
        killed = await killing
        print(
            f"{sum(killed.values())} kills ({dict(killed)}) done at {time.monotonic() - began:.0f} s"
        )
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await writing  # and with it whatever has ended it before
        await until_ended(client, set(uids))
        print(
            f"{len(uids)} jobs ended at {time.monotonic() - began:.0f} s; the ledger holds {len(ledger.created)} objects created, "
            f"{len(ledger.deleted)} deleted, {ledger.count} changes; {ledger.refused} attempts were refused"
        )

        async def wrong() -> list[str]:
            return [
                *await compare_jobs(client, stories, uids, workload.marks),
                *compare_marks(stories, workload.marks),
                *await compare_ledger(client, ledger),
                *compare_restarts(cluster, killed),
            ]

        # Whoever was killed last may still be starting, or on its way through what it has missed.
        deadline = time.monotonic() + PATIENCE
        while await wrong() and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)  # long enough for anything that should not follow to follow
        found = await wrong()
        assert not found, f"seed {seed}:\n" + "\n".join(found)


async def patiently(make: Any, seconds: float = PATIENCE) -> Any:
    """What a request answers, asked again while the server is away."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await make()
        except (TransportError, OSError):
            assert time.monotonic() < deadline, "the API server stayed away"
        except ApiError as error:
            if error.status < 500 or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.1)


async def create(client: Client, manifest: Json) -> str:
    """Creates a job, whatever happens to the server meanwhile; gives its uid."""
    name = manifest["metadata"]["name"]

    async def attempt() -> Json:
        try:
            return await client.create(JOB, manifest, NAMESPACE)
        except AlreadyExists:  # an attempt whose answer was lost
            return await client.get(JOB, name, NAMESPACE)

    return str((await patiently(attempt))["metadata"]["uid"])


async def jobs(client: Client) -> dict[str, Json]:
    listing = await patiently(lambda: client.list(JOB, NAMESPACE))
    return {job["metadata"]["name"]: job for job in listing.items}


def phase(job: Json) -> str:
    return str(job.get("status", {}).get("state", {}).get("phase", ""))


async def until_running(client: Client, names: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await jobs(client)
        waiting = sorted(name for name in names if phase(found[name]) != "Running")
        if not waiting:
            return
        assert time.monotonic() < deadline, f"these do not start: {waiting}"
        await asyncio.sleep(0.3)


async def until_ended(client: Client, names: set[str]) -> None:
    """Waits until every job has ended."""
    deadline = time.monotonic() + PATIENCE
    while True:
        found = await jobs(client)
        alive = {name: phase(found[name]) if name in found else "lost" for name in names}
        alive = {name: phase for name, phase in alive.items() if phase not in ENDED}
        if not alive or time.monotonic() > deadline:
            return  # what is still alive then is told with everything else that is wrong
        await asyncio.sleep(0.5)


async def compare_jobs(
    client: Client, stories: list[Story], uids: dict[str, str], marks: Path
) -> list[str]:
    """Jobs, pods, groups and logs beside what they should be."""
    wrong = []
    found = await jobs(client)
    pods = {pod["metadata"]["name"]: pod for pod in (await client.list(POD, NAMESPACE)).items}
    groups = [group["metadata"]["name"] for group in (await client.list(GROUP, NAMESPACE)).items]
    expected = {name for story in stories for name in story.pods}
    wrong += [f"pod {name} should not exist" for name in pods.keys() - expected]
    wrong += [f"PodGroup {name} should have gone with its job's end" for name in groups]
    for story in stories:
        job = found.get(story.name)
        if job is None or job["metadata"]["uid"] != uids[story.name]:
            wrong.append(f"job {story.name} is lost or another one")
            continue
        status = job["status"]
        if (phase(job), status.get("retryCount", 0)) != (story.phase, story.retries):
            wrong.append(
                f"job {story.name} is {phase(job)} after {status.get('retryCount', 0)} retries, not {story.phase} after "
                f"{story.retries}: {status}"
            )
        for name, code in story.pods.items():
            wrong += await compare_pod(client, story, name, code, pods.get(name))
    return wrong


async def compare_pod(
    client: Client, story: Story, name: str, code: int | None, pod: Json | None
) -> list[str]:
    if code is None:
        if pod is None or (
            pod["status"]["phase"] in ("Failed", "Succeeded")
            and "deletionTimestamp" not in pod["metadata"]
        ):
            return []
        return [f"pod {name} is still there: {pod['metadata']}, {pod['status']}"]
    if pod is None:
        return [f"pod {name} is lost"]
    container = pod["status"]["containerStatuses"][0]
    ended = container["state"].get("terminated")
    if ended is None:
        return [f"pod {name} has not ended: {container}"]
    wrong = []
    if (ended["exitCode"], container["restartCount"]) != (code, story.restarts):
        wrong.append(
            f"pod {name} ended with {ended} after {container['restartCount']} restarts, not {code} after {story.restarts}"
        )
    for previous in range(story.restarts + 1):
        query = {"previous": "true"} if previous else {}
        log = (await client.request("GET", POD.path(NAMESPACE, name, "log"), query)).body.decode()
        lines = log.splitlines()
        process = lines[0].split()[1] if lines else ""
        if lines != [f"{name} {process} {line}" for line in range(story.lines)]:
            wrong.append(
                f"the log of {name} is not whole: {len(lines)} lines of {story.lines}, last {lines[-3:]}"
            )
    return wrong


def compare_marks(stories: list[Story], marks: Path) -> list[str]:
    """What the containers themselves wrote down."""
    wrong = []
    if (marks / "overlaps").exists():
        wrong.append("two containers of one pod ran at once: " + (marks / "overlaps").read_text())
    for story in stories:
        for pod, runs in story.runs.items():
            starts = list(starts_of(marks, pod))
            if len(starts) != runs or any(len(times) != 1 + story.restarts for times in starts):
                wrong.append(
                    f"{runs} pods named {pod} should have started {1 + story.restarts} times each, not {starts}"
                )
        if story.name.startswith("ordered"):
            first, second = (
                min(min(times) for times in starts_of(marks, pod)) for pod in story.pods
            )
            if second < first:
                wrong.append(
                    f"the second task of {story.name} began {first - second:.2f} s before the first"
                )
        if story.name.startswith("gang"):
            wrong += [
                f"{pod} did not find its peers"
                for pod in story.pods
                if not (marks / "met" / pod).exists()
            ]
    return wrong


async def compare_ledger(client: Client, ledger: Ledger) -> list[str]:
    """Everything that was acknowledged is there, and what was deleted is not."""
    held = {
        one["metadata"]["name"]: one for one in (await client.list(CONFIG_MAP, NAMESPACE)).items
    }
    wrong = []
    for name, uid in ledger.created.items():
        if name in ledger.deleted:
            if name in held:
                wrong.append(f"{name} was deleted and is there again")
        elif name in held:
            if held[name]["metadata"]["uid"] != uid or held[name]["data"] != {"said": name}:
                wrong.append(f"{name} is not what was acknowledged")
        elif name not in ledger.in_doubt:
            wrong.append(f"{name} was acknowledged and is lost")
    if ledger.created and int(held["counter"]["data"]["value"]) < ledger.count:
        wrong.append(
            f"the counter is {held['counter']['data']['value']}; {ledger.count} was acknowledged"
        )
    return wrong


def compare_restarts(cluster: Cluster, killed: Counter[str]) -> list[str]:
    """Nothing fell by itself, and everything came back."""
    status = read_status(cluster)
    if status is None:
        return ["the supervisor has gone"]
    return [
        f"{process.name}: {process.restarts} restarts after {killed[process.name]} kills, ready: {process.ready}, {process.last_exit}"
        for process in status.processes
        if process.restarts != killed[process.name] or not process.ready
    ]
