"""The kubelet and the API server killed with SIGKILL while jobs run: everything ends as it would
have."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path

import pytest

from hekla.api.trees import Json
from hekla.local.kubelet.records import PodDirectory, Slot
from hekla.local.kubelet.runtime.launching import SPLIT_LOG_STREAMS
from hekla.local.kubelet.runtime.runtime import stop_all
from tests.kubelet.live_cluster import PATIENCE, POD, cluster, condition, container

PODS = 20
LINES = 15


def worker_script(count: Path, number: int) -> str:
    return (
        f"echo begin >> {count}/{number}; i=0; while [ $i -lt {LINES} ]; do echo {number}-$i; {aside(number)} i=$((i+1)); sleep 0.1; done; "
        f"exit $(({number} % 3))"
    )


def aside(number: int) -> str:
    """Every second pod keeps its streams apart, and uses both."""
    return f"echo aside-{number}-$i >&2;" if number % 2 else ""


@pytest.mark.scenario("local-cluster", 144)
@pytest.mark.parametrize("flags", [(), ("--isolation=none",)], ids=["isolated", "plain"])
async def test_killed_again_and_again_no_container_runs_twice(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Kill -9 of the kubelet at random moments: exit codes, logs and restart counts are as if nothing
    had happened."""
    counts = tmp_path / "counts"
    counts.mkdir()
    random.seed(7)
    async with cluster(tmp_path, *flags) as live:
        for number in range(PODS):
            apart = {"annotations": {SPLIT_LOG_STREAMS: "true"}} if number % 2 else {}
            await live.create(
                f"w{number}", "sh", "-c", worker_script(counts, number), metadata=apart
            )
        for _ in range(6):
            await asyncio.sleep(random.uniform(0.0, 0.6))
            live.kubelet.kill()
            live.kubelet.start()
        for number in range(PODS):
            pod = await live.phase(f"w{number}", "Failed" if number % 3 else "Succeeded")
            assert container(pod)["state"]["terminated"]["exitCode"] == number % 3
            assert container(pod)["restartCount"] == 0
            out = [f"{number}-{line}" for line in range(LINES)]
            if number % 2:
                assert (await live.log(f"w{number}", stream="Stderr")).splitlines() == [
                    f"aside-{line}" for line in out
                ]
                assert sorted((await live.log(f"w{number}")).splitlines()) == sorted(
                    [*out, *(f"aside-{line}" for line in out)]
                )
            assert (
                await live.log(f"w{number}", stream="Stdout" if number % 2 else "All")
            ).splitlines() == out
            assert (counts / str(number)).read_text() == "begin\n", f"pod w{number} ran twice"


def version(pod: Json) -> str:
    return str(pod["metadata"]["resourceVersion"])


async def removed(directory: Path) -> None:
    """Waits until nothing of a pod is left on the machine, which is soon after its object has gone."""
    deadline = time.monotonic() + PATIENCE
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} was not removed"
        await asyncio.sleep(0.05)


async def ended(slot: Slot) -> None:
    """Waits until the end of a container is on disk."""
    deadline = time.monotonic() + PATIENCE
    while slot.exit() is None:
        assert time.monotonic() < deadline, f"{slot.directory} has no end"
        await asyncio.sleep(0.05)


async def test_what_ended_while_no_agent_ran_is_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as live:
        gate = tmp_path / "gate"
        await live.create(
            "short", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; echo done; exit 4"
        )
        await live.create("long", "sh", "-c", "echo up; sleep 1000")
        await live.create("doomed", "sleep", "1000")
        await live.log_has("long", "up")
        await live.phase("doomed", "Running")
        uid_of_short = (await live.phase("short", "Running"))["metadata"]["uid"]
        live.kubelet.kill()
        gate.touch()
        await live.client.delete(POD, "doomed", "default", grace=0)
        uid = next(
            path.name
            for path in (live.kubelet.root / "pods").iterdir()
            if '"doomed"' in (path / "pod.json").read_text()
        )
        await ended(PodDirectory(live.kubelet.root, uid_of_short).slot("c", 0))
        before = container(await live.pod("long"))
        live.kubelet.start()
        short = await live.phase("short", "Failed")
        assert container(short)["state"]["terminated"]["exitCode"] == 4
        assert await live.log("short") == "done\n"
        assert container(await live.pod("long")) == before
        await removed(live.kubelet.root / "pods" / uid)


async def test_a_grace_goes_on_where_the_killed_agent_left_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as live:
        await live.create(
            "deaf",
            "sh",
            "-c",
            "trap '' TERM; echo up; while :; do sleep 0.2; done",
            terminationGracePeriodSeconds=16,
        )
        await live.log_has("deaf", "up")
        began = time.monotonic()
        await live.client.delete(POD, "deaf", "default")
        await asyncio.sleep(1.0)
        live.kubelet.kill()
        await asyncio.sleep(11.0)  # of the grace little is left, and much of it would begin anew
        live.kubelet.start()
        # However long a busy machine takes for that.
        while live.kubelet.log.read_text().count("ready: ") < 2:
            await asyncio.sleep(0.05)
        ready = time.monotonic()
        await live.gone("deaf")
        # Which end at a whole second.
        assert time.monotonic() - began > 15, "not all of its 16 s were left to it"
        assert time.monotonic() - ready < 16.0, "its 16 s began anew"


