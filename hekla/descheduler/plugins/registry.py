"""Every plugin by the name that policies give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hekla.descheduler.evictions import Steps
from hekla.descheduler.plugins.anti_affinity import anti_affinity
from hekla.descheduler.plugins.duplicates import duplicates
from hekla.descheduler.plugins.fragmentation import fragmentation_aware
from hekla.descheduler.plugins.high_utilization import high_node_utilization
from hekla.descheduler.plugins.low_utilization import load_aware, low_node_utilization
from hekla.descheduler.plugins.pods import (
    failed_pods,
    node_affinity,
    node_taints,
    pod_life_time,
    too_many_restarts,
)
from hekla.descheduler.plugins.scale_down import scale_down_bin_pack
from hekla.descheduler.plugins.spread import topology_spread
from hekla.descheduler.session import Session

Plugin = Callable[[Session, Any], Steps]
"""The arguments are those that the policy's registry has under the same name."""

PLUGINS: Mapping[str, Plugin] = {
    "LoadAware": load_aware,
    "LowNodeUtilization": low_node_utilization,
    "HighNodeUtilization": high_node_utilization,
    "FragmentationAware": fragmentation_aware,
    "ScaleDownBinPack": scale_down_bin_pack,
    "RemoveDuplicates": duplicates,
    "RemovePodsViolatingTopologySpreadConstraint": topology_spread,
    "RemovePodsViolatingNodeAffinity": node_affinity,
    "RemovePodsViolatingNodeTaints": node_taints,
    "RemovePodsViolatingInterPodAntiAffinity": anti_affinity,
    "RemovePodsHavingTooManyRestarts": too_many_restarts,
    "PodLifeTime": pod_life_time,
    "RemoveFailedPods": failed_pods,
}
