"""Which plugins count what is used over time, so that it has to outlive the scheduler: fairshare, and
the budgets of party-limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hekla.api.trees import Json
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.engine.plugins.fairness import budgets, fairshare
from hekla.engine.plugins.fairness.fairshare import FairShareArguments
from hekla.engine.plugins.fairness.limits import PartyLimitsArguments


@dataclass(frozen=True, slots=True)
class Place:
    """Where it is written down: in a file, else in a ConfigMap."""

    namespace: str
    """Empty: the namespace of what daemons write for each other."""
    config_map: str
    file: str
    seconds: float
    """Between two writes."""

    def __str__(self) -> str:
        return self.file or f"ConfigMap {self.namespace}/{self.config_map}"


@dataclass(frozen=True, slots=True)
class KeptUsage:
    """What one plugin counts."""

    plugin: str
    saved: str
    """As which kind of object the state is told what was written down."""
    place: Callable[[Policy], Place | None]
    """None where the policy keeps nothing."""
    written: Callable[[State], Json | None]
    """What is to be written down: `lastCycle`, and what was counted until then; None before
    anything was."""
    counted: str
    """As what that stands in it."""


def _fairshare_place(policy: Policy) -> Place | None:
    for one in policy.arguments_of("fairshare"):
        if isinstance(one, FairShareArguments) and (one.persist or one.state_file):
            seconds = float(one.flush_interval)
            return Place(one.state_namespace, one.state_config_map, one.state_file, seconds)
    return None


def _fairshare_written(state: State) -> Json | None:
    usage = state.job_table.usage
    return None if usage is None or not usage.at else fairshare.written(usage)


def _budgets_place(policy: Policy) -> Place | None:
    for one in policy.arguments_of("party-limits"):
        if isinstance(one, PartyLimitsArguments) and one.has_budgets:
            where = one.usage
            return Place(where.namespace, where.config_map, where.file, float(where.seconds))
    return None


def _budgets_written(state: State) -> Json | None:
    spending = state.job_table.spending
    return None if spending is None or not spending.at else budgets.written(spending)


KEPT = (
    KeptUsage("fairshare", fairshare.SAVED, _fairshare_place, _fairshare_written, "queues"),
    KeptUsage("party-limits", budgets.SAVED, _budgets_place, _budgets_written, "used"),
)