async def test_probes_go_on_where_the_killed_agent_left_them(tmp_path: Path) -> None:
    """The next kubelet believes what they have found, so that services lose nobody, and goes on
    asking."""
    fit, alive = tmp_path / "fit", tmp_path / "alive"
    for file in (fit, alive):
        file.touch()
    probes = {
        name: {
            "exec": {"command": ["test", "-e", str(file)]},
            "periodSeconds": 1,
            "failureThreshold": 1,
            "timeoutSeconds": 10,
        }
        for name, file in (("startupProbe", fit), ("readinessProbe", fit), ("livenessProbe", alive))
    }
    async with cluster(tmp_path) as live:
        await live.create("asked", "sleep", "1000", restartPolicy="Always", c=probes)
        before = await live.until(
            "asked", lambda pod: pod and condition(pod, "Ready").get("status") == "True"
        )
        live.kubelet.kill()
        live.kubelet.start()
        await live.create("after", "true")
        until = await live.phase("after", "Succeeded")
        fit.unlink()
        changes = live.client.watch(
            POD,
            "default",
            resource_version=version(before),
            fields="metadata.name=asked",
            timeout=int(PATIENCE),
        )
        unready = await anext(
            change.object
            async for change in changes
            if condition(change.object, "Ready").get("status") == "False"
        )
        assert int(version(unready)) > int(version(until)), (
            f"unready before it said so: {unready['status']}"
        )
        alive.unlink()
        await live.until("asked", lambda pod: container(pod)["restartCount"] == 1)


async def test_names_stay_while_another_agent_takes_the_pods_up(tmp_path: Path) -> None:
    """Where names are files, each is written as a whole: the first pod to be taken up knows of no
    other yet."""
    look = 'until grep -q peer.sub "$HEKLA_HOSTS"; do sleep 0.02; done; echo found; '
    look += 'while sleep 0.01; do grep -q peer.sub "$HEKLA_HOSTS" || echo lost; done'
    async with cluster(tmp_path, "--isolation=none") as live:
        await live.create("looks", "sh", "-c", look)
        await live.create("peer", "sleep", "1000", subdomain="sub")
        await live.log_has("looks", "found")
        live.kubelet.kill()
        live.kubelet.start()
        await live.create("after", "true")
        await live.phase("after", "Succeeded")
        assert await live.log("looks") == "found\n"


async def test_a_deletion_is_finished_if_the_killed_agent_had_only_reported_the_end(
    tmp_path: Path,
) -> None:
    """Between the last status and the end of the object is a moment in which a kubelet may die."""
    async with cluster(tmp_path) as live:
        await live.create("ending", "sleep", "1000", terminationGracePeriodSeconds=30)
        before = await live.phase("ending", "Running")
        live.kubelet.kill()
        stop_all(live.kubelet.root, grace=0.0)
        await live.client.delete(POD, "ending", "default")
        terminated = {
            "exitCode": 137,
            "reason": "Error",
            "containerID": container(before)["containerID"],
        }
        over = {
            **container(before),
            "ready": False,
            "started": False,
            "state": {"terminated": terminated},
        }
        status = {"phase": "Failed", "containerStatuses": [over]}
        await live.client.patch(
            POD, "ending", {"status": status}, "default", type="merge", subresource="status"
        )
        assert (await live.pod("ending"))["metadata"]["deletionTimestamp"]
        live.kubelet.start()
        await live.gone("ending")
        await removed(live.kubelet.root / "pods" / before["metadata"]["uid"])


async def test_a_killed_server_gets_all_statuses_afterwards(tmp_path: Path) -> None:
    async with cluster(tmp_path) as live:
        gate = tmp_path / "gate"
        for number in range(5):
            await live.create(
                f"p{number}", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; exit {number}"
            )
        uids = [
            (await live.phase(f"p{number}", "Running"))["metadata"]["uid"] for number in range(5)
        ]
        live.server.kill()
        gate.touch()
        for uid in uids:
            await ended(PodDirectory(live.kubelet.root, uid).slot("c", 0))
        live.server.start()
        for number in range(5):
            pod = await live.phase(f"p{number}", "Failed" if number else "Succeeded")
            assert container(pod)["state"]["terminated"]["exitCode"] == number


async def test_lost_records_are_reported_as_unknown_not_run_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as live:
        await live.create("lost", "sh", "-c", "sleep 1000")
        await live.phase("lost", "Running")
        live.kubelet.kill()
        stop_all(live.kubelet.root, grace=0.0)
        shutil.rmtree(live.kubelet.root)
        live.kubelet.start()
        pod = await live.phase("lost", "Failed")
        assert (
            container(pod)["state"]["terminated"].items()
            >= {"exitCode": 137, "reason": "ContainerStatusUnknown"}.items()
        )
