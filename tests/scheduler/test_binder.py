"""What the binder asks of the API server, in which order, and what it does when the server
refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from hekla.engine.model.decisions import (
    Bind,
    Decisions,
    Event,
    Evict,
    EvictionNotice,
    PodCondition,
    PodGroupStatus,
    QueueStatus,
)
from hekla.engine.model.tasks import Status
from hekla.engine.world import World, policy
from hekla.kube.errors import ApiError
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.status_writer import WIDTH
from hekla.scheduler import binder as carrying
from hekla.scheduler.binder import Binder
from hekla.scheduler.informers import RejectedObject
from hekla.scheduler.inqueue_announcer import InqueueAnnouncer
from hekla.scheduler.podgroup_statuses import Answer, Metadata
from hekla.scheduler.volumes import VolumeError


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


class Server:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bindings: list[dict[str, Any]] = []
        self.patches: list[tuple[str, str, dict[str, Any]]] = []
        self.refuses: set[str] = set()
        self.answer = asyncio.Event()
        self.answer.set()
        self.debounce = AdaptiveDebounce()

    async def post(
        self, kind: Any, name: str, namespace: str, subresource: str, body: dict[str, Any]
    ) -> None:
        await self.answer.wait()
        if name in self.refuses:
            raise ApiError(403, "Forbidden", "no more pods here")
        self.bindings.append(body)

    async def patch(
        self,
        kind: Any,
        name: str,
        patch: dict[str, Any],
        namespace: str | None = None,
        *,
        type: str = "merge",
        subresource: str | None = None,
    ) -> Answer:
        self.patches.append(
            (f"{kind.plural}/{name}" + (f"/{subresource}" if subresource else ""), type, patch)
        )
        return Answer(Metadata(str(len(self.patches))))


class Events:
    """Keeps what would be told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []

    def event(self, about: dict[str, Any], severity: str, reason: str, message: str) -> None:
        self.told.append(
            (f"{about['kind']}/{about['metadata']['name']}", severity, reason, message)
        )


class Scene:
    def __init__(self) -> None:
        self.world = World(policy(plugins=["gang", "predicates"], actions="allocate"))
        self.world.nodes("n1", cpu=8)
        self.server, self.events = Server(), Events()
        self.changes = 0
        self.binder = Binder(self.server, self.world.state, self.events, "volcano", self.changed)  # type: ignore[arg-type]

    def changed(self) -> None:
        self.changes += 1

    async def cycle(self) -> Decisions:
        decisions = self.world.run()
        self.binder.submit(decisions)
        await asyncio.sleep(0)
        return decisions

    def status(self, pod: str) -> Status:
        return self.world.state.tasks[f"default/{pod}"].status


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    made.server.answer.set()
    await made.binder.settle()


@core(149)
@core(150)
async def test_a_binding_says_who_where_and_what_was_noted(scene: Scene) -> None:
    scene.world.job("job", cpu=1)
    scene.world.state.tasks["default/job-task-0"].annotations["volcano.sh/gpu-index"] = "3"
    scene.server.answer.clear()
    await scene.cycle()
    assert scene.status("job-task-0") is Status.BINDING
    scene.server.answer.set()
    await scene.binder.settle()
    (body,) = scene.server.bindings
    assert body["metadata"] == {
        "name": "job-task-0",
        "namespace": "default",
        "uid": "default-job-task-0",
        "annotations": {"scheduling.k8s.io/group-name": "job", "volcano.sh/gpu-index": "3"},
    }
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert scene.events.told[-1] == (
        "Pod/job-task-0",
        "Normal",
        "Scheduled",
        "Successfully assigned default/job-task-0 to n1",
    )


async def test_many_are_on_their_way_at_once(scene: Scene) -> None:
    scene.world.job("job", pods=8, cpu=1)
    scene.server.answer.clear()
    await scene.cycle()
    assert len([task for task in scene.binder.tasks if not task.done()]) >= 8
    scene.server.answer.set()
    await scene.binder.settle()
    assert len(scene.server.bindings) == 8


async def test_what_is_refused_is_pending_again_and_told(scene: Scene) -> None:
    scene.world.job("job", pods=2, min_available=1, cpu=1)
    scene.server.refuses = {"job-task-1"}
    await scene.cycle()
    await scene.binder.settle()
    assert (scene.status("job-task-0"), scene.status("job-task-1")) == (
        Status.BINDING,
        Status.PENDING,
    )
    assert scene.changes == 1
    message = "failed to bind to node n1: no more pods here"
    assert ("Pod/job-task-1", "Warning", "FailedScheduling", message) in scene.events.told
    (patch,) = [
        patch for where, _, patch in scene.server.patches if where == "pods/job-task-1/status"
    ]
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "SchedulerError",
        message,
    )


