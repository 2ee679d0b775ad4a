"""What PodGroups are told, and how few writes that takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec
import pytest

from hekla.api.names import EXPLANATION, JOB_VERSION, WAITING
from hekla.engine.model.decisions import PodGroupStatus
from hekla.engine.model.explanations import Explanation, NodeReason
from hekla.engine.model.tasks import Status
from hekla.engine.world import World, policy
from hekla.kube.errors import ApiError, ServerError
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.http.client import TransportError
from hekla.kube.status_writer import StatusWriter
from hekla.scheduler import podgroup_statuses as writing
from hekla.scheduler.podgroup_statuses import Answer, Metadata, PodGroupStatusUpdater

READY = {
    "type": "Scheduled",
    "status": "True",
    "reason": "tasks in gang are ready to be scheduled",
    "message": "",
}


class Scene:
    """A group of two pods; the server keeps what it is told, the watch shows it when the test says
    so."""

    def __init__(self) -> None:
        self.world = World(policy(plugins=["gang", "predicates"], actions="allocate"))
        self.world.nodes("n1", cpu=8)
        self.world.job("job", pods=2, min_available=2, cpu=1, phase="Pending")
        self.job = self.world.state.jobs["default/job"]
        self.debounce = AdaptiveDebounce()
        self.said: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        """Of each write, what it says of the group's metadata beside its uid."""
        self.failures: list[Exception] = []
        self.shown = "0"
        self.tasks: set[asyncio.Task[None]] = set()
        self.groups = PodGroupStatusUpdater(
            self,
            self.world.state,
            self.write_in_order,
            StatusWriter(self.launch),
            lambda key: self.shown,
        )  # type: ignore[arg-type]

    def launch(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    def write_in_order(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        return task

    async def patch(
        self,
        kind: Any,
        name: str,
        patch: dict[str, Any],
        namespace: str,
        *,
        subresource: str | None = None,
    ) -> Answer:
        if self.failures:
            raise self.failures.pop(0)
        assert patch["metadata"].pop("uid") == self.job.pg_uid
        self.marks.append(patch["metadata"])
        self.said.append(patch["status"])
        return Answer(Metadata(str(len(self.said))))

    def status(self, phase: str, running: int = 0, *conditions: dict[str, Any]) -> PodGroupStatus:
        self.job.phase = phase
        return PodGroupStatus(
            "default/job", self.job.pg_uid, phase, running, 0, 0, [dict(one) for one in conditions]
        )

    def phases(self) -> list[str]:
        return [one["phase"] for one in self.said]

    async def settle(self) -> None:
        async with asyncio.timeout(60):
            while self.groups.deferred or any(not task.done() for task in self.tasks):
                await asyncio.sleep(0.002)


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(writing, "DELAY", 0.01)
    made = Scene()
    yield made
    await made.settle()


async def test_scheduled_running_and_the_first_count_are_one_write(scene: Scene) -> None:
    scene.groups.update(scene.status("Inqueue", 0, READY))
    scene.groups.update(scene.status("Running", 0, READY))
    scene.groups.update(scene.status("Running", 2, READY))
    await scene.settle()
    assert [(one["phase"], one["conditions"][0]["type"]) for one in scene.said] == [
        ("Running", "Scheduled")
    ]


async def test_the_counts_are_those_of_the_moment_of_writing(scene: Scene) -> None:
    scene.world.run()
    scene.groups.update(scene.status("Running", 0, READY))
    scene.world.settle()
    await scene.settle()
    running = len(scene.job.counts.statuses[Status.RUNNING])
    assert running == 2
    assert [one["running"] for one in scene.said] == [running]


async def test_pods_that_are_about_to_run_are_waited_for_but_not_for_ever(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "DELAY", 1000.0)  # what passes here is not the clock's time
    scene.world.run()
    scene.groups.update(scene.status("Running", 0, READY))
    held = scene.groups.deferred["default/job"]
    scene.groups.deferred["default/job"] = held._replace(
        since=held.since - 3000, changed=held.changed - 1000
    )
    scene.groups.flush()
    assert "default/job" in scene.groups.deferred
    scene.groups.deferred["default/job"] = held._replace(
        since=held.since - 6000, changed=held.changed - 1000
    )
    scene.groups.flush()
    await scene.settle()
    assert [one["running"] for one in scene.said] == [None]


async def test_what_the_server_says_already_is_not_said_again(scene: Scene) -> None:
    """A cycle that has not seen the write decides the same once more, in other words for the time."""
    scene.groups.update(scene.status("Running", 0, {**READY, "transitionID": "1"}))
    await scene.settle()
    scene.groups.update(scene.status("Running", 0, {**READY, "transitionID": "2"}))
    await scene.settle()
    assert scene.phases() == ["Running"]


async def test_what_became_the_same_while_it_was_gathered_is_not_said_again(scene: Scene) -> None:
    """Decided before the write that said it, and counted after."""
    scene.world.run()
    scene.world.settle()
    scene.groups.update(scene.status("Running", 0, READY))
    await scene.settle()
    scene.shown = "1"
    scene.groups.update(scene.status("Running", 1, READY))
    await scene.settle()
    assert [one["running"] for one in scene.said] == [2]


async def test_what_is_decided_in_the_knowledge_of_the_write_is_written(scene: Scene) -> None:
    """Somebody else has changed the group since."""
    scene.groups.update(scene.status("Running", 0, READY))
    await scene.settle()
    scene.shown = "7"
    scene.groups.update(scene.status("Running", 0, READY))
    await scene.settle()
    assert scene.phases() == ["Running", "Running"]


async def test_a_group_that_is_let_in_does_not_wait_and_nothing_older_comes_after(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.groups, "pods_wait_for", lambda key: True)
    scene.groups.update(scene.status("Pending", 0))
    scene.groups.flush()
    scene.groups.deferred["default/job"] = writing.DeferredStatus(
        scene.groups.deferred["default/job"].status, None, 0.0, 0.0
    )
    scene.groups.flush()  # into the lane, where it has not begun
    scene.groups.update(scene.status("Inqueue", 0))
    await scene.settle()
    assert scene.phases() == ["Inqueue"]


@pytest.mark.parametrize(
    "error",
    [
        TransportError("the server has gone", sent=True),
        ServerError(500, "InternalError", "no disk"),
    ],
)
async def test_what_was_not_answered_is_written_again(scene: Scene, error: Exception) -> None:
    scene.failures = [error]
    scene.groups.update(scene.status("Running", 0, READY))
    await scene.settle()
    assert scene.phases() == ["Running"]


async def test_what_is_refused_is_left(scene: Scene) -> None:
    scene.failures = [ApiError(403, "Forbidden", "not yours")]
    scene.groups.update(scene.status("Running", 0, READY))
    await scene.settle()
    assert (scene.said, scene.failures) == ([], [])


async def test_numbers_stand_beside_the_words_as_long_as_the_group_waits(scene: Scene) -> None:
    lacking = NodeReason("Insufficient cpu", 1, "lacks cpu (at most 1 free)", "cpu", "2", "1", "1")
    explained = Explanation(
        "default/job",
        "default",
        "nodes",
        2,
        0,
        1,
        [lacking],
        "It starts once ...",
        "job needs 2 pods ...",
    )
    waits = {"type": WAITING, "status": "True", "reason": "Nodes", "message": explained.text}
    scene.groups.update(scene.status("Pending", 0, waits), explained)
    await scene.settle()
    scene.groups.update(scene.status("Running", 2, READY), explained)
    await scene.settle()
    scene.groups.update(scene.status("Unknown", 0, READY), None)
    await scene.settle()

    waiting, runs, later = scene.marks
    assert json.loads(waiting["annotations"][EXPLANATION]) == {
        "constraint": "nodes",
        "queue": "default",
        "needs": 2,
        "fit": 0,
        "nodes": 1,
        "remedy": "It starts once ...",
        "reasons": [
            {
                "reason": "Insufficient cpu",
                "nodes": 1,
                "text": "lacks cpu (at most 1 free)",
                "resource": "cpu",
                "asked": "2",
                "left": "1",
                "missing": "1",
            }
        ],
        "shortages": [],
        "missing": 0,
        "asks": {},
        "noVictimBecause": "",
    }
    assert (runs, later) == ({"annotations": {EXPLANATION: None}}, {})


async def test_where_there_is_nothing_to_count_no_mark_is_made(scene: Scene) -> None:
    explained = Explanation(
        "default/job", "default", "validity", 2, 0, 0, [], "", "job has 0 of the 2 pods"
    )
    scene.groups.update(
        scene.status("Pending", 0, {"type": WAITING, "message": explained.text}), explained
    )
    await scene.settle()
    assert scene.marks == [{}]


async def test_that_a_group_has_begun_to_run_is_written_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is gathered first: a program that sees a pod run finds its group running.  Once; what
    follows is gathered as ever."""
    monkeypatch.setattr(writing, "DELAY", 0.05)
    scene.groups.update(scene.status("Inqueue", 0, READY))
    scene.groups.update_early(scene.status("Running", 0, READY))
    assert not scene.groups.deferred and len(scene.tasks) == 1
    scene.groups.update_early(scene.status("Running", 1, READY))
    assert scene.groups.deferred, "more pods of a group that runs are no beginning"
    await scene.settle()
    assert scene.phases() == ["Running"], "and it is not said twice"


async def test_it_is_gathered_where_the_server_is_busy_or_many_begin_at_a_time(
    scene: Scene,
) -> None:
    for _ in range(64):
        scene.debounce.observe(scene.debounce._clock() - 0.5)
    scene.groups.update_early(scene.status("Running", 0, READY))
    assert scene.groups.deferred and not scene.groups.early_writes
    scene.groups.deferred.clear()
    scene.groups.client.debounce = AdaptiveDebounce()
    group = scene.status("Running", 0, READY)
    for number in range(writing.EARLY + 3):
        scene.groups.update_early(msgspec.structs.replace(group, key=f"default/job-{number}"))
    assert len(scene.groups.early_writes) == writing.EARLY and len(scene.groups.deferred) == 3
    await scene.settle()


async def test_a_group_that_began_again_says_so_again(scene: Scene) -> None:
    for phase in ("Running", "Inqueue", "Running"):
        await scene.settle()
        scene.groups.update_early(scene.status(phase, 0, READY))
        assert bool(scene.groups.early_writes) is (phase == "Running")
    await scene.settle()


@pytest.fixture
async def flood(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scene in a flood; gives the groups that are announced."""
    announced: list[str] = []

    def announce(group: str, uid: str) -> bool:
        assert uid == scene.job.pg_uid
        announced.append(group)
        return True

    monkeypatch.setattr(scene.groups.announcer, "announce", announce)
    monkeypatch.setattr(scene.groups, "pods_wait_for", lambda key: True)
    monkeypatch.setattr(AdaptiveDebounce, "delay", lambda self, shortest, longest: longest)
    monkeypatch.setattr(writing, "LONGEST_IN_FLOOD", 0.2)
    scene.job.annotations = {JOB_VERSION: "0"}
    return announced


async def test_a_group_that_is_announced_and_runs_is_written_once(
    scene: Scene, flood: list[str]
) -> None:
    scene.groups.update(scene.status("Inqueue", 0))
    scene.groups.update(scene.status("Inqueue", 0))
    scene.groups.update(scene.status("Running", 2, READY))
    await scene.settle()
    assert (flood, scene.phases()) == (["default/job"], ["Running"])


async def test_an_announced_group_whose_pods_do_not_come_is_written(
    scene: Scene, flood: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LONGEST_DELAY", 1000.0)
    monkeypatch.setattr(writing, "UNHEARD", 0.05)
    scene.groups.update(scene.status("Inqueue", 0))
    await asyncio.sleep(0.06)
    scene.groups.flush()
    await scene.settle()
    assert (flood, scene.phases()) == (["default/job"], ["Inqueue"])


async def test_a_group_whose_announcement_nobody_has_read_is_written_at_once(
    scene: Scene, flood: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "LONGEST_DELAY", 1000.0)
    scene.groups.update(scene.status("Inqueue", 0))
    scene.groups.write_admissions(["default/job", "default/other"])
    await scene.settle()
    assert (flood, scene.phases()) == (["default/job"], ["Inqueue"])


async def test_a_group_that_no_job_controller_of_ours_has_made_is_not_announced(
    scene: Scene, flood: list[str]
) -> None:
    scene.job.annotations = {}
    scene.groups.update(scene.status("Inqueue", 0))
    await scene.settle()
    assert (flood, scene.phases()) == ([], ["Inqueue"])


async def test_a_group_that_is_gone_is_not_written(scene: Scene) -> None:
    """A finished job's group is, before its pods."""
    scene.groups.update(scene.status("Running", 2, READY))
    scene.job.has_group = False
    await scene.settle()
    assert scene.phases() == []
