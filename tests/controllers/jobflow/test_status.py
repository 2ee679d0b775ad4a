"""What the jobs of a flow come to."""

import pytest

from hekla.api import batch, flow, names
from hekla.api.meta import ObjectMeta
from hekla.api.text.times import stamp
from hekla.controllers.jobflow.controller import flow_of, job_body
from hekla.controllers.jobflow.status import next_phase, status_of
from hekla.kube.workqueue import WorkQueue


def a_flow(*steps: str, name: str = "f") -> flow.JobFlow:
    spec = flow.JobFlowSpec(flows=[flow.Flow(name=step) for step in steps])
    return flow.JobFlow(metadata=ObjectMeta(name=name, namespace="default", uid="u"), spec=spec)


def a_job(name: str, phase: str, owner: str = "f", **status: object) -> batch.Job:
    metadata = ObjectMeta(
        name=name,
        namespace="default",
        creation_timestamp=stamp(1000),
        labels={names.CREATED_BY_JOB_FLOW: f"default.{owner}"},
    )
    return batch.Job(
        metadata=metadata, status=batch.JobStatus(state=batch.JobState(phase=phase), **status)
    )


@pytest.mark.scenario("controllers", 101)
@pytest.mark.parametrize(
    ("phase", "listed", "following"),
    [
        ("Completed", "completed_jobs", "Running"),
        ("Running", "running_jobs", "Running"),
        ("Failed", "failed_jobs", "Failed"),
        ("Terminated", "terminated_jobs", "Failed"),
        ("Pending", "pending_jobs", "Pending"),
        ("Restarting", "un_know_jobs", "Pending"),
        ("", "un_know_jobs", "Pending"),
    ],
)
def test_one_job(phase: str, listed: str, following: str) -> None:
    status = status_of(a_flow("a", "b"), [a_job("f-a", phase)], 2000)
    assert getattr(status, listed) == ["f-a"]
    assert next_phase("", status, 2) == following


def test_a_job_on_its_way_to_an_end_is_in_no_list() -> None:
    for phase in ("Completing", "Terminating"):
        status = status_of(a_flow("a"), [a_job("f-a", phase)], 2000)
        lists = (
            status.pending_jobs,
            status.running_jobs,
            status.completed_jobs,
            status.terminated_jobs,
            status.un_know_jobs,
        )
        assert not any(lists) and status.conditions["f-a"].phase == phase


@pytest.mark.scenario("controllers", 102)
def test_a_running_flow_ends() -> None:
    done = flow.JobFlowStatus(completed_jobs=["a", "b"])
    assert next_phase("Running", done, 2) == "Succeed"
    assert next_phase("Running", done, 3) == "Running"
    assert (
        next_phase("Running", flow.JobFlowStatus(completed_jobs=["a"], failed_jobs=["b"]), 3)
        == "Failed"
    )
    assert next_phase("Running", flow.JobFlowStatus(terminated_jobs=["b"]), 3) == "Failed"
    assert next_phase("Succeed", flow.JobFlowStatus(failed_jobs=["b"]), 3) == "Succeed"
    with pytest.raises(ValueError, match="state Odd is invalid"):
        next_phase("Odd", done, 2)


@pytest.mark.scenario("controllers", 103)
def test_a_job_belongs_to_the_flow_of_its_label() -> None:
    assert flow_of(a_job("x", "Running", owner="a")) == "default/a"
    assert flow_of(batch.Job()) is None


@pytest.mark.scenario("controllers", 104)
@pytest.mark.scenario("controllers", 105)
def test_the_history_of_each_job() -> None:
    owner = a_flow("a", "b")
    jobs = [
        a_job("f-a", "Completed", retry_count=1, running_duration="1s"),
        a_job("f-b", "Running"),
    ]
    owner.status = status_of(owner, jobs, 2000)
    first, second = owner.status.job_status_list
    assert owner.status.completed_jobs == ["f-a"] and owner.status.running_jobs == ["f-b"]
    assert (first.end_timestamp, first.restart_count, second.end_timestamp) == (stamp(1001), 1, "")
    assert [len(entry.running_histories) for entry in (first, second)] == [1, 1]

    again = status_of(owner, jobs, 3000)
    assert again == owner.status, "nothing has changed"
    jobs[1].status.state.phase = "Completed"
    changed = status_of(owner, jobs, 3000).job_status_list[1].running_histories
    assert [(h.state, h.start_timestamp, h.end_timestamp) for h in changed] == [
        ("Running", stamp(2000), stamp(3000)),
        ("Completed", stamp(3000), ""),
    ]


@pytest.mark.scenario("controllers", 106)
def test_the_job_of_a_step() -> None:
    template = flow.JobTemplate(
        metadata=ObjectMeta(name="a", namespace="default"),
        spec=batch.JobSpec(queue="q", min_available=2),
    )
    step = flow.Flow(name="a", patch=flow.Patch(job_spec=batch.JobSpec(min_available=3)))
    body = job_body(a_flow("a"), step, template)
    marks = {
        "volcano.sh/createdByJobTemplate": "default.a",
        "volcano.sh/createdByJobFlow": "default.f",
    }
    assert body["metadata"]["name"] == "f-a"
    assert body["metadata"]["labels"] == body["metadata"]["annotations"] == marks
    assert (
        body["metadata"]["ownerReferences"][0]["kind"] == "JobFlow"
        and body["metadata"]["ownerReferences"][0]["controller"]
    )
    assert body["spec"] == {"queue": "q", "minAvailable": 3}


@pytest.mark.scenario("controllers", 107)
async def test_equal_wishes_are_one() -> None:
    queue = WorkQueue("flows")
    for key in ("default/a", "default/a", "default/b", "other/a"):
        queue.add(key)
    assert [await queue.get() for _ in range(len(queue))] == ["default/a", "default/b", "other/a"]