TOLD = EvictionNotice(
    "default/p", "u", "default/job", 0, "preempt", "default/urgent", "room for job urgent"
)


async def test_a_pod_is_told_of_its_eviction_and_that_it_may_stay(scene: Scene) -> None:
    for at in (1_000_000_000, 0):
        told = msgspec.structs.replace(TOLD, at=at)
        scene.binder.submit(Decisions(notices=[told]))
    await scene.binder.settle()
    keys = "hekla.io/evict-at", "hekla.io/evict-for"
    assert [(where, how, patch["metadata"]) for where, how, patch in scene.server.patches] == [
        (
            "pods/p",
            "merge",
            {
                "uid": "u",
                "annotations": dict(zip(keys, ("2001-09-09T01:46:40Z", "default/urgent"))),
            },
        ),
        ("pods/p", "merge", {"uid": "u", "annotations": dict.fromkeys(keys)}),
    ], "in the order in which they were decided"
    assert [told[:3] for told in scene.events.told] == [
        ("PodGroup/job", "Normal", "EvictionNotice"),
        ("Pod/p", "Warning", "EvictionNotice"),
        ("PodGroup/job", "Normal", "EvictionWithdrawn"),
        ("Pod/p", "Normal", "EvictionWithdrawn"),
    ]
    assert scene.events.told[1][3] == (
        "Pod will be evicted at 2001-09-09T01:46:40Z, because of preempt: room for job urgent"
    )


async def test_nobody_is_evicted_whose_notice_could_not_be_written(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*given: Any, **more: Any) -> None:
        raise ApiError(500, "InternalError", "not now")

    monkeypatch.setattr(scene.server, "patch", refuse)
    rules = policy(
        plugins=[
            "gang",
            "priority",
            "predicates",
            {"name": "calm-eviction", "arguments": {"notice": "1m"}},
        ],
        actions="allocate, preempt",
    )
    scene.world.policy = rules
    scene.world.priority_class("high", 10)
    scene.world.job("lesser", cpu=8, min_available=0, on=["n1"], phase="Running")
    scene.world.job("urgent", cpu=8, priority="high")
    decisions = await scene.cycle()
    assert [one.pod for one in decisions.notices or ()] == ["default/lesser-task-0"]
    await scene.binder.settle()
    assert scene.status("lesser-task-0") is Status.RUNNING
    assert not scene.world.state.eviction_notices


