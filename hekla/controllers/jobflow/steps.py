"""How the steps of a flow stand to each other: which may start, which never will, and which
failures are taken care of.

The original knows one relation: a step starts when its targets have completed.  `when` adds steps
for failures and for every end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hekla.api import batch, flow, names
from hekla.api.batch import JobPhase
from hekla.api.flow import When

BROKEN = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})


class Stand(Enum):
    """What has become of a step."""

    WAITS = "waits"
    WORKS = "works"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It never starts: what it waits for cannot come any more."""


_ENDS = frozenset({Stand.COMPLETED, Stand.FAILED, Stand.SKIPPED})


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one flow, each with its stand."""

    stands: Mapping[str, Stand]
    again: frozenset[str]
    """Steps whose job has failed and is made once more."""
    forgiven: frozenset[str]
    """Steps whose failure another step waits for."""

    @property
    def needed(self) -> int:
        """How many steps have to complete for the flow to succeed."""
        return sum(
            stand is not Stand.SKIPPED and name not in self.forgiven
            for name, stand in self.stands.items()
        )


def steps_of(owner: flow.JobFlow, jobs: Mapping[str, batch.Job]) -> Steps:
    """`jobs` by the name of their step."""
    again = frozenset(
        step.name
        for step in owner.spec.flows
        if step.retries and _to_be_made_again(step, jobs.get(step.name))
    )
    stands = {step.name: _own(step, jobs.get(step.name), again) for step in owner.spec.flows}
    for _ in (
        owner.spec.flows
    ):  # what is skipped may skip what follows; a chain is no longer than the list
        skipped = [
            step.name
            for step in owner.spec.flows
            if stands[step.name] is Stand.WAITS and _hopeless(step, stands)
        ]
        if not skipped:
            break
        stands.update((name, Stand.SKIPPED) for name in skipped)
    takers = [
        step.depends_on for step in owner.spec.flows if step.when in (When.FAILED, When.ENDED)
    ]
    answers = {target for waits in takers if waits is not None for target in waits.targets}
    forgiven = frozenset(
        name for name, stand in stands.items() if stand is Stand.FAILED and name in answers
    )
    return Steps(stands, again, forgiven)


def attempt_of(job: batch.Job) -> int:
    """Which attempt at its step a job is, from 1."""
    text = job.metadata.annotations.get(names.JOB_FLOW_ATTEMPT, "")
    return int(text) if text.isascii() and text.isdigit() else 1


def may_start(step: flow.Flow, stands: Mapping[str, Stand]) -> bool:
    """Whether what a step waits for has come; probes are another matter."""
    targets = _targets(step, stands)
    if step.when == When.ENDED:
        return all(stand in _ENDS for stand in targets)
    if step.when == When.FAILED and targets:
        return Stand.FAILED in targets and all(stand in _ENDS for stand in targets)
    return all(stand is Stand.COMPLETED for stand in targets)


def _hopeless(step: flow.Flow, stands: Mapping[str, Stand]) -> bool:
    targets = _targets(step, stands)
    if step.when == When.ENDED or not targets:
        return False
    if step.when == When.FAILED:
        return Stand.FAILED not in targets and all(stand in _ENDS for stand in targets)
    return any(stand in (Stand.FAILED, Stand.SKIPPED) for stand in targets)


def _targets(step: flow.Flow, stands: Mapping[str, Stand]) -> list[Stand]:
    """A target that is no step of the flow is waited for without end, as in the original."""
    return (
        [stands.get(target, Stand.WAITS) for target in step.depends_on.targets]
        if step.depends_on
        else []
    )


def _to_be_made_again(step: flow.Flow, job: batch.Job | None) -> bool:
    return job is not None and job.status.state.phase in BROKEN and attempt_of(job) <= step.retries


def _own(step: flow.Flow, job: batch.Job | None, again: frozenset[str]) -> Stand:
    if job is None:
        return Stand.WAITS
    phase = job.status.state.phase
    if phase == JobPhase.COMPLETED:
        return Stand.COMPLETED
    return Stand.FAILED if phase in BROKEN and step.name not in again else Stand.WORKS
