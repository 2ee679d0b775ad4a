"""The configuration of the sharding controller: a ConfigMap's YAML, or flags where there is none
(reference: controllers 11.2).

A document is accepted or refused as a whole.  Unlike in the original, an unknown policy is refused
here, too: there it gives its scheduler, and all after it, every node that is left (its bug 49).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from hekla.api.text import yamltext
from hekla.api.text.durations import seconds
from hekla.controllers.sharding.policies import Chain, NodeLimit, policy_named

KEY = "sharding.yaml"
DEFAULT_FLAGS = ("volcano:volcano:0.0:0.6:false:2:100", "agent-scheduler:agent:0.7:1.0:true:2:100")
FALLBACK_PERIOD = 120.0
"""Seconds between two reconciles where no period is configured."""
_WORDS = {"inf": 1.0, "infinity": 1.0, "-inf": 0.0, "-infinity": 0.0}
_YES_NO = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """One policy of a chain, as it is written."""

    name: str
    weight: float
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """One scheduler and how its nodes are chosen."""

    name: str
    type: str
    policies: tuple[PolicyConfig, ...]

    def chain(self) -> Chain:
        """Raises ValueError for policies that do not exist or arguments that they refuse."""
        return Chain(
            [(policy_named(each.name)(each.arguments), each.weight) for each in self.policies]
        )


@dataclass(frozen=True, slots=True)
class ShardingConfig:
    """A whole configuration; `period` is in seconds."""

    schedulers: tuple[SchedulerConfig, ...]
    period: float
    node_events: bool

    def chains(self) -> dict[str, Chain]:
        return {scheduler.name: scheduler.chain() for scheduler in self.schedulers}


def read(text: str, period: float, node_events: bool) -> ShardingConfig:
    """Read a document; `period` and `node_events` are the defaults for one that does not set them.
    Raises ValueError."""
    try:
        tree = yamltext.load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{KEY} is no YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{KEY} has to be a mapping with schedulerConfigs")
    given = tree.get("schedulerConfigs") or []
    if not isinstance(given, list) or not given:
        raise ValueError(f"{KEY}: schedulerConfigs needs at least one scheduler")
    schedulers = tuple(_scheduler(each) for each in given)
    if len({scheduler.name for scheduler in schedulers}) != len(schedulers):
        raise ValueError(f"{KEY}: two schedulers have one name")
    if tree.get("shardSyncPeriod"):
        period = seconds(str(tree["shardSyncPeriod"]))
    if tree.get("enableNodeEventTrigger") is not None:
        node_events = bool(tree["enableNodeEventTrigger"])
    config = ShardingConfig(schedulers, period if period > 0 else FALLBACK_PERIOD, node_events)
    config.chains()
    return config


def of_flags(texts: Sequence[str], period: float, node_events: bool) -> ShardingConfig:
    """The configuration of `--scheduler-configs`.  Raises ValueError."""
    schedulers = tuple(_of_flag(text) for text in texts or DEFAULT_FLAGS)
    return ShardingConfig(schedulers, period if period > 0 else FALLBACK_PERIOD, node_events)


def _of_flag(text: str) -> SchedulerConfig:
    parts = text.split(":")
    if len(parts) != 7:
        raise ValueError(
            f"{text!r} has to be name:type:minCPU:maxCPU:preferWarmup:minNodes:maxNodes"
        )
    name, type_, low, high, warm, least, most = parts
    if warm.lower() not in _YES_NO:
        raise ValueError(f"{text!r}: preferWarmup has to be true or false, not {warm!r}")
    # An explicit chain, as in the original: its warm-up preference has no effect there.
    try:
        bounds = {"minCPUUtil": _WORDS.get(low.lower()), "maxCPUUtil": _WORDS.get(high.lower())}
        rate = {
            key: float(part) if value is None else value
            for (key, value), part in zip(bounds.items(), (low, high), strict=True)
        }
        limits = {"minNodes": int(least), "maxNodes": int(most)}
        made = _completed(name, type_, [PolicyConfig("allocation-rate", 1.0, rate)], limits)
        made.chain()
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from None
    return made


def _scheduler(tree: Any) -> SchedulerConfig:
    if not isinstance(tree, dict) or not tree.get("name"):
        raise ValueError(f"{KEY}: a scheduler needs a name")
    name = str(tree["name"])
    try:
        return _of_tree(name, tree)
    except ValueError as error:
        raise ValueError(f"{KEY}: scheduler {name}: {error}") from None


def _of_tree(name: str, tree: Mapping[str, Any]) -> SchedulerConfig:
    low, high = float(tree.get("cpuUtilizationMin") or 0), float(tree.get("cpuUtilizationMax") or 0)
    limits = {
        "minNodes": int(tree.get("minNodes") or 0),
        "maxNodes": int(tree.get("maxNodes") or 0),
    }
    if not 0 <= low <= 1 or not 0 <= high <= 1 or low > high:
        raise ValueError(
            f"cpuUtilizationMin {low:g} and cpuUtilizationMax {high:g} have to be from 0 to 1, in order"
        )
    if limits["minNodes"] < 0 or limits["maxNodes"] < limits["minNodes"]:
        raise ValueError(
            f"minNodes {limits['minNodes']} and maxNodes {limits['maxNodes']} have to be 0 or more, in order"
        )
    policies = [_policy(each) for each in tree.get("policies") or ()]
    if not policies:
        rate = tree.get("arguments") or {"minCPUUtil": low, "maxCPUUtil": high}
        policies = [PolicyConfig("allocation-rate", 1.0, rate)]
        if tree.get("preferWarmupNodes"):
            policies.append(PolicyConfig("warmup", 1.0, {}))
    return _completed(name, str(tree.get("type") or ""), policies, limits)


def _completed(
    name: str, type_: str, policies: list[PolicyConfig], limits: Mapping[str, int]
) -> SchedulerConfig:
    if any(limits.values()) and all(each.name != "node-limit" for each in policies):
        policies = [*policies, PolicyConfig("node-limit", 1.0, dict(limits))]
    return SchedulerConfig(name, type_, tuple(policies))


def _policy(tree: Any) -> PolicyConfig:
    if not isinstance(tree, dict) or not tree.get("name"):
        raise ValueError("a policy needs a name")
    name, weight, arguments = (
        str(tree["name"]),
        float(tree.get("weight") or 0),
        tree.get("arguments") or {},
    )
    if weight < 0:
        raise ValueError(f"the weight of policy {name} has to be 0 or more, not {weight:g}")
    if policy_named(name) is not NodeLimit and {"minNodes", "maxNodes"} & arguments.keys():
        raise ValueError(f"minNodes and maxNodes are arguments of node-limit, not of {name}")
    return PolicyConfig(name, weight or 1.0, arguments)
