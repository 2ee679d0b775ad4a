"""How many pods of an application may be missing at once."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Condition, LabelSelector, Object, Struct, always
from hekla.api.schema import Int32, Int64, IntOrString, Time


class PodDisruptionBudgetSpec(Struct):
    min_available: IntOrString | None = None
    selector: LabelSelector | None = None
    max_unavailable: IntOrString | None = None
    unhealthy_pod_eviction_policy: str = ""


class PodDisruptionBudgetStatus(Struct):
    observed_generation: Int64 = 0
    disrupted_pods: dict[str, Time] = {}
    disruptions_allowed: Int32 = always(0)
    current_healthy: Int32 = always(0)
    desired_healthy: Int32 = always(0)
    expected_pods: Int32 = always(0)
    conditions: list[Condition] = []


class PodDisruptionBudget(Object):
    api_version: str = always("policy/v1")
    kind: str = always("PodDisruptionBudget")
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


POD_DISRUPTION_BUDGET = kind_of(PodDisruptionBudget, "poddisruptionbudgets")
