"""Which steps of a flow may start, and what a failure means."""

import pytest

from hekla.api import batch, flow, names
from hekla.api.meta import ObjectMeta
from hekla.controllers.jobflow.patch import filled
from hekla.controllers.jobflow.status import next_phase
from hekla.controllers.jobflow.steps import Steps, StepState, may_start, steps_of


def step(name: str, *targets: str, **more: object) -> flow.Flow:
    return flow.Flow(
        name=name, depends_on=flow.FlowDependsOn(targets=list(targets)) if targets else None, **more
    )  # type: ignore[arg-type]


def stands(*steps: flow.Flow, **jobs: str) -> Steps:
    """Jobs are given as phases; `Failed#2` is a second attempt that failed."""
    owner = flow.JobFlow(metadata=ObjectMeta(name="f"), spec=flow.JobFlowSpec(flows=list(steps)))
    return steps_of(owner, {name: job(text) for name, text in jobs.items()})


def job(text: str) -> batch.Job:
    phase, _, attempt = text.partition("#")
    annotations = {names.JOB_FLOW_ATTEMPT: attempt} if attempt else {}
    return batch.Job(
        metadata=ObjectMeta(annotations=annotations),
        status=batch.JobStatus(state=batch.JobState(phase=phase)),
    )


def test_a_step_waits_for_all_its_targets() -> None:
    last = step("c", "a", "b")
    assert not may_start(
        last, stands(step("a"), step("b"), last, a="Completed", b="Running").states
    )
    assert may_start(last, stands(step("a"), step("b"), last, a="Completed", b="Completed").states)
    assert not may_start(step("c", "nowhere"), stands(step("c", "nowhere")).states)


@pytest.mark.parametrize(
    ("phase", "starts"),
    [("Running", False), ("Failed", True), ("Terminated", True), ("Completed", False)],
)
def test_a_step_for_failures(phase: str, starts: bool) -> None:
    cleanup = step("cleanup", "a", when="Failed")
    found = stands(step("a"), cleanup, a=phase)
    assert may_start(cleanup, found.states) is starts
    assert found.states["cleanup"] is (
        StepState.SKIPPED if phase == "Completed" else StepState.WAITS
    )
    assert found.forgiven == ({"a"} if starts else set())


def test_a_step_for_every_end() -> None:
    report = step("report", "a", "b", when="Ended")
    assert not may_start(
        report, stands(step("a"), step("b"), report, a="Failed", b="Running").states
    )
    assert may_start(report, stands(step("a"), step("b"), report, a="Failed", b="Completed").states)


def test_what_follows_a_failure_is_skipped() -> None:
    found = stands(
        step("a"),
        step("b", "a"),
        step("c", "b"),
        step("report", "a", "c", when="Ended"),
        a="Failed",
    )
    assert [found.states[name] for name in "bc"] == [StepState.SKIPPED, StepState.SKIPPED]
    assert may_start(step("report", "a", "c", when="Ended"), found.states)
    assert found.needed == 1, "the report is what is left of the flow"


def test_a_failed_job_is_made_again_as_often_as_is_said() -> None:
    twice = step("a", retries=2)
    for text, again in (
        ("Failed", True),
        ("Failed#2", True),
        ("Failed#3", False),
        ("Running#2", False),
    ):
        found = stands(twice, a=text)
        assert found.again == ({"a"} if again else set()), text
    assert stands(step("a"), a="Failed").again == set()


def test_failures_that_are_taken_care_of_break_no_flow() -> None:
    failed = flow.JobFlowStatus(failed_jobs=["f-a"])
    assert next_phase("Running", failed, 1) == "Failed"
    assert next_phase("Running", failed, 1, {"f-a"}) == "Running"
    done = flow.JobFlowStatus(failed_jobs=["f-a"], completed_jobs=["f-cleanup"])
    assert next_phase("Running", done, 1, {"f-a"}) == "Succeed"


def test_parameters_stand_in_texts() -> None:
    tree = {
        "args": ["--data=$(input)", "$(HOSTNAME)"],
        "replicas": 2,
        "env": [{"value": "$(input)/$(part)"}],
    }
    made = {"args": ["--data=/data", "$(HOSTNAME)"], "replicas": 2, "env": [{"value": "/data/7"}]}
    assert filled(tree, {"input": "/data", "part": "7"}) == made
