"""What the watch shows of the controller's own writes is no reason to look again, unless it says
more than was written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hekla.api import batch, scheduling
from hekla.controllers.caches import Caches
from hekla.controllers.job.controller import JobController
from hekla.controllers.records import POD, Pod
from hekla.kube.errors import Conflict
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.http.client import TransportError
from tests.controllers.job.world import UID, job_of, policy, task

KEY = "default/train"


class Busy(AdaptiveDebounce):
    """A server that always answers late, so that statuses wait; until it has calmed."""

    calm = False

    def delay(self, shortest: float, longest: float) -> float:
        return shortest if self.calm else longest


class Server:
    """Shows what is created on the watch before it answers, as a busy server does."""

    def __init__(self) -> None:
        self.debounce = Busy()
        client: Any = self
        self.caches = Caches(client)
        self.controller = JobController(client, self.caches, self)
        self.patches: list[Any] = []
        self.phases: list[str] = []
        """Of the statuses that were written."""
        self.changed: dict[str, Any] = {}
        """What a webhook makes of the spec of a PodGroup."""
        self.phase = "Pending"
        """Of new pods."""
        self.silent = False
        """The watch is late."""
        self.error: Exception | None = None
        """What comes of writing a status."""

    def event(self, obj: Any, type: str, reason: str, message: str) -> None: ...

    async def create(self, kind: Any, body: dict[str, Any], namespace: str) -> None:
        body = {**body, "spec": {**body["spec"], **self.changed}}
        group = msgspec.convert(body, scheduling.PodGroup)
        group.metadata.uid, group.metadata.resource_version, group.metadata.generation = (
            "group",
            "2",
            1,
        )
        self.group = group
        if not self.silent:
            self.show_group()

    def show_group(self, **status: Any) -> None:
        self.group = msgspec.structs.replace(self.group, status=scheduling.PodGroupStatus(**status))
        self.caches.groups._put(f"default/{self.group.metadata.name}", self.group)

    async def request(self, method: str, path: str, *, body: bytes) -> None:
        tree = msgspec.json.decode(body)
        tree["metadata"]["uid"] = "pod"
        self.pod = msgspec.convert({**tree, "status": {"phase": self.phase}}, POD.type)
        self.show_pod(self.pod)

    def show_pod(self, pod: Pod) -> None:
        self.caches.pods._put(f"default/{pod.metadata.name}", pod)

    async def patch(self, kind: Any, name: str, patch: Any, namespace: str) -> None:
        self.patches.append(patch)

    async def update_status(self, kind: Any, job: batch.Job) -> batch.Job:
        self.phases.append(job.status.state.phase)
        if self.error is not None:
            raise self.error
        meta = msgspec.structs.replace(job.metadata, resource_version=str(100 + len(self.phases)))
        return msgspec.structs.replace(job, metadata=meta)

    async def reconcile(self) -> float | None:
        """One look at the job; whatever else asked for one before has had it.  Gives when it asks
        for the next."""
        queue = self.controller.queue
        while len(queue):
            queue.done(await queue.get())
        return await self.controller.reconcile(KEY)

    @property
    def asked(self) -> bool:
        """Whether the job is to be looked at again, now or soon."""
        return bool(self.controller.queue or self.controller.queue.delayed)


@pytest.fixture
def server() -> Server:
    return Server()


def make(server: Server, **spec: Any) -> batch.Job:
    job = job_of(task("a"), **spec)
    server.caches.queues._put("default", scheduling.Queue())
    server.caches.jobs._put(KEY, job)
    return job


@pytest.mark.parametrize(
    ("error", "at_once"),
    [
        (TransportError("nobody is there", sent=False), False),
        (Conflict(409, "Conflict", "somebody else has changed it"), True),
    ],
    ids=["no server", "a lost race"],
)
async def test_a_status_that_was_not_written_waits_for_its_next_turn(
    server: Server, error: Exception, at_once: bool
) -> None:
    """What was not looked at while it was written asks for a look, but where no server is each look
    fails in no time."""
    make(server)
    server.debounce.calm = True
    server.error = error
    waits = []
    for _ in range(3):
        waits.append(await server.reconcile())
        assert bool(server.controller.queue) == at_once
    assert waits == [0.1, 0.2, 0.4]


async def test_a_group_as_it_was_made_asks_for_nothing(server: Server) -> None:
    make(server)
    await server.reconcile()
    assert server.group.metadata.name == f"train-{UID}"
    assert not server.asked
    server.show_group(phase="Inqueue")
    assert server.asked


async def test_a_job_that_was_let_in_goes_before_new_ones(server: Server) -> None:
    make(server)
    await server.reconcile()
    server.caches.jobs._put("default/new", job_of(task("a"), name="new"))
    server.show_group(phase="Inqueue")
    assert [await server.controller.queue.get() for _ in range(2)] == [KEY, "default/new"]


async def test_a_group_that_was_changed_on_its_way_is_looked_at(server: Server) -> None:
    make(server)
    server.changed = {"minMember": 7}
    await server.reconcile()
    assert server.asked
    await server.reconcile()
    assert server.patches == [{"spec": {"minMember": 1}}]


async def test_a_group_that_lets_pods_in_at_once_is_looked_at(server: Server) -> None:
    make(server)
    server.silent = True
    await server.reconcile()
    server.show_group(phase="Inqueue")
    assert server.asked


async def test_a_look_that_came_too_early_is_made_up_for(server: Server) -> None:
    make(server)
    server.silent = True
    await server.reconcile()
    await server.reconcile()
    assert not server.asked
    server.show_group()
    assert server.asked


async def test_a_pod_as_it_was_made_asks_for_nothing(server: Server) -> None:
    make(server)
    await server.reconcile()
    server.show_group(phase="Inqueue")
    await server.reconcile()
    assert server.pod.metadata.name == "train-a-0"
    assert not server.asked
    server.show_pod(
        msgspec.structs.replace(
            server.pod, status=msgspec.structs.replace(server.pod.status, phase="Running")
        )
    )
    assert server.asked


async def test_a_pod_whose_waiting_is_answered_is_looked_at(server: Server) -> None:
    make(server, policies=[policy("RestartJob", "PodPending", timeout="1m")])
    await server.reconcile()
    server.show_group(phase="Inqueue")
    await server.reconcile()
    assert server.asked


async def test_a_pod_that_has_failed_already_is_looked_at(server: Server) -> None:
    make(server)
    server.phase = "Failed"
    await server.reconcile()
    server.show_group(phase="Inqueue")
    await server.reconcile()
    assert server.asked


async def end_of_pods(server: Server, phase: str) -> float | None:
    """A job whose one pod has come to a phase; gives when the look that writes this wants another."""
    make(server)
    await server.reconcile()
    server.show_group(phase="Inqueue")
    await server.reconcile()
    server.show_pod(
        msgspec.structs.replace(
            server.pod, status=msgspec.structs.replace(server.pod.status, phase=phase)
        )
    )
    server.debounce.calm = True
    return await server.controller.reconcile(KEY)


async def test_a_job_that_is_known_to_run_wants_no_further_look(server: Server) -> None:
    assert await end_of_pods(server, "Running") is None
    assert server.phases == ["Pending", "Running"]


async def test_a_job_whose_pods_ended_before_it_was_known_to_run_goes_on(server: Server) -> None:
    assert await end_of_pods(server, "Succeeded") == 0.0
    assert server.phases == ["Pending", "Running"]


async def test_a_status_that_may_lag_no_longer_waits_for_its_turn_before_the_job_is_looked_at(
    server: Server,
) -> None:
    make(server)
    await server.reconcile()
    statuses = server.controller.statuses
    statuses._late_writes.workers = 1000
    assert len(statuses._delays) == 1 and not server.asked

    statuses._records[KEY].due_at = 0.0
    statuses._fall_due(KEY)
    assert list(statuses._late_writes.writes) == [KEY] and not server.asked

    statuses._late_writes.drop(KEY)
    server.debounce.calm = True
    statuses._fall_due(KEY)
    assert not statuses._late_writes.writes and server.asked


async def test_a_status_that_was_written_meanwhile_has_no_turn(server: Server) -> None:
    make(server)
    await server.reconcile()
    statuses = server.controller.statuses
    record = statuses._records[KEY]
    record.due_at = record.late_since = 0.0
    statuses._fall_due(KEY)
    statuses._fall_due("default/gone")
    assert not statuses._late_writes.writes and not server.asked
