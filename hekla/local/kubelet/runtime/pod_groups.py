"""The control groups of pods, in the tree that every kubelet makes, so that whoever isolates pods
on a node of Kubernetes finds them here too.

    kubepods                        Guaranteed pods, and the two classes below
    kubepods/burstable
    kubepods/besteffort
    .../pod<uid>/<container id>     what the pod may take together, and each of its containers

What is written is what a kubelet writes: shares of requests, quotas and memory of limits.  A pod's
groups are written when they are made and when it is resized, and not otherwise: values that somebody
else has written since, such as a colocation agent, stay.  Nothing here must outlive the process: the
tree is found again by the pods' uids.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hekla.api.kubernetes import core
from hekla.api.text import quantity
from hekla.local.kubelet.pods import admit
from hekla.local.kubelet.records import container_digest
from hekla.local.kubelet.runtime import cgroups
from hekla.local.kubelet.runtime.cgroups import CONTROLLERS, Base

log = logging.getLogger("kubelet.runtime")

QOS = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}
"""QoS class of a pod -> the directory below kubepods that holds its group."""
CPU_PERIOD = 100_000
"""The period of a cpu limit, in microseconds."""
LEAST_SHARES, MOST_SHARES = 2, 262144
LEAST_QUOTA = 1000
SPARED = -997
"""The score of a Guaranteed pod when memory is short."""
SYSTEM_CRITICAL = 2_000_000_000
REMOVAL_ATTEMPTS, REMOVAL_RETRY_INTERVAL = 100, 0.1
"""Seconds between attempts to remove a group."""


@dataclass(frozen=True, slots=True)
class Values:
    """What a group is given; 0 for no limit."""

    shares: int
    quota: int = 0
    """Microseconds of processor time in each period."""
    memory: int = 0
    """Bytes."""

    def files(self, version: int) -> dict[str, dict[str, str]]:
        """Controller -> file -> content."""
        cpu, memory = {}, {}
        if version == 2:
            cpu["cpu.weight"] = str(1 + (self.shares - LEAST_SHARES) * 9999 // 262142)
            cpu["cpu.max"] = f"{self.quota or 'max'} {CPU_PERIOD}"
            if self.memory:
                memory["memory.max"] = str(self.memory)
        else:
            cpu["cpu.shares"] = str(self.shares)
            if self.quota:
                cpu["cpu.cfs_period_us"] = str(CPU_PERIOD)
                cpu["cpu.cfs_quota_us"] = str(self.quota)
            if self.memory:
                memory["memory.limit_in_bytes"] = str(self.memory)
        return {"cpu": cpu, "memory": memory}


NOTHING = Values(LEAST_SHARES)
"""Of the class BestEffort as a whole."""


def shares_of(millis: int) -> int:
    """The shares of so many millicores."""
    return min(MOST_SHARES, max(LEAST_SHARES, millis * 1024 // 1000))


def quota_of(millis: int) -> int:
    """The microseconds of each period for a limit of so many millicores; 0 for none."""
    return max(LEAST_QUOTA, millis * CPU_PERIOD // 1000) if millis else 0


def of_container(container: core.Container) -> Values:
    """A request that is not written is as large as the limit."""
    limits, asked = container.resources.limits, container.resources.requests
    limit = quantity.milli(limits["cpu"]) if "cpu" in limits else 0
    request = quantity.milli(asked["cpu"]) if "cpu" in asked else limit
    memory = quantity.whole(limits["memory"]) if "memory" in limits else 0
    return Values(shares_of(request), quota_of(limit), memory)


def sized(container: core.Container) -> bool:
    """Whether a container has a request or a limit that a group can hold it to."""
    resources = container.resources
    return any(name in resources.limits or name in resources.requests for name in CONTROLLERS)


def of_pod(pod: core.Pod) -> Values:
    """Of all containers together; there is a limit only where each of them has one."""
    limits = admit.limits(pod)
    bound = {
        resource: limits.get(resource, 0)
        for resource in ("cpu", "memory")
        if all(resource in one.resources.limits for one in pod.spec.containers)
    }
    shares = shares_of(admit.requests(pod).get("cpu", 0))
    return Values(shares, quota_of(bound.get("cpu", 0)), bound.get("memory", 0))


def oom_score(pod: core.Pod, container: core.Container, memory: int) -> int:
    """How soon the kernel kills a container when memory is short: Guaranteed pods and those that
    the system needs last, the others the sooner the less of the machine's memory they request."""
    if pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL:
        return SPARED
    match pod.status.qos_class:
        case "Guaranteed":
            return SPARED
        case "Burstable":
            asked = container.resources.requests.get("memory", 0)
            part = 1000 * quantity.whole(asked) // memory
            return min(999, max(1000 + SPARED, 1000 - part))
        case _:
            return 1000


