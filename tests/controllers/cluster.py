"""A small cluster for live tests: a real API server, the controllers under test, and stand-ins for
the rest.

The stand-ins are as simple as can be: a scheduler that lets every PodGroup in (unless told to
hold), and a kubelet that runs pods and ends them when the test says so.  Both speak to the API
server like any client.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from hekla.api import batch, bus, crds, inqueue, names, scheduling
from hekla.api.kinds import Kind
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.controllers.daemon import FLAGS, POOL, controllers_of
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.controller import run
from hekla.kube.errors import AlreadyExists, ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.flags import parse
from tests.apiserver_process import ApiServerProcess

Tree = dict[str, Any]
T = TypeVar("T")
PATIENCE = 60.0
HOME = "volcano-system"
SERVED_IN = 60.0


class Cluster:
    """The cluster of one test."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.pods = Cache(client, core.POD.untyped)
        self.jobs = Cache(client, batch.JOB)
        self.groups = Cache(client, scheduling.POD_GROUP)
        self.queues = Cache(client, scheduling.QUEUE)
        self.hold = False
        """The scheduler lets no PodGroup in."""
        self.running = True
        """The kubelet starts pods."""
        self.phases: dict[str, list[str]] = {}
        """What each job went through, as a watcher sees it."""
        self.evictions: dict[str, str] = {}
        self.pods_ever: dict[str, list[str]] = {}
        """Uids of all pods that ever had a name."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.jobs.on_change(self._note_phase)
        self.groups.on_change(
            lambda old, new: self._soon(self._schedule, new) if new is not None else None
        )
        self.pods.on_change(self._kubelet)
        for cache in (self.jobs, self.groups, self.pods, self.queues):
            await cache.start()
            await cache.synced()

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for cache in (self.jobs, self.groups, self.pods, self.queues):
            await cache.stop()

    # stand-ins

    def _soon(self, work: Callable[..., Awaitable[Any]], *about: Any, **more: Any) -> None:
        # It makes its coroutine itself, since it may be cancelled before it begins.
        async def guarded() -> None:
            with contextlib.suppress(ApiError):
                await work(*about, **more)

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note_phase(self, old: batch.Job | None, new: batch.Job | None) -> None:
        if new is not None:
            seen = self.phases.setdefault(new.metadata.name, [])
            if not seen or seen[-1] != new.status.state.phase:
                seen.append(new.status.state.phase)

    async def _schedule(self, group: scheduling.PodGroup) -> None:
        if (
            self.hold
            or group.status.phase not in ("", "Pending")
            or group.metadata.deletion_timestamp
        ):
            return
        patch = {"status": {"phase": "Inqueue"}}
        await self.client.patch(
            scheduling.POD_GROUP.untyped, group.metadata.name, patch, group.metadata.namespace
        )

    async def release(self) -> None:
        """Let the PodGroups in that were held."""
        self.hold = False
        for group in self.groups:
            await self._schedule(group)

    async def home(self) -> None:
        """Make the namespace of what the scheduler and the controllers write for each other.

        Announcements that earlier controllers have read on this server are removed: controllers
        pass over what they find at their start, so one that goes there before that is not heard.
        """
        with contextlib.suppress(AlreadyExists):
            await self.client.create(core.NAMESPACE.untyped, {"metadata": {"name": HOME}})
        with contextlib.suppress(NotFound):
            await self.client.delete(core.CONFIG_MAP, inqueue.NAME, HOME)

    async def announce(self, *groups: tuple[str, str]) -> None:
        """Let PodGroups in, given as (namespace/name, uid), as a scheduler does with many."""
        body = {"data": {inqueue.KEY: inqueue.written(groups)}}
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                await self.client.patch(core.CONFIG_MAP.untyped, inqueue.NAME, body, HOME)
                return
            except NotFound:
                assert time.monotonic() < deadline, "the controllers read no announcements"
                await asyncio.sleep(0.05)

    def _kubelet(self, old: Tree | None, new: Tree | None) -> None:
        if new is None:
            return
        meta = new["metadata"]
        ever = self.pods_ever.setdefault(meta["name"], [])
        if meta["uid"] not in ever:
            ever.append(meta["uid"])
        phase = new.get("status", {}).get("phase") or "Pending"
        if meta.get("deletionTimestamp"):
            # By uid, as a kubelet does: kube-apiserver says so of a pod that is gone in the next
            # moment, and there may be another by its name.
            name, namespace, uid = meta["name"], meta["namespace"], meta["uid"]
            self._soon(self.client.delete, core.POD, name, namespace, grace=0, uid=uid)
        elif self.running and phase == "Pending" and old is None:
            self._soon(self.set_phase, meta["name"], "Running", uid=meta["uid"])

    def hear(self, pod: Tree) -> None:
        """The kubelet is told of a pod, as new."""
        self._kubelet(None, pod)

    async def reported(self) -> None:
        """Wait until the stand-ins have done all that they were about to do."""
        await asyncio.gather(*self._tasks)

    async def set_phase(
        self,
        name: str,
        phase: str,
        exit_code: int = 0,
        *,
        restarts: int = 0,
        ready: bool = True,
        uid: str | None = None,
    ) -> None:
        """What a kubelet would report of a pod; with `uid` only if it is still that pod."""
        state: Tree = {"running": {}}
        if phase in ("Succeeded", "Failed"):
            state = {
                "terminated": {
                    "exitCode": exit_code,
                    "reason": "Completed" if phase == "Succeeded" else "Error",
                }
            }
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "busybox",
                    "imageID": "",
                    "ready": ready and phase == "Running",
                    "restartCount": restarts,
                    "state": state,
                }
            ],
        }
        body = {"status": status} if uid is None else {"metadata": {"uid": uid}, "status": status}
        await self.client.patch(core.POD.untyped, name, body, "default", subresource="status")

    async def fail(self, *pods: str, code: int = 1) -> None:
        for name in pods:
            await self.set_phase(name, "Failed", code)

    async def succeed(self, *pods: str) -> None:
        for name in pods:
            await self.set_phase(name, "Succeeded")

    # what a user does

    async def job(self, name: str, *tasks: Tree, **spec: Any) -> batch.Job:
        """Create a job as admission would leave it."""
        spec.setdefault("maxRetry", 3)
        spec.setdefault(
            "minAvailable", sum(task.get("minAvailable", task["replicas"]) for task in tasks)
        )
        body = {
            "metadata": {"name": name},
            "spec": {"schedulerName": "volcano", "queue": "default", "tasks": list(tasks), **spec},
        }
        return await self.client.create(batch.JOB, body, "default")

    async def command(self, action: str, target: batch.Job | scheduling.Queue) -> None:
        body = {
            "metadata": {"generateName": f"{target.metadata.name}-{action.lower()}-"},
            "action": action,
            "target": {
                "apiVersion": target.api_version,
                "kind": target.kind,
                "name": target.metadata.name,
                "uid": target.metadata.uid,
            },
        }
        await self.client.create(bus.COMMAND.untyped, body, "default")

    async def queue(self, name: str, **spec: Any) -> scheduling.Queue:
        return await self.client.create(
            scheduling.QUEUE, {"metadata": {"name": name}, "spec": {"weight": 1, **spec}}
        )

    # what a user sees

    async def until(
        self,
        what: Callable[[], T | None],
        about: Callable[[], str] = str,
        patience: float = PATIENCE,
        every: float = 0.01,
    ) -> T:
        """Wait until something is so; gives it.  What takes long to look at is looked at less
        often."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = what()
            if found:
                return found
            await asyncio.sleep(every)
        raise AssertionError(f"did not come about: {about()}")

    async def phase(self, name: str, phase: str) -> batch.Job:
        """Wait for a job's phase."""

        def there() -> batch.Job | None:
            job = self.jobs.get(f"default/{name}")
            return job if job is not None and job.status.state.phase == phase else None

        return await self.until(
            there, lambda: f"{name} {phase}; it went through {self.phases.get(name)}"
        )

    async def went(self, name: str, *phases: str) -> None:
        """Wait until a job has gone through these phases, in this order (others may lie between)."""

        def there() -> bool:
            seen = iter(self.phases.get(name, ()))
            return all(phase in seen for phase in phases)

        await self.until(there, lambda: f"{name} {phases}; it went through {self.phases.get(name)}")

    def names(self, job: str = "") -> list[str]:
        """Names of the pods that are not being deleted."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.pods
            if not pod["metadata"].get("deletionTimestamp")
            and (not job or pod["metadata"].get("labels", {}).get(names.JOB_NAME) == job)
        )

    async def pods_are(self, *wanted: str, job: str = "") -> None:
        await self.until(
            lambda: self.names(job) == sorted(wanted),
            lambda: f"pods {wanted}; there are {self.names(job)}",
        )

    async def exists(self, kind: Kind[Any], name: str, namespace: str | None = "default") -> bool:
        try:
            await self.client.get(kind.untyped, name, namespace)
        except NotFound:
            return False
        return True

    async def gone(self, kind: Kind[Any], name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while await self.exists(kind, name):
            assert time.monotonic() < deadline, f"{kind.kind} {name} is still there"
            await asyncio.sleep(0.02)

    async def events(self, name: str, reason: str) -> list[Tree]:
        listing = await self.client.list(core.EVENT.untyped, "default")
        return [
            e
            for e in listing.items
            if e["involvedObject"]["name"] == name and e["reason"] == reason
        ]


def a_task(name: str, replicas: int = 1, **more: Any) -> Tree:
    template = {
        "spec": {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
    }
    return {
        "name": name,
        "replicas": replicas,
        "minAvailable": replicas,
        "maxRetry": 3,
        "template": template,
        **more,
    }


def on(event: str, action: str, **more: Any) -> Tree:
    return {"event": event, "action": action, **more}


async def install(client: Client) -> None:
    """The kinds and queues that a cluster of Hekla starts with; returns when all kinds are served.

    A server needs its time for a kind.  A cache that meets one too early looks for it ever less
    often, which no story waits for.
    """
    definitions = crds.all()
    for definition in definitions:
        with contextlib.suppress(AlreadyExists):
            await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
    deadline = time.monotonic() + SERVED_IN
    for definition in definitions:
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        while not await _served(client, path):
            assert time.monotonic() < deadline, f"{path} is not served"
            await asyncio.sleep(0.1)
    for name in (names.ROOT_QUEUE, names.DEFAULT_QUEUE):
        with contextlib.suppress(AlreadyExists):
            await client.create(
                scheduling.QUEUE.untyped, {"metadata": {"name": name}, "spec": {"weight": 1}}
            )


async def _served(client: Client, path: str) -> bool:
    try:
        await client.request("GET", path, {"limit": "1"})
    except NotFound:
        return False
    return True


@contextlib.asynccontextmanager
async def controllers(
    server: ApiServerProcess, *flags: str, speak: type[Client] = Client
) -> AsyncIterator[Client]:
    """The controllers, run in this process until the end of the `with`; `speak` is the client that
    they use."""
    own = await asyncio.to_thread(server.controllers_kubeconfig)
    async with speak(load(str(own)), pool=POOL) as client:
        recorder = Recorder(client, "vc-controller-manager")
        work = asyncio.ensure_future(run(controllers_of(client, recorder, parse(FLAGS, flags))))
        try:
            yield client
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await recorder.close()


@contextlib.asynccontextmanager
async def running(
    server: ApiServerProcess, *flags: str, speak: type[Client] = Client
) -> AsyncIterator[Cluster]:
    """A cluster over a server: kinds and queues installed, controllers and stand-ins running."""
    async with Client(load(str(server.internal_kubeconfig)), pool=32) as client:
        await install(client)
        cluster = Cluster(client)
        await cluster.home()
        await cluster.start()
        async with controllers(server, *flags, speak=speak):
            try:
                yield cluster
            finally:
                await cluster.stop()


def fresh(directory: Path) -> contextlib.AbstractContextManager[ApiServerProcess]:
    return ApiServerProcess.started(directory)
