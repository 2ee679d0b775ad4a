"""How long jobs run is learned from those that have ended, if backfill is told to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hekla.engine.framework.policy import Choice, Policy, Whole
from hekla.engine.model.decisions import Event
from hekla.engine.model.tasks import Job, Status
from hekla.engine.model.time.runs import KEPT, SAVED, Rules, Runs, runs_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.state import State

STATED, LEARNED = "stated", "learned"
SOURCES = Choice(STATED, (STATED, LEARNED))
QUANTILE = Whole(95, 1, 100)
"""Percent of the runs that a learned walltime covers."""
LEAST = Whole(5, 1, KEPT)
"""Runs from which on it is known."""
MUCH = 1.25
"""A walltime that grew or shrank by less is not told again."""


def rules_of(policy: Policy) -> Rules | None:
    """How the policy wants to learn; None where it does not."""
    stated = policy.configurations.get("backfill", {})
    if stated.get("walltimes", STATED) != LEARNED or "backfill" not in policy.actions:
        return None
    return Rules(stated.get("quantile", QUANTILE) / 100, int(stated.get("leastRuns", LEAST)))


def review_runs(state: State, policy: Policy, now: float) -> None:
    """At the beginning of a cycle: what has ended since the last one, and for whom that says
    something."""
    rules, table = rules_of(policy), state.job_table
    if table.runs is None and rules is None:
        return
    if rules is None:
        table.runs = None
        for job in state.jobs.values():
            job.learned = None
        table.dirty.update(state.jobs)
    elif table.runs is None or table.runs.rules != rules:
        table.runs = _begun(state, rules, table.runs)
        table.dirty.update(state.jobs)
    state.count_changes()
    if table.runs is not None:
        table.dirty.update((job.key, job) for job in table.runs.settle(now))
        state.count_changes()


def _begun(state: State, rules: Rules, before: Runs | None) -> Runs:
    """What a policy learns from that begins to learn, or does so by other rules."""
    runs = Runs(rules)
    if before is not None:
        runs.by_kind, runs.unsaved = before.by_kind, before.unsaved
        return runs
    for tree in state.others.get(SAVED, {}).values():
        for run in runs_of(tree):
            runs.take(run)
    for job in state.jobs.values():
        for task in job.counts.statuses[Status.SUCCEEDED].values():
            runs.finished(job, task)
    return runs


def tell_learned(session: Session, jobs: Iterable[Job]) -> None:
    """Let people know what is reckoned with for their jobs."""
    for job in jobs:
        learned = job.learned
        if learned is None or not job.has_group or job.shadow:
            continue
        if job.told_learned / MUCH < learned.seconds < job.told_learned * MUCH:
            continue
        job.told_learned = learned.seconds
        event = Event("PodGroup", job.key, job.pg_uid, "Normal", "LearnedWalltime", learned.text)
        session.decisions.events.append(event)
