"""Models of what runs: work of whole jobs, elastic and together, roles, and pods that are apart."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator import jobfile
from hekla.simulator.run import Run
from hekla.simulator.simulation import simulate
from hekla.simulator.work import Work
from hekla.simulator.workload import InputError, SimulatedJob, Workload, node, queue

SECOND = 1_000_000
PLAIN = policy(plugins=["gang", "predicates"], actions="allocate, backfill")
PREEMPT = policy(
    plugins=["priority", {"name": "gang", "enablePreemptable": False}, "conformance", "predicates"],
    actions="enqueue, allocate, preempt, backfill",
)
HIGH = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}
MAY_GO = {"annotations": {"volcano.sh/preemptable": "true"}}


def job(name: str, pods: int, least: int, duration: int = 100, **more: Any) -> SimulatedJob:
    return SimulatedJob(
        name, more.pop("submit", 0) * SECOND, duration * SECOND, {"cpu": "1"}, pods, least, **more
    )


def run(jobs: list[SimulatedJob], cpu: int = 4, rules: Policy = PLAIN) -> dict[str, Any]:
    """Job -> when it started and ended, in seconds."""
    cluster = [node("n1", {"cpu": str(cpu), "pods": "110"}), queue("default"), HIGH]
    (found,) = simulate(Workload(jobs, cluster), [rules])
    assert not found.problems
    return spans(found)


def spans(found: Run) -> dict[str, Any]:
    return {
        one.job.name: tuple(
            None if at is None else at / SECOND for at in (one.started, one.ended)
        )
        for one in found.jobs
    }  # fmt: skip


def test_half_of_the_workers_need_twice_as_long() -> None:
    assert run([job("e", 4, 1, work=Work())], cpu=2) == {"e": (0, 200)}


def test_workers_above_the_minimum_come_when_there_is_room() -> None:
    blocks = job("b", 2, 2, duration=40)
    found = run([blocks, job("e", 4, 1, work=Work())])
    assert found == {"b": (0, 40), "e": (0, 120)}, "40 s with half of them, 80 s with all"


def test_speed_by_a_table_and_by_amdahl() -> None:
    table = Work(speeds=[(1, Fraction(1)), (2, Fraction(18, 10)), (4, Fraction(3))])
    assert run([job("e", 4, 1, work=table)], cpu=1) == {"e": (0, 300)}
    assert table.speed(3, 4) == Fraction(24, 30)
    assert run([job("e", 4, 1, work=Work(serial=Fraction(1, 3)))], cpu=1) == {"e": (0, 200)}


def test_work_that_needs_all_stands_still_until_all_run_and_those_that_run_keep_their_room() -> (
    None
):
    together = job("t", 4, 1, work=Work(together=True))
    found = run([job("b", 2, 2, duration=40), together, job("c", 1, 1, submit=1)])
    # c is without its minimum and goes before the rest of t, which holds two or three cpu and waits.
    assert found == {"b": (0, 40), "t": (0, 240), "c": (40, 140)}


def test_evicted_below_its_minimum_work_begins_anew_or_at_its_last_checkpoint() -> None:
    urgent = job("u", 4, 4, duration=10, submit=35, priority_class="high")

    def ends(**more: Any) -> float:
        found = run([job("e", 4, 4, template=MAY_GO, work=Work(**more)), urgent], rules=PREEMPT)
        assert found["u"] == (35, 45)
        return float(found["e"][1])

    assert ends() == 45 + 100
    assert ends(checkpoint=0) == 45 + 65
    assert ends(checkpoint=10 * SECOND) == 45 + 70
    assert ends(checkpoint=10 * SECOND, restart=7 * SECOND) == 45 + 7 + 70


def test_evicted_above_its_minimum_it_goes_on_more_slowly() -> None:
    urgent = job("u", 2, 2, duration=10, submit=50, priority_class="high")
    found = run([job("e", 4, 2, template=MAY_GO, work=Work()), urgent], rules=PREEMPT)
    assert found == {"u": (50, 60), "e": (0, 105)}


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(1, 4), st.integers(1, 4)),
        min_size=1,
        max_size=8,
    )
)
def test_gangs_that_hold_all_of_their_pods_take_their_duration_whatever_model_they_have(
    given: list[tuple[int, int, int, int]],
) -> None:
    plain, worked, serial = (
        run([
            job(f"j{number}", pods, pods, length, submit=submit, work=model)
            for number, (submit, length, pods, _) in enumerate(given)
        ])
        for model in (None, Work(together=True), Work(serial=Fraction(1, 7)))
    )  # fmt: skip
    assert plain == worked == serial


ROLES = """\
nodes:
- {name: a, count: 2, allocatable: {cpu: 3}}
objects:
- kind: HyperNode
  metadata: {name: rack}
  spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: a-0}}}, {type: Node, selector: {exactMatch: {name: a-1}}}]}