async def test_an_eviction_gives_the_time_that_it_says(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[tuple[str, int | None]] = []

    async def delete(kind: Any, name: str, namespace: str, **more: Any) -> None:
        deleted.append((name, more["grace"]))

    monkeypatch.setattr(scene.server, "delete", delete, raising=False)
    plain = Evict("default/a", "u", "n1", "default/a", "preempt")
    scene.binder.submit(
        Decisions(
            evictions=[plain, msgspec.structs.replace(plain, pod="default/b", uid="v", grace=60)]
        )
    )
    await scene.binder.settle()
    assert sorted(deleted) == [("a", None), ("b", 60)]


@core(151)
async def test_one_whose_volumes_fail_does_not_keep_the_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def bind(promised: Any, node: str) -> None:
        if "default/bad" in promised:
            raise VolumeError("PersistentVolumeClaim default/bad is gone")

    undone: list[Any] = []

    async def give_back(given: Any, uid: str) -> None:
        undone.append(given)

    async def reserve(given: Any, pod: str, uid: str) -> None:
        return None

    monkeypatch.setattr(scene.binder.volumes, "bind", bind)
    monkeypatch.setattr(scene.binder.claims, "bind", reserve)
    monkeypatch.setattr(scene.binder.claims, "give_back", give_back)
    scene.world.job("job", pods=3, cpu=1)
    plain, bad, refused = (
        Bind(one.pod, one.uid, one.node, one.job, one.annotations)
        for one in scene.world.run().binds
    )
    scene.server.refuses = {"job-task-2"}
    scene.binder.submit(
        Decisions(
            binds=[
                plain,
                Bind(bad.pod, bad.uid, bad.node, bad.job, {}, {"default/bad": ""}),
                Bind(
                    refused.pod, refused.uid, refused.node, refused.job, {}, {}, {"default/gpu": {}}
                ),
            ]
        )
    )
    await scene.binder.settle()
    assert [body["metadata"]["name"] for body in scene.server.bindings] == ["job-task-0"]
    assert [scene.status(f"job-task-{number}") for number in range(3)] == [
        Status.BINDING,
        Status.PENDING,
        Status.PENDING,
    ]
    assert undone == [{"default/gpu": {}}]


@core(159)
async def test_only_the_queue_gate_is_taken_off_and_twice_does_no_harm(scene: Scene) -> None:
    for _ in range(2):
        scene.binder.submit(Decisions(gates=["default/gated"]))
    await scene.binder.settle()
    wanted = {
        "spec": {
            "schedulingGates": [
                {"name": "scheduling.volcano.sh/queue-allocation-gate", "$patch": "delete"}
            ]
        }
    }
    assert scene.server.patches == [("pods/gated", "strategic", wanted)] * 2


async def test_what_queues_hold_is_gathered_and_what_is_gone_is_taken_out(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "QUEUE_DELAY", 0.01)
    scene.binder.submit(Decisions(queues=[QueueStatus("q", {"cpu": "1", "gpu": "1"}, ["disk"])]))
    scene.binder.submit(Decisions(queues=[QueueStatus("q", {"cpu": "2"}, ["gpu"])]))
    await asyncio.sleep(0.05)
    await scene.binder.settle()
    assert scene.server.patches == [
        (
            "queues/q/status",
            "merge",
            {"status": {"allocated": {"disk": None, "gpu": None, "cpu": "2"}}},
        )
    ]


@pytest.mark.parametrize(("pods", "at_once"), [(0, 1), (1, 0)])
async def test_being_let_in_is_written_at_once_where_somebody_waits_for_it(
    scene: Scene, pods: int, at_once: int
) -> None:
    scene.world.job("job", pods=pods, min_available=1, cpu=1, phase="Pending")
    scene.binder.submit(
        Decisions(pod_groups=[PodGroupStatus("default/job", "u", "Inqueue", 0, 0, 0, [])])
    )
    await scene.binder.settle()
    assert len(scene.server.patches) == at_once


async def test_a_malformed_object_is_told_so(scene: Scene) -> None:
    scene.binder.record_rejected(RejectedObject("HyperNode", "rack", "u", "tier is no number"))
    scene.binder.record(
        Event("PodGroup", "default/job", "u", "Normal", "Scheduled", "pod group is ready")
    )
    assert scene.events.told == [
        ("HyperNode/rack", "Warning", "Rejected", "left out by the scheduler: tier is no number"),
        ("PodGroup/job", "Normal", "Scheduled", "pod group is ready"),
    ]


@pytest.mark.parametrize(
    ("phase", "reason", "told"),
    [
        ("Inqueue", "Unschedulable", True),
        ("Running", "Unschedulable", False),
        ("Inqueue", "Waiting", True),
        ("Running", "Waiting", True),
    ],
)
async def test_why_a_group_waits_is_told_once_it_goes_on_waiting(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, phase: str, reason: str, told: bool
) -> None:
    monkeypatch.setattr(carrying, "STABLE", 0.01)
    scene.world.job("job", cpu=1)
    scene.binder.submit(
        Decisions(
            events=[
                Event("PodGroup", "default/job", "u", "Warning", reason, "0/0 tasks"),
                Event("PodGroup", "default/job", "u", "Warning", reason, "1/1 tasks"),
            ]
        )
    )
    assert scene.events.told == []
    scene.world.state.jobs["default/job"].phase = phase
    async with asyncio.timeout(60):
        while scene.binder.deferred_events:
            await asyncio.sleep(0.005)
    assert scene.events.told == ([("PodGroup/job", "Warning", reason, "1/1 tasks")] if told else [])


async def test_a_complaint_stands_for_its_own_time_however_long_another_has_stood(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "STABLE", 0.01)
    waits = {"old": 0.0, "new": 3600.0}
    for name, ahead in waits.items():
        scene.world.job(name, cpu=1)
        scene.world.state.jobs[f"default/{name}"].phase = "Inqueue"
        scene.binder.defer_event(
            Event("PodGroup", f"default/{name}", "u", "Warning", "Unschedulable", "1/1 tasks")
        )
        held = scene.binder.deferred_events[f"default/{name}", "Unschedulable"]
        scene.binder.deferred_events[f"default/{name}", "Unschedulable"] = held._replace(
            since=held.since + ahead
        )
    scene.binder.defer_event(
        Event("PodGroup", "default/new", "u", "Warning", "Unschedulable", "0/1 tasks")
    )
    async with asyncio.timeout(60):
        while not scene.events.told:
            await asyncio.sleep(0.005)
    assert [where for where, *_ in scene.events.told] == ["PodGroup/old"]
    assert [held.event.message for held in scene.binder.deferred_events.values()] == ["0/1 tasks"]


@pytest.mark.parametrize(("flooded", "told"), [(False, 1), (True, 0)])
async def test_in_a_flood_a_complaint_stands_longer_before_it_is_told(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, flooded: bool, told: int
) -> None:
    """Of a group that has waited for eleven seconds on a busy server."""
    monkeypatch.setattr(InqueueAnnouncer, "flooded", flooded)
    monkeypatch.setattr(AdaptiveDebounce, "delay", lambda self, shortest, longest: longest)
    scene.world.job("job", cpu=1)
    scene.world.state.jobs["default/job"].phase = "Inqueue"
    scene.binder.defer_event(
        Event("PodGroup", "default/job", "u", "Warning", "Unschedulable", "0/0 tasks")
    )
    held = scene.binder.deferred_events["default/job", "Unschedulable"]
    scene.binder.deferred_events["default/job", "Unschedulable"] = held._replace(
        since=held.since - 11.0
    )
    scene.binder.record_deferred_events()
    assert len(scene.events.told) == told


async def test_a_slow_server_is_told_few_reasons_at_a_time_and_none_that_is_past(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "STABLE", 0.01)
    scene.world.job("job", pods=12, min_available=1, cpu=1)
    asked: list[str] = []

    async def patch(kind: Any, name: str, *_: Any, **__: Any) -> None:
        asked.append(name)
        await scene.server.answer.wait()

    monkeypatch.setattr(scene.server, "patch", patch)
    scene.server.answer.clear()
    pods = [f"job-task-{number}" for number in range(12)]
    uids = {name: scene.world.state.tasks[f"default/{name}"].uid for name in pods}
    scene.binder.submit(
        Decisions(
            conditions=[
                PodCondition(
                    f"default/{name}", uids[name], "Unschedulable", "not all are there", ""
                )
                for name in pods
            ],
            events=[
                Event(
                    "Pod",
                    f"default/{name}",
                    uids[name],
                    "Warning",
                    "FailedScheduling",
                    "not all are there",
                )
                for name in pods
            ],
        )
    )

    async def all_in_the_lane() -> None:
        async with asyncio.timeout(20):
            while scene.binder.deferred_conditions or len(asked) < WIDTH:
                await asyncio.sleep(0.005)

    await all_in_the_lane()
    await scene.cycle()
    await all_in_the_lane()
    assert asked == pods[:WIDTH]
    scene.server.answer.set()
    await scene.binder.settle()
    placed = [body["metadata"]["name"] for body in scene.server.bindings]
    assert len(placed) == 8
    waiting = [name for name in pods if name not in placed or name in asked[:WIDTH]]
    assert sorted(asked) == sorted(waiting)
    told = [where for where, _, reason, _ in scene.events.told if reason == "FailedScheduling"]
    assert sorted(told) == sorted(f"Pod/{name}" for name in waiting)


async def test_why_a_pod_waited_does_not_arrive_after_its_bind() -> None:
    """The condition is being written while the pod is bound: the bind waits for it, or the pod
    would say False while it runs."""
    scene = Scene()
    order: list[str] = []
    answered = asyncio.Event()

    async def patch(*asked: Any, **said: Any) -> Answer:
        await answered.wait()
        order.append("condition")
        return Answer(Metadata("1"))

    async def post(*asked: Any) -> None:
        order.append("bind")

    scene.server.patch, scene.server.post = patch, post  # type: ignore[method-assign]  # slower than in life
    binder = scene.binder
    condition = PodCondition("default/p", "u", "Unschedulable", "full", "")
    binder.write_in_order("pod default/p", binder.write_condition(condition))
    binder.launch(binder.bind(Bind("default/p", "u", "n1", "default/job", {})))
    await asyncio.sleep(0)
    assert order == []
    answered.set()
    await binder.settle()
    assert order == ["condition", "bind"]
