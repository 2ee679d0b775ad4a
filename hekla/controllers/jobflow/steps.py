"""The order of a flow's steps: which may start, which never will, and which failures are handled by
another step.

The original has one relation: a step starts when its targets have completed.  `when` adds steps for
failures and for every end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hekla.api import batch, flow, names
from hekla.api.batch import JobPhase
from hekla.api.flow import When

BROKEN = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})


class StepState(Enum):
    """The state of a step."""

    WAITS = "waits"
    WORKS = "works"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It never starts: what it waits for can no longer happen."""


_ENDS = frozenset({StepState.COMPLETED, StepState.FAILED, StepState.SKIPPED})


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one flow, each with its state."""

    states: Mapping[str, StepState]
    again: frozenset[str]
    """Steps whose job has failed and is created once more."""
    forgiven: frozenset[str]
    """Steps whose failure another step waits for."""

    @property
    def needed(self) -> int:
        """How many steps have to complete for the flow to succeed."""
        return sum(
            state is not StepState.SKIPPED and name not in self.forgiven
            for name, state in self.states.items()
        )


def steps_of(owner: flow.JobFlow, jobs: Mapping[str, batch.Job]) -> Steps:
    """`jobs` by the name of their step."""
    again = frozenset(
        step.name
        for step in owner.spec.flows
        if step.retries and _to_be_made_again(step, jobs.get(step.name))
    )
    states = {step.name: _own(step, jobs.get(step.name), again) for step in owner.spec.flows}
    # A skipped step may cause further ones to be skipped; a chain is no longer than the list.
    for _ in owner.spec.flows:
        skipped = [
            step.name
            for step in owner.spec.flows
            if states[step.name] is StepState.WAITS and _hopeless(step, states)
        ]
        if not skipped:
            break
        states.update((name, StepState.SKIPPED) for name in skipped)
    takers = [
        step.depends_on for step in owner.spec.flows if step.when in (When.FAILED, When.ENDED)
    ]
    answers = {target for waits in takers if waits is not None for target in waits.targets}
    forgiven = frozenset(
        name for name, state in states.items() if state is StepState.FAILED and name in answers
    )
    return Steps(states, again, forgiven)


def attempt_of(job: batch.Job) -> int:
    """Which attempt at its step a job is, from 1."""
    text = job.metadata.annotations.get(names.JOB_FLOW_ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() else 1


def may_start(step: flow.Flow, states: Mapping[str, StepState]) -> bool:
    """Whether the targets of a step are reached; probes are checked elsewhere."""
    targets = _targets(step, states)
    if step.when == When.ENDED:
        return all(state in _ENDS for state in targets)
    if step.when == When.FAILED and targets:
        return StepState.FAILED in targets and all(state in _ENDS for state in targets)
    return all(state is StepState.COMPLETED for state in targets)


def _hopeless(step: flow.Flow, states: Mapping[str, StepState]) -> bool:
    targets = _targets(step, states)
    if step.when == When.ENDED or not targets:
        return False
    if step.when == When.FAILED:
        return StepState.FAILED not in targets and all(state in _ENDS for state in targets)
    return any(state in (StepState.FAILED, StepState.SKIPPED) for state in targets)


def _targets(step: flow.Flow, states: Mapping[str, StepState]) -> list[StepState]:
    """The targets of a step.  One that is no step of the flow is waited for without end, as in the
    original."""
    return (
        [states.get(target, StepState.WAITS) for target in step.depends_on.targets]
        if step.depends_on
        else []
    )


def _to_be_made_again(step: flow.Flow, job: batch.Job | None) -> bool:
    return job is not None and job.status.state.phase in BROKEN and attempt_of(job) <= step.retries


def _own(step: flow.Flow, job: batch.Job | None, again: frozenset[str]) -> StepState:
    if job is None:
        return StepState.WAITS
    phase = job.status.state.phase
    if phase == JobPhase.COMPLETED:
        return StepState.COMPLETED
    return StepState.FAILED if phase in BROKEN and step.name not in again else StepState.WORKS
