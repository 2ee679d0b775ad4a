"""What a policy did otherwise, and from which decision on."""

from __future__ import annotations

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.world import policy
from hekla.simulator import report
from hekla.simulator.differences import Decision, Moved, differences, parting, sentences
from hekla.simulator.outcome import outcome
from hekla.simulator.run import Act, JobRun, Run
from hekla.simulator.simulation import simulate
from hekla.simulator.workload import SimulatedJob, Workload, node, queue

SECOND = 1_000_000
FIT = policy(plugins=["gang", "predicates"], actions="allocate, backfill")
EASY = policy(
    plugins=["gang", "predicates"],
    actions="allocate, backfill",
    configurations=[{"name": "backfill", "arguments": {"mode": "easy"}}],
)
CLUSTER = [node("n1", {"cpu": "4", "pods": "110"}), queue("default", "fifo")]


def job(name: str, submit: int, duration: int, cpu: int) -> SimulatedJob:
    length = duration * SECOND
    return SimulatedJob(name, submit * SECOND, length, {"cpu": str(cpu)}, walltime=length)


JOBS = [job("a", 0, 100, 3), job("large", 10, 50, 4), job("long", 20, 200, 1), job("short", 30, 20, 1)]  # fmt: skip


def test_the_first_decision_that_the_other_did_not_make() -> None:
    fit, easy = simulate(Workload(JOBS, CLUSTER), [FIT, EASY])
    found = differences("fit", fit, easy)
    assert found.first_of_other == Decision(20, "bind", "long", "long-0", "n1")
    assert found.first is None, "easy leaves the room for the large one"
    assert (found.sooner, found.later, found.same, found.evictions) == (2, 1, 1, 0)
    assert found.most == [Moved("long", 150, 20), Moved("large", 100, 220), Moved("short", 30, 100)]
    assert found.mean_change == (130 - 120 - 70) / 4
    assert list(sentences("easy", found))[:2] == [
        "easy against fit: of the jobs 2 start sooner, 1 later, 1 at the same time, -15 s in the mean.",
        "  They part at 20 s: easy leaves things as they are, fit binds long-0 to n1.",
    ]


def test_two_runs_of_one_policy_never_part() -> None:
    one, two = simulate(Workload(JOBS, CLUSTER), [EASY, EASY])
    found = differences("easy", one, two)
    assert (found.first, found.first_of_other, found.same, found.most) == (None, None, 4, [])
    assert list(sentences("again", found))[-1] == "  They decide the same."


def test_it_is_part_of_the_json_and_the_table() -> None:
    runs = simulate(Workload(JOBS, CLUSTER), [FIT, EASY], until=60 * SECOND)
    outcomes = [outcome(name, run) for name, run in zip(("fit", "easy"), runs)]
    outcomes[1].differences = differences("fit", *runs)
    first, second = json.loads(report.as_json(outcomes))
    assert "differences" not in first
    assert second["differences"]["most"][0] == {"job": "long", "started": None, "instead_of": 20}
    assert "  long never starts instead of at 20 s.\n" in report.table(outcomes)


DEED = st.tuples(st.integers(0, 3), st.sampled_from("be"), st.integers(0, 2), st.integers(0, 1))


@settings(deadline=None)
@given(st.lists(DEED, max_size=8), st.lists(DEED, max_size=8))
def test_runs_part_where_the_sets_of_decisions_of_a_moment_first_differ(
    left: list[tuple[int, str, int, int]], right: list[tuple[int, str, int, int]]
) -> None:
    owner = JobRun(SimulatedJob("j", 0, 1, {}))

    def made(of: list[tuple[int, str, int, int]]) -> Run:
        acts = [
            Act(
                moment * SECOND, "bind" if what == "b" else "evict", owner, f"x/{pod}", f"n{on}", {}
            )
            for moment, what, pod, on in sorted(of, key=lambda one: one[0])
        ]
        return Run([owner], acts=acts)

    first = next(
        (at for at in range(4) if {o for o in left if o[0] == at} != {o for o in right if o[0] == at}),
        None,
    )  # fmt: skip
    here, there = parting(made(left), made(right))
    moments = {one.moment for one in (here, there) if one is not None}
    assert moments == (set() if first is None else {first})
    assert math.isnan(differences("x", made(left), made(right)).mean_change)
