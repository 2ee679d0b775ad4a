"""The agent's features: which a process was told to support, and which a configuration turns on
(reference: agent 2.1, 4.2)."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from hekla.agent.configuration import ColocationConfig, ConfigurationError


class Feature(StrEnum):
    CPU_QOS = "CPUQoS"
    CPU_BURST = "CPUBurst"
    CPU_THROTTLE = "CPUThrottle"
    MEMORY_QOS = "MemoryQoS"
    MEMORY_QOS_V2 = "MemoryQoSV2"
    NETWORK_QOS = "NetworkQoS"
    OVERSUBSCRIPTION = "OverSubscription"
    EVICTION = "Eviction"
    RESOURCES = "Resources"


DEFAULT = (Feature.OVERSUBSCRIPTION, Feature.EVICTION, Feature.RESOURCES)
SECTIONS = {
    Feature.CPU_QOS: ("cpu_qos_config", "nil cpu qos config"),
    Feature.CPU_BURST: ("cpu_burst_config", "nil cpu burst config"),
    Feature.MEMORY_QOS: ("memory_qos_config", "nil memory qos config"),
    Feature.MEMORY_QOS_V2: ("memory_qos_v2_config", "nil memory qos v2 config"),
    Feature.NETWORK_QOS: ("network_qos_config", "nil network qos config"),
    Feature.OVERSUBSCRIPTION: ("over_subscription_config", "nil overSubscription config"),
    Feature.CPU_THROTTLE: ("cpu_throttling_config", "nil cpuThrottling config"),
}
"""Feature -> its section of the configuration, and the error where that is not set."""
OFFERED_ONLY = frozenset({Feature.OVERSUBSCRIPTION, Feature.CPU_THROTTLE})
"""Features of nodes that are oversubscribed; colocation is not enough for them."""


def supported(names: Collection[str]) -> frozenset[Feature]:
    """The features that a list such as `*,-CPUQoS` names: of X and -X the first decides, `*` is
    everything else."""
    found = set()
    for feature in Feature:
        decided = next((one for one in names if one in (feature, f"-{feature}")), None)
        if decided == feature or (decided is None and "*" in names):
            found.add(feature)
    return frozenset(found)


def problem(names: Collection[str]) -> str | None:
    """The check of --supported-features: names that are no feature."""
    known = {"*", *Feature, *(f"-{feature}" for feature in Feature)}
    for name in names:
        if name not in known:
            return f"{name!r} is no feature; known are {', '.join(Feature)}, each also as -X, and *"
    return None


def wanted(feature: Feature, config: ColocationConfig) -> bool:
    """Whether the configuration turns a feature on.  Raises ConfigurationError."""
    if feature not in SECTIONS:
        return True
    labels = config.node_label_config
    if labels is None:
        raise ConfigurationError("nil node label config")
    offered = bool(labels.node_over_subscription_enable)
    takes_part = offered or (feature not in OFFERED_ONLY and bool(labels.node_colocation_enable))
    name, missing = SECTIONS[feature]
    section = getattr(config, name)
    if section is None or section.enable is None:
        raise ConfigurationError(missing)
    return takes_part and bool(section.enable)


def unsupported(feature: Feature) -> str:
    """What is said of a feature that is turned on and that the process was not told to support."""
    return f"unsupported feature: feature({feature}) is not supported by volcano-agent"
