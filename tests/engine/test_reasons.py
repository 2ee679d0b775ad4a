"""The texts that pods and groups carry, word for word as dashboards know them.  Reference:
scheduler-core 4.6, 10.11."""

from __future__ import annotations

import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.explain.upstream_texts import job_text, scheduling_reason
from hekla.engine.model.reasons import FitErrors, Reason
from hekla.engine.model.tasks import Status
from hekla.engine.world import World, policy

NODES = FitErrors(
    3, [Reason("node(s) resource fit failed", 2), Reason("node(s) pod number exceeded", 1)]
)
TEXT = "0/3 nodes are unavailable: 1 node(s) pod number exceeded, 2 node(s) resource fit failed."


def core(number: int) -> pytest.MarkDecorator:
    return pytest.mark.scenario("scheduler-core", number)


@core(128)
def test_nodes_by_reason() -> None:
    assert NODES.text == TEXT


@core(129)
def test_a_gang_of_which_half_could_be_placed() -> None:
    here = World(policy(plugins=["gang"]), default_queue=True)
    here.nodes("node1", cpu=8)
    here.job("pg1", pods=0, min_available=6, namespace="ns1")
    for number in range(1, 7):
        here.pod(f"task-{number}", job="pg1", namespace="ns1", cpu=1)
    open_session(here.state, hooks_of(here.state, here.policy), here.now)
    job = here.state.jobs["ns1/pg1"]
    for number in (1, 2, 3):
        job.tasks[f"ns1/task-{number}"].last = (Status.ALLOCATED, 0, False)
    job.fit_errors = {"ns1/task-6": NODES}
    text = f"pod group is not ready, 6 Pending, 6 minAvailable; Pending: 3 Schedulable, 3 Unschedulable. Origin reason is task-6: {TEXT}"
    assert job_text(job) == text
    told = {
        name: scheduling_reason(job.tasks[f"ns1/task-{name}"], here.state.nodes, text)
        for name in (3, 4, 6)
    }
    assert told[3] == (
        "Schedulable",
        "Pod ns1/task-3 can possibly be assigned to node1, once minAvailable is satisfied",
        "",
    )
    assert told[4] == ("Unschedulable", text, "")
    assert told[6] == ("Unschedulable", TEXT, "")


@core(130)
def test_one_error_for_all_nodes() -> None:
    """A reason that holds without looking at any node is counted for each."""
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes("n1", "n2", cpu=8)
    here.job(
        "lost",
        cpu=1,
        spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}]},
    )
    here.run()
    (condition,) = [one for one in here.decisions.conditions if one.pod == "default/lost-task-0"]
    what = '"nowhere" not found'
    assert (
        condition.message
        == f"0/2 nodes are unavailable: 2 plugin VolumeBinding pre-predicates failed persistentvolumeclaim {what}."
    )
