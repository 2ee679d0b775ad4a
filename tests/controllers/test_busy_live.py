"""What the job controller writes while the server is busy: less, later, and nothing left out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hekla.api import batch, scheduling
from hekla.api.meta import ObjectMeta
from hekla.controllers.daemon import FLAGS, POOL, controllers_of
from hekla.controllers.job import status_updater
from hekla.controllers.job.controller import JobController
from hekla.controllers.job.status_updater import StatusUpdater
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.controller import run
from hekla.kube.events import Recorder
from hekla.kube.flags import parse
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, a_task, install, on

__all__ = ["shared_apiserver"]


class Busy(AdaptiveDebounce):
    """A server that always answers late."""

    def delay(self, shortest: float, longest: float) -> float:
        return longest


class Scene:
    def __init__(self, cluster: Cluster, controller: JobController) -> None:
        self.cluster = cluster
        self.controller = controller
        self.written: dict[str, list[tuple[str, int, int]]] = {}
        """By job: phase, pending and running pods of each status that was shown."""
        cluster.jobs.on_change(self.note)

    def note(self, old: batch.Job | None, new: batch.Job | None) -> None:
        if new is not None and new.status.state.phase:
            shown = (new.status.state.phase, new.status.pending, new.status.running)
            self.written.setdefault(new.metadata.name, []).append(shown)

    def held_back(self, job: str) -> str:
        """The first step that waits to be written."""
        record = self.controller.statuses._records.get(f"default/{job}")
        step = record.first_step if record is not None else None
        return step.state.phase if step is not None else ""


@pytest.fixture
async def scene(shared_apiserver: ApiServerProcess) -> AsyncIterator[Scene]:
    connection = load(str(shared_apiserver.internal_kubeconfig))
    async with Client(connection, pool=32) as client, Client(connection, pool=POOL) as busy:
        busy.debounce = Busy()
        await install(client)
        cluster = Cluster(client)
        await cluster.start()
        recorder = Recorder(busy, "vc-controller-manager")
        made = controllers_of(busy, recorder, parse(FLAGS, ()))
        work = asyncio.ensure_future(run(made))
        try:
            yield Scene(cluster, next(one for one in made if isinstance(one, JobController)))
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await recorder.close()
            await cluster.stop()


async def test_a_job_is_written_once_a_phase(scene: Scene) -> None:
    await scene.cluster.job("gathered", a_task("a", 2))
    job = await scene.cluster.phase("gathered", "Running")
    assert scene.written["gathered"] == [("Pending", 0, 2), ("Running", 0, 2)]
    assert [condition.status for condition in job.status.conditions] == ["Pending", "Running"]


async def test_in_a_flood_a_job_that_runs_already_is_written_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_updater, "FLOOD", 2)
    monkeypatch.setattr(status_updater, "FLOOD_INTERVAL", 3.0)
    names = [f"flood-{n}" for n in range(4)]
    for name in names:
        await scene.cluster.job(name, a_task("a"))
    for name in names:
        job = await scene.cluster.phase(name, "Running")
        assert [condition.status for condition in job.status.conditions] == ["Pending", "Running"]
    assert [scene.written[name] for name in names[1:3]] == [[("Running", 0, 1)]] * 2


async def test_what_waits_in_a_flood_is_written_once_no_more_jobs_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_updater, "FLOOD", 1)
    monkeypatch.setattr(status_updater, "FLOOD_INTERVAL", 600.0)
    for name in ("last-0", "last-1"):
        await scene.cluster.job(name, a_task("a"))
    await scene.cluster.phase("last-1", "Running")
    assert scene.written["last-1"] == [("Running", 0, 1)]


async def test_what_waits_in_a_flood_is_written_once_the_server_is_quiet(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StatusUpdater, "_come_fast", True)
    monkeypatch.setattr(status_updater, "FLOOD", 1)
    monkeypatch.setattr(status_updater, "FLOOD_INTERVAL", 600.0)
    for name in ("soon-0", "soon-1"):
        await scene.cluster.job(name, a_task("a"))
    await scene.cluster.until(lambda: scene.held_back("soon-1") == "Running")
    assert "soon-1" not in scene.written
    scene.controller.statuses._client.debounce = AdaptiveDebounce()
    await scene.cluster.phase("soon-1", "Running")


async def test_a_phase_that_waits_to_be_written_comes_before_what_follows_from_it(
    scene: Scene,
) -> None:
    await scene.cluster.job("short", a_task("a"), policies=[on("PodFailed", "AbortJob")])
    await scene.cluster.until(
        lambda: scene.held_back("short") == "Running", lambda: scene.held_back("short")
    )
    await scene.cluster.fail("short-a-0", code=3)
    await scene.cluster.phase("short", "Aborted")
    assert scene.cluster.phases["short"] == ["", "Pending", "Running", "Aborting", "Aborted"]


async def test_a_group_that_is_gone_already_is_not_waited_for(scene: Scene) -> None:
    """Its end has been seen, and nobody will show it again: the next job of that name would stand
    still until the deadline."""
    gone = scheduling.PodGroup(metadata=ObjectMeta(name="gone", namespace="default", uid="1-2-3"))
    await scene.controller.groups.delete("default/again", gone)
    assert scene.controller.expectations.satisfied("default/again")


async def test_jobs_write_a_few_at_a_time_and_each_has_its_turn(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_updater, "LONGEST_INTERVAL", 0.05)
    statuses = scene.controller.statuses
    statuses._late_writes.width = 1
    writing: set[str] = set()
    together: list[int] = []
    write = statuses.write

    async def counted(job: batch.Job, record: Any, status: batch.JobStatus) -> batch.Job:
        writing.add(job.metadata.name)
        together.append(len(writing))
        try:
            return await write(job, record, status)
        finally:
            writing.discard(job.metadata.name)

    monkeypatch.setattr(statuses, "write", counted)
    names = [f"turn-{n}" for n in range(8)]
    for name in names:
        await scene.cluster.job(name, a_task("a"))
    for name in names:
        await scene.cluster.phase(name, "Running")
        assert scene.cluster.phases[name] == ["", "Pending", "Running"]
    assert max(together) == 1


async def test_a_turn_ends_with_its_job(scene: Scene) -> None:
    scene.cluster.running = False
    await scene.cluster.job("gone", a_task("a"))
    await scene.cluster.until(
        lambda: scene.held_back("gone") == "Pending", lambda: scene.held_back("gone")
    )
    turn = scene.controller.statuses._records["default/gone"].turn = asyncio.Event()
    await scene.cluster.client.delete(batch.JOB, "gone", "default", propagation="Background")
    async with asyncio.timeout(60):
        await turn.wait()


async def test_a_command_does_not_wait(scene: Scene) -> None:
    scene.cluster.running = False
    job = await scene.cluster.job("suspended", a_task("a"))
    await scene.cluster.until(
        lambda: scene.held_back("suspended") == "Pending", lambda: scene.held_back("suspended")
    )
    await scene.cluster.command("AbortJob", job)
    await scene.cluster.phase("suspended", "Aborted")
    assert scene.cluster.phases["suspended"] == ["", "Pending", "Aborting", "Aborted"]
