"""Random lives: whatever happens in whatever order, the books are right, no pod is lost and every job can end."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hekla.controllers.job import states
from hekla.controllers.job.plan import View, plan
from hekla.controllers.job.policies import COMMAND_ISSUED, Trigger
from tests.controllers.job.world import World, job_of, policy, task

EVENTS = ["PodFailed", "PodEvicted", "TaskCompleted", "Unknown", "*"]
ACTIONS = ["RestartJob", "RestartTask", "RestartPod", "AbortJob", "CompleteJob", "TerminateJob", "ResumeJob"]
COMMANDS = ["AbortJob", "ResumeJob", "RestartJob", "CompleteJob", "TerminateJob"]


class Lives(RuleBasedStateMachine):
    """One job in a world where pods, users, the scheduler and the controller itself do as they please."""

    world: World

    @initialize(
        policies=st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(ACTIONS)), max_size=2, unique_by=lambda p: p[0]),
        replicas=st.tuples(st.integers(1, 3), st.integers(0, 3)),
        least=st.integers(0, 4),
        graceful=st.booleans(),
        held=st.booleans(),
    )
    def begin(self, policies: list[Any], replicas: tuple[int, int], least: int, graceful: bool, held: bool) -> None:
        tasks = [task("a", replicas[0]), task("b", replicas[1])]
        wanted = [policy(action, event) for event, action in policies]
        job = job_of(*tasks, min_available=min(least, sum(replicas)), policies=wanted)
        self.world = World(job, graceful=graceful, group_phase="Pending" if held else "Inqueue")

    def some(self, at: int) -> str | None:
        alive = sorted(name for name, pod in self.world.pods.items() if not pod.leaving)
        return alive[at % len(alive)] if alive else None

    @rule(at=st.integers(0, 5), phase=st.sampled_from(["Running", "Succeeded"]))
    def pod_moves(self, at: int, phase: str) -> None:
        if (name := self.some(at)) and self.world.pods[name].status.phase not in ("Succeeded", "Failed"):
            self.world.become(phase, name)

    @rule(at=st.integers(0, 5), code=st.integers(1, 3))
    def pod_fails(self, at: int, code: int) -> None:
        if (name := self.some(at)) and self.world.pods[name].status.phase not in ("Succeeded", "Failed"):
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
    def controller_looks(self) -> None:
        self.world.look()

    @rule(action=st.sampled_from([None, *COMMANDS]))
    def controller_dies_half_way(self, action: str | None) -> None:
        """After the status of a stop was written, before the pods were deleted; what was in memory is lost."""
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
            there = [pod for pod in pods if not pod.leaving and pod.status.phase == column.capitalize()]
            assert getattr(status, column) == len(there), (column, phase)
        counted = sum(sum(each.phase.values()) for each in status.task_status_count.values())
        assert counted == len(pods) - len(leaving)
        alive = [pod for pod in pods if not pod.leaving and pod.status.phase in ("Pending", "Running")]
        if phase not in states.AT_WORK:
            assert not alive and world.group is None
        assert all(pod.job_version == status.version for pod in alive), "a pod of an old version is alive"
        assert len(set(world.history)) == len(world.history)

    @invariant()
    def there_is_a_way_out(self) -> None:
        world = self.world.copy()
        world.inbox.append(Trigger(COMMAND_ISSUED, action=states.TERMINATE_JOB))
        world.settle(40)
        world.leave()
        assert world.settle(40) in ("Terminated", "Completed", "Failed", "Aborted")


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