class PodGroups:
    """The groups of a kubelet's pods."""

    def __init__(self, version: int, places: Mapping[str, Path], every: bool = True) -> None:
        self.version = version
        self._every = every
        self._places = places
        """By controller, the directory `kubepods`."""
        self._directories = tuple(dict.fromkeys(places.values()))
        self._pods: dict[str, str] = {}
        """By uid, the pod's directory below `kubepods`."""
        self._burstable: dict[str, int] = {}
        """By uid of a Burstable pod, the millicores that it requests."""

    @classmethod
    def prepare(cls, base: Base, root: Path, cores: int, every: bool) -> PodGroups | None:
        """Make the groups of the QoS classes; None if the kernel refuses.  What an earlier kubelet
        of this directory has left and no process needs is removed.

        Without `every`, only containers with requests or limits are given groups: making and
        removing them is felt in how many pods start in a second."""
        try:
            cgroups.prepare(base, root)
            tops = base.tree(root)
            made = cls(base.version, {name: top / "kubepods" for name, top in tops.items()}, every)
            machine = Values(shares_of(1000 * cores))
            for top in made._directories:
                cgroups.clear(top)
            for below, values in ("", machine), ("burstable", None), ("besteffort", NOTHING):
                if made._make(below) and values is not None:
                    made._write(below, values)
            made._write("..", machine)  # else all pods together weigh no more than one processor
        except OSError as error:
            log.warning("pods have no control groups: %s", error)
            return None
        return made

    def adopt(self, pod: core.Pod) -> str:
        """Take a pod into account; gives its directory below `kubepods`."""
        uid = pod.metadata.uid
        qos = pod.status.qos_class or "BestEffort"
        place = self._pods[uid] = os.path.join(QOS[qos], f"pod{uid}")
        if qos == "Burstable":
            asked = admit.requests(pod).get("cpu", 0)
            if self._burstable.get(uid) != asked:
                self._burstable[uid] = asked
                self._share_burstable()
        return place

    def make(self, pod: core.Pod, container: core.Container, attempt: int) -> str:
        """Make the groups of a container, and those of its pod; gives their paths joined by ":", ""
        if it needs none or the kernel refuses."""
        if not self._every and not sized(container):
            return ""
        digest = container_digest(pod.metadata.uid, container.name, attempt)
        try:
            place = self.adopt(pod)
            if self._make(place):
                self._write(place, of_pod(pod))
            group = os.path.join(place, digest)
            self._make(group, leaf=True)
            self._write_container(group, container)
        except OSError:
            return ""
        return ":".join(str(directory / group) for directory in self._directories)

    def change(
        self, pod: core.Pod, container: core.Container, attempt: int, pids: Iterable[int]
    ) -> str:
        """Change the limits of a running container, which has these processes, and of its pod; gives
        why the kernel refuses, "" if it does not."""
        if not self.of(pod.metadata.uid, container.name, attempt):
            return self._enclose(self.make(pod, container, attempt), pids)
        try:
            place = self.adopt(pod)
            whole = of_pod(pod)
            # a container may not have more than its pod, not even for a moment
            self._write(place, Values(whole.shares, 0, whole.memory), lift=True)
            digest = container_digest(pod.metadata.uid, container.name, attempt)
            self._write_container(os.path.join(place, digest), container)
            self._write(place, whole)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _enclose(self, made: str, pids: Iterable[int]) -> str:
        """Put a container that had no groups into those that were made; gives why the kernel
        refuses."""
        try:
            for group in made.split(":") if made else ():
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        (Path(group) / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            return error.strerror or str(error)
        return "" if made else "no control group can be made for it"

    def of(self, uid: str, container: str, attempt: int) -> tuple[Path, ...]:
        """The groups of a container that there are, for those who measure it."""
        digest = container_digest(uid, container, attempt)
        groups = (place / digest for place in self._of_pod(uid))
        return tuple(group for group in groups if group.is_dir())

    def out_of_memory(self, uid: str, container: str, attempt: int) -> bool:
        """Whether the kernel killed a process of the container because it was out of memory."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        place = self._places["memory"] / self._pods.get(uid, "")
        try:
            text = (place / container_digest(uid, container, attempt) / file).read_text()
        except OSError:
            return False
        return any(
            line.startswith("oom_kill ") and line.split()[1] != "0" for line in text.splitlines()
        )

    def forget(self, uid: str, container: str, attempt: int) -> None:
        """Remove the groups of a container that has ended, once the kernel has released its last
        process.  Needs a running event loop."""
        digest = container_digest(uid, container, attempt)
        for place in self._of_pod(uid):
            _remove(place / digest, REMOVAL_ATTEMPTS)

    def forget_pod(self, uid: str) -> None:
        """Remove the groups of a pod that has ended, with those of its containers.  The next kubelet
        removes those that are left after `REMOVAL_ATTEMPTS`.  Needs a running event loop."""
        for place in self._of_pod(uid):
            _remove(place, REMOVAL_ATTEMPTS)
        self._pods.pop(uid, None)
        if self._burstable.pop(uid, None) is not None:
            self._share_burstable()

    def forget_orphan(self, uid: str) -> None:
        """Remove the groups of a pod that no kubelet has taken up since it was started, wherever they
        are.  Needs a running event loop."""
        for directory in self._directories:
            for below in QOS.values():
                _remove(directory / below / f"pod{uid}", REMOVAL_ATTEMPTS)

    def _of_pod(self, uid: str) -> list[Path]:
        """The groups of a pod that was taken into account; none of another."""
        place = self._pods.get(uid)
        return [] if place is None else [directory / place for directory in self._directories]

    def _share_burstable(self) -> None:
        """Give the class what its pods request, unless the kernel refuses: it is no pod's fault."""
        with contextlib.suppress(OSError):
            self._write("burstable", Values(shares_of(sum(self._burstable.values()))))

    def _make(self, place: str, leaf: bool = False) -> bool:
        """Make a group in every hierarchy, one that others are in unless it is a leaf; False if it
        was there."""
        made = False
        for directory in self._directories:
            group = directory / place
            if not group.is_dir():
                group.mkdir()
                made = True
                if self.version == 2 and not leaf:
                    cgroups.give_on(group)
        return made

    def _write(self, place: str, values: Values, lift: bool = False) -> None:
        """Give a group its values; `lift` takes a limit of cpu away that is not among them."""
        for controller, files in values.files(self.version).items():
            if lift and controller == "cpu" and self.version == 1:
                files = {**files, "cpu.cfs_quota_us": "-1"}
            for name, content in files.items():
                (self._places[controller] / place / name).write_text(content)

    def _write_container(self, place: str, container: core.Container) -> None:
        """Give a container's group its values.  When it is out of memory all its processes are killed,
        which version 1 cannot do."""
        self._write(place, of_container(container))
        if self.version == 2:
            (self._places["memory"] / place / "memory.oom.group").write_text("1")


def _remove(group: Path, tries: int) -> None:
    if _is_removed(group):
        return
    cgroups.clear(group)
    if not _is_removed(group) and tries > 1:
        asyncio.get_running_loop().call_later(REMOVAL_RETRY_INTERVAL, _remove, group, tries - 1)


def _is_removed(group: Path) -> bool:
    """Remove a group that has neither processes nor groups below it; gives whether it is gone."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
