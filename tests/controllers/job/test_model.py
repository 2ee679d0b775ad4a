"""Random lives: whatever happens in whatever order, the books are right, no pod is lost and every
job can end.

`Lives` is one job in a world of accidents.  `Table` walks the state table itself, row by row and
with random counts, for what no life happens to come by: every phase can be left or is an end, and
no cell leads nowhere.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hekla.controllers.job import states
from hekla.controllers.job.plan import View, plan
from hekla.controllers.job.policies import COMMAND_ISSUED, Trigger
from tests.controllers.job.world import World, job_of, policy, task

EVENTS = ["PodFailed", "PodEvicted", "TaskCompleted", "Unknown", "*"]
ACTIONS = [
    "RestartJob",
    "RestartTask",
    "RestartPod",
    "RestartPartition",
    "AbortJob",
    "CompleteJob",
    "TerminateJob",
    "ResumeJob",
]
COMMANDS = [
    "AbortJob",
    "ResumeJob",
    "RestartJob",
    "CompleteJob",
    "TerminateJob",
    "SyncJob",
    "Nonsense",
]
ENDS = frozenset({states.COMPLETED, states.FAILED, states.TERMINATED})


class Lives(RuleBasedStateMachine):
    """One job in a world where pods, users, the scheduler and the controller itself do as they
    please."""

    world: World
    ended: str
    """The end that the job has come to, which it never leaves."""

    @initialize(
        policies=st.lists(
            st.tuples(
                st.sampled_from(EVENTS),
                st.sampled_from(ACTIONS),
                st.sampled_from(["", "", "10s", "2h"]),
            ),
            max_size=2,
            unique_by=lambda p: p[0],
        ),
        codes=st.sampled_from([(), (2,)]),
        succeeds=st.sampled_from([None, None, 1, 2]),
        retries=st.integers(0, 3),
        replicas=st.tuples(st.integers(1, 3), st.integers(0, 3)),
        least=st.integers(0, 4),
        graceful=st.booleans(),
        held=st.booleans(),
    )
    def begin(
        self,
        policies: list[Any],
        codes: tuple[int, ...],
        succeeds: int | None,
        retries: int,
        replicas: tuple[int, int],
        least: int,
        graceful: bool,
        held: bool,
    ) -> None:
        tasks = [task("a", replicas[0]), task("b", replicas[1])]
        wanted = [policy(action, event, timeout=timeout) for event, action, timeout in policies]
        wanted += [policy("RestartJob", exit_code=code) for code in codes]
        least = min(least, sum(replicas))
        job = job_of(
            *tasks, min_available=least, min_success=succeeds, max_retry=retries, policies=wanted
        )
        self.ended = ""
        self.world = World(job, graceful=graceful, group_phase="Pending" if held else "Inqueue")

    def some(self, at: int) -> str | None:
        alive = sorted(name for name, pod in self.world.pods.items() if not pod.leaving)
        return alive[at % len(alive)] if alive else None

    @rule(at=st.integers(0, 5), phase=st.sampled_from(["Running", "Succeeded"]))
    def pod_moves(self, at: int, phase: str) -> None:
        if (name := self.some(at)) and self.world.pods[name].status.phase not in (
            "Succeeded",
            "Failed",
        ):
            self.world.become(phase, name)

    @rule(at=st.integers(0, 5), code=st.integers(1, 3))
    def pod_fails(self, at: int, code: int) -> None:
        if (name := self.some(at)) and self.world.pods[name].status.phase not in (
            "Succeeded",
            "Failed",
        ):
            self.world.fail(name, code)

    @rule(at=st.integers(0, 5))
    def pod_is_deleted(self, at: int) -> None:
        if name := self.some(at):
            self.world.evict(name)

    @rule()
    def deleted_pods_leave(self) -> None:
        self.world.leave()

    @rule()
    def scheduler_takes_the_group(self) -> None:
        if self.world.group is not None and self.world.group.status.phase == "Pending":
            self.world.group.status.phase = "Inqueue"

    @rule()
    def gang_breaks(self) -> None:
        if self.world.group is not None and self.world.group.status.phase == "Inqueue":
            self.world.group_unknown()

    @rule(action=st.sampled_from(COMMANDS))
    def user_commands(self, action: str) -> None:
        self.world.command(action)

    @rule(replicas=st.integers(0, 3))
    def user_scales(self, replicas: int) -> None:
        first = self.world.job.spec.tasks[0]
        first.replicas = first.min_available = replicas
        total = sum(each.replicas for each in self.world.job.spec.tasks)
        self.world.job.spec.min_available = min(self.world.job.spec.min_available, total)

    @rule()
    def controller_reconciles(self) -> None:
        self.world.reconcile()

    @rule(action=st.sampled_from([None, *COMMANDS]))
    def controller_dies_half_way(self, action: str | None) -> None:
        """After the status of a stop was written, before the pods were deleted; what was in memory
        is lost."""
        world = self.world
        if action is not None:
            world.inbox.insert(0, Trigger(COMMAND_ISSUED, action=action))
        made = plan(View(world.job, dict(world.pods), world.group, world.now, list(world.inbox)))
        world.inbox.clear()
        if made.status_first:
            world.apply(made, crash_after_status=True)

    @rule()
    def time_passes(self) -> None:
        self.world.now += 3600

    @invariant()
    def at_rest_everything_is_right(self) -> None:
        """On a copy of the world, let the controller come to rest."""
        world = self.world.copy()
        phase = world.settle(40)
        status, pods = world.status, list(world.pods.values())
        leaving = [pod for pod in pods if pod.leaving]
        assert status.terminating == len(leaving)
        for column in ("pending", "running", "succeeded", "failed"):
            there = [
                pod for pod in pods if not pod.leaving and pod.status.phase == column.capitalize()
            ]
            assert getattr(status, column) == len(there), (column, phase)
        counted = sum(sum(each.phase.values()) for each in status.task_status_count.values())
        assert counted == len(pods) - len(leaving)
        alive = [
            pod for pod in pods if not pod.leaving and pod.status.phase in ("Pending", "Running")
        ]
        if phase not in states.AT_WORK:
            assert not alive and world.group is None
        assert all(pod.job_version == status.version for pod in alive), (
            "a pod of an old version is alive"
        )
        let_in = world.group is not None and world.group.status.phase not in ("", "Pending")
        if phase in (states.PENDING, states.RUNNING) and let_in:
            wanted = {
                f"train-{each.name}-{index}"
                for each in world.job.spec.tasks
                for index in range(each.replicas)
            }
            assert set(world.pods) - {pod.metadata.name for pod in leaving} <= wanted, (
                "a pod too many"
            )
            assert wanted <= set(world.pods), "a pod is lost"
        assert len(set(world.history)) == len(world.history)

    @invariant()
    def an_end_is_an_end(self) -> None:
        if self.ended:
            assert self.world.phase == self.ended
        elif self.world.phase in ENDS:
            self.ended = self.world.phase

    @invariant()
    def versions_and_retries_only_rise(self) -> None:
        now = (self.world.status.version, self.world.status.retry_count)
        before = getattr(self, "books", (0, 0))
        assert now[0] >= before[0] and now[1] >= before[1]
        self.books = now

    @invariant()
    def there_is_a_way_out(self) -> None:
        world = self.world.copy()
        world.inbox.append(Trigger(COMMAND_ISSUED, action=states.TERMINATE_JOB))
        world.settle(40)
        world.leave()
        assert world.settle(40) in ("Terminated", "Completed", "Failed", "Aborted")


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)


counts = st.builds(
    states.Counts,
    pending=st.integers(0, 3),
    running=st.integers(0, 3),
    succeeded=st.integers(0, 3),
    failed=st.integers(0, 3),
    terminating=st.integers(0, 3),
)


@pytest.mark.parametrize("phase", states.TABLE)
@pytest.mark.parametrize("action", [*ACTIONS, "SyncJob", "EnqueueJob", "Nonsense"])
@settings(max_examples=20, deadline=None)
@given(now=counts, retries=st.integers(0, 4), least=st.integers(0, 6))
def test_every_cell_leads_to_a_phase(
    phase: str, action: str, now: Any, retries: int, least: int
) -> None:
    job = job_of(task("a", 3), task("b", 3), min_available=least)
    following = states.transition(phase, action).outcome(
        states.Situation(job.spec, now, retries, least)
    )
    assert following is None or following in states.TABLE
    if phase in ENDS:
        assert following is None, "an end is never left"


@pytest.mark.parametrize("phase", sorted(set(states.TABLE) - ENDS))
def test_no_phase_is_without_an_exit(phase: str) -> None:
    """By some action and some counts every phase that is no end is left, and from each an end can
    be reached."""
    empty, some = states.Counts(), states.Counts(running=2, succeeded=4)
    job = job_of(task("a", 3), task("b", 3))

    def exits(here: str) -> set[str]:
        counted = (empty, some, states.Counts(succeeded=6))
        situations = [
            states.Situation(job.spec, now, retries, 6) for now in counted for retries in (0, 3)
        ]
        found = {
            states.transition(here, action).outcome(each)
            for action in [*ACTIONS, "SyncJob"]
            for each in situations
        }
        return {phase for phase in found if phase is not None} - {here}

    reached, ahead = {phase}, [phase]
    while ahead:
        new = exits(ahead.pop()) - reached
        reached |= new
        ahead += new
    assert exits(phase)
    assert reached & ENDS
