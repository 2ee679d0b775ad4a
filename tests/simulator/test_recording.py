"""A recording, simulated: under its own policy it decides as it did, under another as that would."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.cli import simulate as command
from hekla.engine.cycle import cycle
from hekla.engine.framework.policy import Policy
from hekla.engine.model.decisions import Decisions, PodCondition
from hekla.engine.model.tasks import Status
from hekla.engine.policies import default_policy
from hekla.engine.world import policy
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.recording import RecordedState, Recording, read
from hekla.simulator import recording
from hekla.simulator.run import PodRun, Run
from hekla.simulator.simulation import Simulation, simulate
from hekla.simulator.workload import SimulatedJob, Workload, node, queue

SECOND = 1_000_000
LAST = policy(plugins=["gang", "predicates", "binpack"], actions="enqueue, allocate, backfill")
EVICTING = policy(
    plugins=["priority", "gang", "predicates", "proportion", "binpack"],
    actions="allocate, preempt, reclaim, backfill",
)


class Scheduler:
    """A daemon by hand: what happens is recorded, and its cycles are at times of our choice."""

    def __init__(self, directory: Path, rules: PolicyFile) -> None:
        self.recording = Recording(directory)
        self.rules = rules
        self.state = RecordedState(
            self.recording, scheduler_names=["volcano"], implied_groups=True, default_queue="default"
        )  # fmt: skip
        self.now = 1_700_000_000.25
        self.binds: list[tuple[str, str]] = []
        self.pods: dict[str, Any] = {}
        self.state.upsert_queue(queue("default"))

    def cycle(self, after: float = 1.0) -> Decisions:
        self.now += after
        self.recording.take_policy(self.rules)
        decided = cycle(self.state, self.rules.policy, self.now)
        self.recording.cycle(self.now, decided)
        self.binds += [(one.pod, one.node) for one in decided.binds]
        for (
            one
        ) in decided.binds:  # The server tells that it is bound, and the kubelet that it runs.
            tree = self.pods[one.pod]
            tree["spec"]["nodeName"] = one.node
            self.state.upsert_pod(tree)
            tree["status"] = {"phase": "Running"}
            self.state.upsert_pod(tree)
        return decided

    def group(self, name: str, minimum: int, **status: Any) -> None:
        self.state.upsert_pod_group(
            {
                "metadata": {"name": name, "namespace": "lab", "uid": f"u-{name}"},
                "spec": {"minMember": minimum, "queue": "default", "minResources": {"cpu": f"{minimum}"}},
                "status": status or {"phase": "Pending"},
            }
        )  # fmt: skip

    def pod(self, name: str, group: str, uid: str = "", cpu: str = "1") -> None:
        self.pods[f"lab/{name}"] = tree = {
            "metadata": {
                "name": name,
                "namespace": "lab",
                "uid": uid or f"u-{name}",
                "annotations": {"scheduling.k8s.io/group-name": group},
            },
            "spec": {
                "schedulerName": "volcano",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            },
            "status": {"phase": "Pending"},
        }
        self.state.upsert_pod(tree)

    def ends(self, *names: str) -> None:
        for name in names:
            self.pods[f"lab/{name}"]["status"] = {"phase": "Succeeded"}
            self.state.upsert_pod(self.pods[f"lab/{name}"])


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    return Scheduler(tmp_path / "tape", PolicyFile("", fall_back=False))


def simulated(scheduler: Scheduler, rules: Policy | None = None, default: int | None = None) -> Run:
    if scheduler.recording.running:
        scheduler.recording.close()
    workload, _ = recording.read(read(scheduler.recording.directory), "tape", default)
    (found,) = simulate(workload, [rules or scheduler.rules.policy])
    return found


def binds(found: Run) -> list[tuple[str, str]]:
    return [(one.pod, one.node) for one in found.acts if one.what == "bind"]


def evicted(found: Run) -> list[str]:
    return [one.pod for one in found.acts if one.what == "evict"]


def busy_hour(scheduler: Scheduler) -> None:
    """Two nodes, a gang whose pods are made once it is admitted, one that waits for it."""
    for name in ("n0", "n1"):
        scheduler.state.upsert_node(node(name, {"cpu": "2", "pods": "10"}))
    scheduler.group("first", 3)
    scheduler.cycle()
    for number in range(3):
        scheduler.pod(f"first-{number}", "first")
    scheduler.cycle()
    scheduler.group("second", 2)
    scheduler.cycle(3)
    for number in range(2):
        scheduler.pod(f"second-{number}", "second")
    scheduler.group("third", 1)
    scheduler.pod("third-0", "third")
    scheduler.cycle(2)
    scheduler.ends("first-1", "first-0")
    scheduler.cycle(10)
    scheduler.ends("first-2", "third-0")
    scheduler.cycle(20)
    scheduler.ends("second-0", "second-1")
    scheduler.cycle(30)


def test_under_its_own_policy_the_same_binds_in_the_same_order(scheduler: Scheduler) -> None:
    busy_hour(scheduler)
    found = simulated(scheduler)
    assert len(scheduler.binds) == 6
    assert binds(found) == scheduler.binds
    spans = {one.job.name: (one.started, one.ended) for one in found.jobs}
    assert spans == {
        "first": (1 * SECOND, 36 * SECOND),
        "third": (6 * SECOND, 36 * SECOND),
        "second": (36 * SECOND, 66 * SECOND),
    }


def test_a_bound_pod_runs_as_long_after_its_bind_as_it_did(scheduler: Scheduler) -> None:
    busy_hour(scheduler)
    scheduler.recording.close()
    workload, _ = recording.read(read(scheduler.recording.directory), "tape")
    (first,) = (job for job in workload.jobs if job.name == "first")
    for one in first.given:
        assert [step.status and step.status["phase"] for step in one.beginning] == [
            "Pending",
            "Running",
        ]
        one.beginning = [
            step._replace(lag=lag * SECOND) for step, lag in zip(one.beginning, (1, 4), strict=True)
        ]
    simulation = Simulation(workload, scheduler.rules.policy)
    seen = []
    for moment in (3, 6):
        simulation.run(until=moment * SECOND)
        seen.append({simulation.state.tasks[f"lab/first-{number}"].status for number in range(3)})
    assert seen == [{Status.BOUND}, {Status.RUNNING}]


def test_under_another_policy_pods_run_as_long_as_they_did(scheduler: Scheduler) -> None:
    busy_hour(scheduler)
    found = simulated(scheduler, policy(plugins=["gang", "predicates"], actions="allocate"))
    lengths = {one.job.name: one.ended - one.started for one in found.jobs}  # type: ignore[operator]
    assert lengths == {"first": 35 * SECOND, "third": 30 * SECOND, "second": 30 * SECOND}


def test_what_had_not_ended_goes_on_and_may_be_given_a_length(scheduler: Scheduler) -> None:
    scheduler.state.upsert_node(node("n0", {"cpu": "1", "pods": "10"}))
    for name in ("a", "b"):
        scheduler.group(name, 1)
        scheduler.pod(f"{name}-0", name)
    scheduler.cycle()
    scheduler.cycle(5)
    assert [one.ended for one in simulated(scheduler).jobs] == [None, None]
    ends = [one.ended for one in simulated(scheduler, default=8 * SECOND).jobs]
    assert ends == [8 * SECOND, 16 * SECOND]


def test_what_its_owner_took_away_is_gone_then(scheduler: Scheduler) -> None:
    scheduler.state.upsert_node(node("n0", {"cpu": "1", "pods": "10"}))
    for name in ("a", "b"):
        scheduler.group(name, 1)
        scheduler.pod(f"{name}-0", name)
    scheduler.cycle()
    scheduler.state.remove_pod("lab/b-0")
    scheduler.state.remove_pod_group("lab/b")
    scheduler.cycle(5)
    scheduler.ends("a-0")
    scheduler.cycle(5)
    found = simulated(scheduler)
    assert [(one.started, one.ended) for one in found.jobs] == [(0, 10 * SECOND), (None, None)]


def test_a_pod_that_came_again_comes_again_and_nodes_come_and_go(scheduler: Scheduler) -> None:
    scheduler.group("a", 1)
    scheduler.pod("a-0", "a", uid="one")
    scheduler.cycle()
    scheduler.state.upsert_node(node("n0", {"cpu": "1", "pods": "10"}))
    scheduler.cycle(5)
    scheduler.state.remove_pod("lab/a-0")  # It failed, and its controller makes it anew.
    scheduler.state.remove_node("n0")
    scheduler.state.upsert_node(node("n1", {"cpu": "1", "pods": "10"}))
    scheduler.pod("a-0", "a", uid="two")
    scheduler.cycle(5)
    scheduler.ends("a-0")
    scheduler.cycle(5)
    found = simulated(scheduler)
    assert binds(found) == scheduler.binds == [("lab/a-0", "n0"), ("lab/a-0", "n1")]
    assert found.jobs[0].ended == 15 * SECOND


EVICTS = """\
actions: "allocate, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: predicates}]
- plugins: [{name: calm-eviction, arguments: {notice: 2s}}]
"""


def test_what_is_evicted_goes_when_it_did_and_then_runs_as_long_as_it_did(tmp_path: Path) -> None:
    """The notice ends a little before the cycle that minds it."""
    (tmp_path / "rules.yaml").write_text(EVICTS)
    scheduler = Scheduler(
        tmp_path / "tape", PolicyFile(str(tmp_path / "rules.yaml"), fall_back=False)
    )
    scheduler.state.upsert_node(node("n0", {"cpu": "1", "pods": "10"}))
    scheduler.state.upsert_priority_class({"metadata": {"name": "high"}, "value": 9})
    scheduler.group("low", 0)
    scheduler.pod("low-0", "low", uid="one")
    scheduler.cycle()
    scheduler.group("high", 1)
    scheduler.state.upsert_pod_group(
        {
            "metadata": {"name": "high", "namespace": "lab", "uid": "u-high"},
            "spec": {"minMember": 1, "queue": "default", "priorityClassName": "high"},
            "status": {"phase": "Pending"},
        }
    )
    scheduler.pod("high-0", "high")
    assert not scheduler.cycle(10).evictions
    (evicted,) = scheduler.cycle(4).evictions
    assert evicted.pod == "lab/low-0"
    scheduler.state.remove_pod("lab/low-0")
    scheduler.pod("low-0", "low", uid="two")
    scheduler.cycle()
    scheduler.ends("high-0")
    scheduler.cycle(20)
    scheduler.ends("low-0")
    scheduler.cycle(17)
    found = simulated(scheduler)
    assert [one.moment for one in found.acts if one.what == "evict"] == [14 * SECOND]
    (low,) = (one for one in found.jobs if one.job.name == "low")
    last = max(one.moment for one in found.acts if one.what == "bind" and one.pod == "lab/low-0")
    assert low.ended == last + 17 * SECOND


def test_pods_whose_job_has_ended_before_are_not_in_the_way(scheduler: Scheduler) -> None:
    """Its PodGroup is gone, and they stay until somebody deletes them."""
    scheduler.state.upsert_node(node("n0", {"cpu": "1", "pods": "10"}))
    scheduler.pod("old-0", "old")
    scheduler.ends("old-0")
    scheduler.group("a", 1)
    scheduler.pod("a-0", "a")
    scheduler.cycle()
    scheduler.state.remove_pod("lab/old-0")
    scheduler.ends("a-0")
    scheduler.cycle(5)
    assert binds(simulated(scheduler)) == scheduler.binds == [("lab/a-0", "n0")]


def test_what_the_command_prints(scheduler: Scheduler, capsys: pytest.CaptureFixture[str]) -> None:
    busy_hour(scheduler)
    scheduler.recording.close()
    assert command.main([str(scheduler.recording.directory), "-o", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "recorded,first,default,3,3,0,1,36,1,1.02857,0",
        "recorded,second,default,2,2,4,36,66,32,2.06667,0",
        "recorded,third,default,1,1,6,6,36,0,1,0",
    ]


def test_a_job_that_was_never_let_in_may_start_under_another_policy(scheduler: Scheduler) -> None:
    asks = {
        "minResources": {"cpu": "4", "requests.cpu": "4", "pods": "2", "count/pods": "2"},
        "minTaskMember": {"worker": 2},
        "queue": "full",
        "minMember": 2,
    }
    scheduler.state.upsert_queue(queue("full", spec={"capability": {"cpu": "1"}}))
    scheduler.state.upsert_node(node("n0", {"cpu": "8", "pods": "10"}))
    for name in ("waits", "deleted"):
        scheduler.state.upsert_pod_group(
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": name,
                    "annotations": {"hekla.io/walltime": "30s"},
                },
                "spec": asks,
            }
        )
    scheduler.cycle()
    scheduler.state.remove_pod_group("default/deleted")
    scheduler.cycle()
    scheduler.recording.close()
    workload, _ = recording.read(read(scheduler.recording.directory), "r")
    assert [(job.name, job.pods, job.requests) for job in workload.jobs] == [
        ("waits", 2, {"cpu": "2"})
    ]
    assert [note.split(";")[0] for note in workload.notes] == [
        "jobs that had no pods yet: 1",
        "jobs deleted before they had pods: 1",
    ]
    bounded = policy(plugins=["gang", "predicates", "capacity"], actions="enqueue, allocate")
    free = policy(plugins=["gang", "predicates"], actions="enqueue, allocate")
    refused, let_in = simulate(workload, [bounded, free])
    assert refused.by_key["default/waits"].started is None
    run = let_in.by_key["default/waits"]
    assert run.started is not None and run.ended == run.started + 30 * SECOND


def test_a_directory_without_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Recording(tmp_path / "tape").close()
    assert command.main([str(tmp_path / "tape")]) == 2
    assert "tape: no whole cycle is recorded" in capsys.readouterr().err
    assert command.main([str(tmp_path)]) == 2
    assert "no recording" in capsys.readouterr().err


GANGS = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 15), st.integers(1, 3), st.integers(1, 3), st.booleans()
    ),
    min_size=1,
    max_size=10,
)
"""Submit, duration, cpu of a pod, pods, and whether the job goes to the second queue."""


@settings(deadline=None, max_examples=25)
@given(GANGS, st.booleans())
def test_a_recorded_simulation_simulated_is_itself(
    tmp_path_factory: pytest.TempPathFactory,
    gangs: list[tuple[int, int, int, int, bool]],
    packs: bool,
) -> None:
    rules = LAST if packs else default_policy()
    jobs = [
        SimulatedJob(
            f"j{number}", submit * SECOND, length * SECOND, {"cpu": str(cpu)}, pods, max(pods - 1, 1),
            queue="other" if other else "default",
        )
        for number, (submit, length, cpu, pods, other) in enumerate(gangs)
    ]  # fmt: skip
    nodes = [node(f"n{number}", {"cpu": "4", "pods": "110"}) for number in range(3)]
    directory = tmp_path_factory.mktemp("tape")
    tape = Recording(directory)
    whole = Workload(jobs, [*nodes, queue("default"), queue("other")])
    first = _Recorded(tape, whole, rules).run()
    tape.close()

    workload, _ = recording.read(read(directory), "tape")
    (again,) = simulate(workload, [rules])

    assert binds(again) == binds(first)
    start = min(submit for submit, *_ in gangs) * SECOND
    assert {one.job.name: one.ended + start for one in again.jobs if one.ended is not None} == {
        one.job.name: one.ended for one in first.jobs
    }


class _Recorded(Simulation):
    """A simulation that records what it does, as a daemon would."""

    def __init__(self, tape: Recording, workload: Workload, rules: Policy) -> None:
        self.tape = tape
        super().__init__(workload, rules, every_moment=True)

    def _make_state(self, **arguments: Any) -> RecordedState:
        return RecordedState(self.tape, **arguments)

    def _cycle(self) -> Decisions:
        decided = super()._cycle()
        self.tape.cycle(self._clock(), decided)
        return decided


@pytest.mark.parametrize("seed", range(40))
def test_victims_leave_as_they_left_and_what_was_nominated_is_seen_as_it_was(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    jobs = [
        SimulatedJob(
            f"j{number}", chance.randint(0, 20) * SECOND, chance.randint(3, 20) * SECOND,
            {"cpu": str(chance.randint(1, 3))}, pods := chance.randint(1, 4), chance.choice([1, pods]),
            queue=chance.choice(["default", "other"]), priority_class=chance.choice(["", "high"]),
        )
        for number in range(12)
    ]  # fmt: skip
    cluster = [
        *(node(f"n{number}", {"cpu": "6", "pods": "110"}) for number in range(2)),
        queue("default"),
        queue("other"),
        {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9},
    ]
    tape = Recording(tmp_path)
    first = _Slow(tape, Workload(jobs, cluster), EVICTING).run()
    tape.close()

    workload, _ = recording.read(read(tmp_path), "tape")
    (again,) = simulate(workload, [EVICTING])

    assert binds(again) == binds(first)
    assert evicted(again) == evicted(first)


class _Slow(_Recorded):
    """Victims take their time, and what a daemon writes is seen later."""

    def _make_anew(self, key: str, one: PodRun) -> None:
        assert one.bound is not None
        leaving = {**one.bound["metadata"], "deletionTimestamp": self._stamp()}
        self.state.upsert_pod({**one.bound, "metadata": leaving})
        self._comes(self.now + 2 * SECOND, 0, partial(Simulation._make_anew, self, key, one))

    def _say_nominated(self, condition: PodCondition) -> None:
        self._comes(self.now + SECOND, 0, partial(Simulation._say_nominated, self, condition))
