"""Policies of the former format, turned into the present one: each enabled strategy becomes a profile
of its own.

Reference: descheduler 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hekla.descheduler.policy.arguments import nearest
from hekla.descheduler.policy.policy import LOAD_AWARE, PolicyError

Tree = Mapping[str, Any]

STRATEGIES = {
    "RemoveDuplicates": "balance",
    "LowNodeUtilization": "balance",
    "HighNodeUtilization": "balance",
    "RemovePodsViolatingTopologySpreadConstraint": "balance",
    "RemovePodsViolatingNodeAffinity": "deschedule",
    "RemovePodsViolatingNodeTaints": "deschedule",
    "RemovePodsViolatingInterPodAntiAffinity": "deschedule",
    "RemovePodsHavingTooManyRestarts": "deschedule",
    "PodLifeTime": "deschedule",
    "RemoveFailedPods": "deschedule",
}
TOP = ("apiVersion", "kind", "nodeSelector", "evictLocalStoragePods", "evictSystemCriticalPods", "evictFailedBarePods",
       "ignorePvcPods", "maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace", "strategies")  # fmt: skip
EVICTOR_SWITCHES = (
    "evictLocalStoragePods",
    "evictSystemCriticalPods",
    "evictFailedBarePods",
    "ignorePvcPods",
)
NESTED = {
    "LowNodeUtilization": "nodeResourceUtilizationThresholds",
    "HighNodeUtilization": "nodeResourceUtilizationThresholds",
    "RemovePodsHavingTooManyRestarts": "podsHavingTooManyRestarts",
    "PodLifeTime": "podLifeTime",
    "RemoveDuplicates": "removeDuplicates",
    "RemoveFailedPods": "failedPods",
}
"""The parameter that holds a strategy's own arguments."""
NAMESPACED = ("LowNodeUtilization", "HighNodeUtilization")
"""Strategies whose namespaces are those that may be evicted from."""
ALL_PARAMETERS = ("nodeResourceUtilizationThresholds", "nodeAffinityType", "podsHavingTooManyRestarts", "podLifeTime",
                  "removeDuplicates", "failedPods", "includeSoftConstraints", "namespaces", "thresholdPriority",
                  "thresholdPriorityClassName", "labelSelector", "nodeFit", "includePreferNoSchedule",
                  "excludedTaints")  # fmt: skip


def converted(tree: Tree) -> Tree:
    """The same policy as v1alpha2.  Raises PolicyError."""
    problems = [
        f"{key}: there is no such key; {nearest(str(key), TOP)}" for key in tree if key not in TOP
    ]
    strategies = tree.get("strategies") or {}
    if not isinstance(strategies, Mapping):
        raise PolicyError(["strategies: a mapping from name to {enabled, params}"])
    profiles = []
    for name, strategy in strategies.items():
        if name not in STRATEGIES:
            more = (
                "it came with v1alpha2"
                if name == LOAD_AWARE
                else nearest(str(name), list(STRATEGIES))
            )
            problems.append(f"unknown strategy name: {name}; {more}")
        elif not isinstance(strategy, Mapping):
            problems.append(f"strategies.{name}: a mapping with enabled and params")
        elif strategy.get("enabled"):
            parameters = strategy.get("params") or {}
            problems += [
                f"strategies.{name}.params.{key}: there is no such key; {nearest(str(key), ALL_PARAMETERS)}"
                for key in parameters
                if key not in ALL_PARAMETERS
            ]
            if parameters.get("thresholdPriority") is not None and parameters.get(
                "thresholdPriorityClassName"
            ):
                problems.append(f"priority threshold misconfigured for plugin {name}")
            profiles.append(_profile(name, parameters, tree))
    if problems:
        raise PolicyError(problems)
    limits = ("nodeSelector", "maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace")
    return {
        "apiVersion": tree["apiVersion"],
        "kind": tree["kind"],
        "profiles": profiles,
        **{name: tree[name] for name in limits if tree.get(name) is not None},
    }


def _profile(name: str, parameters: Tree, tree: Tree) -> Tree:
    evictor: dict[str, Any] = {
        key: tree[key] for key in EVICTOR_SWITCHES if tree.get(key) is not None
    }
    if parameters.get("nodeFit") and name != "PodLifeTime":
        evictor["nodeFit"] = True
    if parameters.get("thresholdPriority") is not None:
        evictor["priorityThreshold"] = {"value": parameters["thresholdPriority"]}
    elif parameters.get("thresholdPriorityClassName"):
        evictor["priorityThreshold"] = {"name": parameters["thresholdPriorityClassName"]}
    return {
        "name": f"strategy-{name}-profile",
        "pluginConfig": [
            {"name": "DefaultEvictor", "args": evictor},
            {"name": name, "args": _arguments(name, parameters)},
        ],
        "plugins": {STRATEGIES[name]: {"enabled": [name]}},
    }


def _arguments(name: str, parameters: Tree) -> Tree:
    arguments = dict(parameters.get(NESTED.get(name, "")) or {})
    phases = arguments.pop("podStatusPhases", None) if name == "PodLifeTime" else None
    if phases:
        arguments["states"] = [*(arguments.get("states") or ()), *phases]
    own = {
        "RemovePodsViolatingNodeAffinity": ("nodeAffinityType",),
        "RemovePodsViolatingNodeTaints": ("includePreferNoSchedule", "excludedTaints"),
        "RemovePodsViolatingTopologySpreadConstraint": ("includeSoftConstraints",),
    }.get(name, ())
    arguments |= {key: parameters[key] for key in own if parameters.get(key) is not None}
    if parameters.get("namespaces"):
        arguments["evictableNamespaces" if name in NAMESPACED else "namespaces"] = parameters[
            "namespaces"
        ]
    if parameters.get("labelSelector") and name not in (*NAMESPACED, "RemoveDuplicates"):
        arguments["labelSelector"] = parameters["labelSelector"]
    return arguments
