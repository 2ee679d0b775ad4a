"""A policy that was read and checked, whatever format it was written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from hekla.api.selectors import EVERYTHING, LabelSelector
from hekla.descheduler.policy import arguments as of
from hekla.descheduler.policy.arguments import Arguments, DefaultEvictorArguments
from hekla.descheduler.returns import STANDARD, BackOff

DESCHEDULE, BALANCE, FILTER, PRE_EVICTION = "deschedule", "balance", "filter", "preEvictionFilter"


class PolicyError(ValueError):
    """The policy cannot be used; `problems` says why, one each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


class Registered(NamedTuple):
    """A plugin that a policy may name: its arguments, and where it may be enabled."""

    arguments: type[Arguments]
    points: tuple[str, ...]


EVICTOR, LOAD_AWARE = "DefaultEvictor", "LoadAware"
REGISTRY: Mapping[str, Registered] = {
    EVICTOR: Registered(DefaultEvictorArguments, (FILTER, PRE_EVICTION)),
    LOAD_AWARE: Registered(of.LoadAwareArguments, (BALANCE, PRE_EVICTION)),
    "LowNodeUtilization": Registered(of.LowNodeUtilizationArguments, (BALANCE,)),
    "HighNodeUtilization": Registered(of.HighNodeUtilizationArguments, (BALANCE,)),
    "FragmentationAware": Registered(of.FragmentationAwareArguments, (BALANCE,)),
    "ScaleDownBinPack": Registered(of.ScaleDownBinPackArguments, (BALANCE,)),
    "RemoveDuplicates": Registered(of.RemoveDuplicatesArguments, (BALANCE,)),
    "RemovePodsViolatingTopologySpreadConstraint": Registered(of.TopologySpreadArguments, (BALANCE,)),
    "RemovePodsViolatingNodeAffinity": Registered(of.NodeAffinityArguments, (DESCHEDULE,)),
    "RemovePodsViolatingNodeTaints": Registered(of.NodeTaintsArguments, (DESCHEDULE,)),
    "RemovePodsViolatingInterPodAntiAffinity": Registered(of.InterPodAntiAffinityArguments, (DESCHEDULE,)),
    "RemovePodsHavingTooManyRestarts": Registered(of.TooManyRestartsArguments, (DESCHEDULE,)),
    "PodLifeTime": Registered(of.PodLifeTimeArguments, (DESCHEDULE,)),
    "RemoveFailedPods": Registered(of.FailedPodsArguments, (DESCHEDULE,)),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of plugins and their arguments, with one evictor."""

    name: str
    evictor: DefaultEvictorArguments
    deschedule: tuple[str, ...] = ()
    balance: tuple[str, ...] = ()
    arguments: Mapping[str, Arguments] = field(default_factory=dict)

    def load_aware(self) -> of.LoadAwareArguments | None:
        """The arguments of LoadAware where it is enabled."""
        found = self.arguments[LOAD_AWARE] if LOAD_AWARE in self.balance else None
        assert found is None or isinstance(found, of.LoadAwareArguments)
        return found


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do in each cycle."""

    profiles: tuple[Profile, ...]
    nodes: LabelSelector = EVERYTHING
    most_per_node: int | None = None
    most_per_namespace: int | None = None
    most: int | None = None
    most_per_owner: int | None = None
    grace: int | None = None
    """Seconds that evicted pods have to end; None for what they say themselves."""
    tell_failures: bool = False
    """Pods whose eviction failed have an event that says why."""
    back_off: BackOff = STANDARD

    @property
    def asks_scheduler(self) -> bool:
        """Whether a profile wants to know of the scheduler where pods would land."""
        return any(profile.evictor.asks_scheduler for profile in self.profiles)
