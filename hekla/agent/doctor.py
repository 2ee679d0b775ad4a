"""What this machine allows the agent: for each feature by which file, and where it is not there, why
and what that costs.  `hekla agent doctor` prints it, and the node's condition says it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hekla.agent.cgroups import (
    CPU_BURST,
    CPU_IDLE,
    CPU_QOS,
    CPU_QUOTA,
    CPU_SHARE,
    CPU_USAGE,
    MEMORY_HIGH,
    MEMORY_LIMIT,
    MEMORY_QOS,
    MEMORY_SOFT,
    MEMORY_STAT,
    Cgroups,
    File,
    Version,
)
from hekla.agent.features import Feature
from hekla.agent.machine import Machine
from hekla.agent.network.pod_network import unavailable
from hekla.agent.network.traffic_control import TrafficControl

CONDITION = "ColocationReady"
ALL, SOME, NONE = "EverythingIsThere", "WorksInPart", "NoCgroups"
"""Reasons of the condition."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the agent uses."""

    name: str
    available: bool
    how: str = ""
    """By what it works here."""
    cost: str = ""
    """What does not work without it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way in which a feature works: the files that it needs, and what it is."""

    files: tuple[File, ...]
    how: str


WAYS = {
    Feature.CPU_QOS: (
        Way((CPU_QOS,), "cpu.qos_level"),
        Way(
            (CPU_IDLE, CPU_SHARE),
            "emulated: offline pods have cpu.idle, online ones more weight by level",
        ),
        Way(
            (CPU_SHARE,), "emulated: offline pods have the least weight, online ones more by level"
        ),
    ),
    Feature.CPU_BURST: (Way((CPU_QUOTA, CPU_BURST), "burst of the quota"),),
    Feature.CPU_THROTTLE: (Way((CPU_QUOTA,), "quota of the best-effort directory"),),
    Feature.MEMORY_QOS: (
        Way((MEMORY_QOS,), "memory.qos_level"),
        Way((MEMORY_HIGH,), "emulated: memory.high of offline pods, memory.low of online ones"),
        Way((MEMORY_SOFT,), "emulated: the soft limit of offline pods"),
    ),
    Feature.MEMORY_QOS_V2: (Way((MEMORY_HIGH,), "memory.high, memory.low, memory.min"),),
    Feature.RESOURCES: (Way((CPU_SHARE, CPU_QUOTA, MEMORY_LIMIT), "share, quota and limit"),),
    Feature.OVERSUBSCRIPTION: (Way((CPU_USAGE, MEMORY_STAT), "usage of the pods' directory"),),
}
COSTS = {
    Feature.CPU_QOS: "offline pods run as if they were online ones",
    Feature.CPU_BURST: "quotas are kept in every period; Linux has bursts since 5.14",
    Feature.CPU_THROTTLE: "offline pods take all CPU that is idle",
    Feature.MEMORY_QOS: "offline pods keep their memory as online ones do",
    Feature.MEMORY_QOS_V2: "ratios of ColocationConfigurations are ignored; they need cgroup v2",
    Feature.RESOURCES: "batch resources do not limit those who ask for them",
    Feature.OVERSUBSCRIPTION: "nothing is offered beyond what pods have not asked for",
}


def survey(machine: Machine, cgroups: Cgroups, state: Path, traffic: Finding) -> list[Finding]:
    """Everything that the agent uses.  Nothing is changed."""
    return [
        *_cgroups(cgroups),
        *features(cgroups),
        _pressure(machine),
        traffic,
        _state(state),
    ]


def _cgroups(cgroups: Cgroups) -> Iterator[Finding]:
    what = f"{cgroups.version} at {cgroups.root}, paths as the {cgroups.driver} driver makes them"
    sample = _sample(cgroups, CPU_SHARE)
    writable = sample is not None and os.access(sample, os.W_OK)
    if writable:
        yield Finding("cgroups", True, what)
    else:
        found = f"{sample} cannot be written" if sample else "there are none"
        yield Finding("cgroups", False, f"{what}: {found}", "nothing of a pod can be set")
    root = cgroups.path(cgroups.qos_root(), CPU_SHARE).parent
    yield Finding(
        "directory of pods",
        root.is_dir(),
        str(root),
        "no pod is found there; see --cgroup-driver, --cgroup-root and --kube-cgroup-root",
    )


def features(cgroups: Cgroups) -> list[Finding]:
    """The features that write to cgroups."""
    return [_feature(feature, cgroups) for feature in WAYS]


def _feature(feature: Feature, cgroups: Cgroups) -> Finding:
    for way in WAYS[feature]:
        if all(_sample(cgroups, file) for file in way.files):
            return Finding(feature, True, way.how)
    missing = [
        file.v2 if cgroups.version is Version.V2 else file.v1 or file.v2
        for file in WAYS[feature][-1].files
        if not _sample(cgroups, file)
    ]
    return Finding(feature, False, f"no {', no '.join(missing)}", COSTS[feature])


def _sample(cgroups: Cgroups, file: File) -> Path | None:
    """The file where pods have it, or in another directory of this machine: the root of v2 has few."""
    if not cgroups.has(file):
        return None
    path = cgroups.path("", file)
    beside = sorted(path.parent.glob("*/"))[:1]
    for directory in (cgroups.path(cgroups.qos_root(), file).parent, *beside, path.parent):
        if (directory / path.name).exists():
            return directory / path.name
    return None


def _pressure(machine: Machine) -> Finding:
    there = (machine.pressure / "cpu").exists()
    return Finding(
        "pressure stall information",
        there,
        str(machine.pressure) if there else f"no {machine.pressure}/cpu",
        "offline pods are evicted by usage alone, not by how long others wait",
    )


def traffic() -> Finding:
    """What of the network is there; it is tried, and takes some milliseconds."""
    why = unavailable(TrafficControl())
    return Finding(
        Feature.NETWORK_QOS,
        not why,
        why or "tc: offline pods share one HTB class",
        "offline pods send as much as they can",
    )


def _state(directory: Path) -> Finding:
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return Finding(
        "state directory",
        os.access(there, os.W_OK),
        str(directory),
        "CPU shares from before the agent are forgotten when it is killed",
    )


def condition(findings: Iterable[Finding]) -> dict[str, str]:
    """The node's condition: type, status, reason and message."""
    listed = list(findings)
    missing = [one for one in listed if not one.available]
    usable = all(one.available for one in listed if one.name == "cgroups")
    told = missing or [one for one in listed if one.how.startswith("emulated")]
    return {
        "type": CONDITION,
        "status": "True" if usable else "False",
        "reason": NONE if not usable else SOME if missing else ALL,
        "message": "; ".join(
            f"{one.name}: {one.how}" + (f": {one.cost}" if not one.available else "")
            for one in told
        ),
    }


def printed(findings: Iterable[Finding]) -> str:
    """One line a finding."""
    return "\n".join(
        f"  {'ok     ' if one.available else 'without'}  {one.name:<28} {one.how}"
        + ("" if one.available else f": {one.cost}")
        for one in findings
    )