- {kind: Queue, metadata: {name: default}, status: {state: Open}}
network: {tiers: {1: 100Mi}, beyond: 10Mi}
jobs:
- name: train
  duration: 100
  roles:
  - {name: ps, pods: 2, requests: {cpu: 1}}
  - {name: worker, pods: 4, requests: {cpu: 1}, after: ps, annotations: {x: y}}
  group:
    annotations: {volcano.sh/task-topology-affinity: "ps,worker"}
    spec: {minResources: {cpu: 6}}
  work:
    role: worker
    traffic: {ps/worker: 25Mi}
"""


def simulated(text: str) -> Run:
    (found,) = simulate(jobfile.read(text, "jobs.yaml"), [PLAIN])
    assert not found.problems
    return found


def test_roles_come_after_each_other_and_messages_between_them_take_time() -> None:
    found = simulated(ROLES)
    assert [one.pod for one in found.acts[:6]] == [
        "simulated/train-ps-0",
        "simulated/train-ps-1",
        *(f"simulated/train-worker-{number}" for number in range(4)),
    ]
    places = {one.pod.partition("-")[2]: one.node for one in found.acts if one.what == "bind"}
    assert sorted(places.values()) == ["a-0"] * 3 + ["a-1"] * 3
    most = max(
        sum(places[f"worker-{worker}"] != places[f"ps-{ps}"] for worker in range(4))
        for ps in range(2)
    )
    assert spans(found) == {"train": (0, 100 * (1 + most * 25 / 100))}


def test_nodes_without_a_common_hyper_node_have_the_slowest_link() -> None:
    apart = ROLES.replace("exactMatch: {name: a-1}", "exactMatch: {name: other}")
    near, far = simulated(ROLES).jobs[0].ended, simulated(apart).jobs[0].ended
    assert near is not None and far is not None
    assert far - 100 * SECOND == 10 * (near - 100 * SECOND)


def test_a_group_says_what_the_file_says_of_it() -> None:
    (made,) = jobfile.read(ROLES, "j").jobs
    assert made.overlay["annotations"] == {"volcano.sh/task-topology-affinity": "ps,worker"}
    assert (made.pods, made.min_available, made.processors) == (6, 2, 6)
    assert made.roles[1].template == {"annotations": {"x": "y"}}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("after: ps", "after: chief", 'jobs.yaml:14: jobs.0.roles.1: after = "chief": a role above it; there are: ps'),
        ("name: worker, pods: 4", "name: ps, pods: 4", 'jobs.yaml:14: jobs.0.roles.1: name = "ps": roles have names, once each'),
        ("role: worker", "role: boss", 'jobs.yaml:19: jobs.0.work: role = "boss": there are: ps, worker'),
        ("ps/worker: 25Mi", "ps/boss: 25Mi", 'jobs.yaml:20: jobs.0.work.traffic: "ps/boss": role/other; there are: ps, worker'),
        ("ps/worker: 25Mi", "ps/worker: much", "jobs.yaml:20: jobs.0.work.traffic: ps/worker = 'much': bytes such as 200Mi, from 0 up"),
        ("role: worker", "serial: 2", "jobs.yaml:19: jobs.0.work: serial = 2: a part from 0 to 1"),
        ("role: worker", "together: true\n    serial: 0.5", "jobs.yaml:20: jobs.0.work: together and serial: one of them"),
        ("duration: 100", "duration: 100\n  requests: {cpu: 1}", "jobs.yaml:13: jobs.0: train has both requests and roles; one of them"),
        ("duration: 100", "duration: 100\n  pods: 3", "jobs.yaml:12: jobs.0: pods of a job with roles: each role has its own"),
        ("name: train", "name: train\n  minAvailable: 3", "jobs.yaml:11: jobs.0: minAvailable = 3: from 1 to pods that come at once = 2"),
        ("tiers: {1: 100Mi}", "tiers: {1: 0}", "jobs.yaml:8: network.tiers: 1 = 0: bytes a second above 0"),
    ],
)  # fmt: skip
def test_an_error_names_its_place(before: str, after: str, said: str) -> None:
    assert before in ROLES
    with pytest.raises(InputError) as error:
        jobfile.read(ROLES.replace(before, after), "jobs.yaml")
    assert str(error.value) == said
