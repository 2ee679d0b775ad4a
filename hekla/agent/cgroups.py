"""The node's cgroups: which version and driver, where a pod's directory is, and the one table of
files that the features use (reference: agent 5).

A write reads first and writes only what differs, so that applying a pod's settings again costs a
few reads.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from hekla.agent.machine import Machine
from hekla.agent.pods import BEST_EFFORT, BURSTABLE, Pod, container_id

log = logging.getLogger(__name__)

PAGE = os.sysconf("SC_PAGE_SIZE")
PERIOD = 100_000
"""Microseconds of a CPU period."""
LEAST_QUOTA = 1000
UNLIMITED = -1


class Version(StrEnum):
    V1 = "v1"
    V2 = "v2"


class Driver(StrEnum):
    SYSTEMD = "systemd"
    CGROUPFS = "cgroupfs"


class File(NamedTuple):
    """A file of a cgroup directory: its controller on v1, and its name on each version ("" where
    that version has none)."""

    controller: str
    v1: str
    v2: str


# The files of each feature.
CPU_QOS = File("cpu", "cpu.qos_level", "cpu.qos_level")
CPU_IDLE = File("cpu", "cpu.idle", "cpu.idle")
CPU_SHARE = File("cpu", "cpu.shares", "cpu.weight")
CPU_QUOTA = File("cpu", "cpu.cfs_quota_us", "cpu.max")
CPU_BURST = File("cpu", "cpu.cfs_burst_us", "cpu.max.burst")
MEMORY_QOS = File("memory", "memory.qos_level", "memory.qos_level")
MEMORY_LIMIT = File("memory", "memory.limit_in_bytes", "memory.max")
MEMORY_SOFT = File("memory", "memory.soft_limit_in_bytes", "")
MEMORY_HIGH = File("memory", "", "memory.high")
MEMORY_LOW = File("memory", "", "memory.low")
MEMORY_MIN = File("memory", "", "memory.min")
CLASS_ID = File("net_cls", "net_cls.classid", "net_cls.classid")
CPU_USAGE = File("cpuacct", "cpuacct.usage", "cpu.stat")
MEMORY_STAT = File("memory", "memory.stat", "memory.stat")
PROCESSES = File("cpu", "cgroup.procs", "cgroup.procs")


class Write(NamedTuple):
    """What a file should say."""

    path: Path
    value: str
    off: str | None = None
    """What it says without the feature; None: the feature leaves no trace that matters."""
    required: bool = False
    """Whether a missing file is an error; otherwise it is skipped, and said once."""
    restores: bool = False
    """Whether the value is the file's original, which need not be remembered when it is written."""


class CgroupError(Exception):
    """A file could not be read or written; the text says which and why."""


class Missing(CgroupError):
    """A file is not there, or its directory is being removed."""


@dataclass
class Cgroups:
    """The cgroup file system of the node."""

    version: Version
    driver: Driver
    root: Path
    """Such as /sys/fs/cgroup."""
    kube_root: tuple[str, ...] = ()
    """The kubelet's option cgroup-root, element by element."""
    _said: set[str] = field(default_factory=set)

    # where things are

    def qos_root(self, qos_class: str = "") -> str:
        """The directory of a QoS class; of Guaranteed pods and of all pods it is that of kubepods."""
        return self._directory(*_class(qos_class))

    def pod(self, pod: Pod) -> str:
        """A pod's directory, below the root (on v1: of each controller)."""
        return self._directory(*_class(pod.status.qos_class), f"pod{pod.metadata.uid}")

    def container(self, pod: Pod, container: str) -> str:
        """A container's directory; while its id is not known, the pod's."""
        runtime, identity = container_id(pod, container)
        if not identity:
            return self.pod(pod)
        prefix = SCOPES.get(runtime) if self.driver is Driver.SYSTEMD else None
        name = f"{prefix}-{identity}.scope" if prefix else identity
        return f"{self.pod(pod)}/{name}"

    def _directory(self, *elements: str) -> str:
        names = (*self.kube_root, "kubepods", *elements)
        if self.driver is Driver.CGROUPFS:
            return "/".join(names)
        names = tuple(name.replace("-", "_") for name in names)
        return "/".join(f"{'-'.join(names[: end + 1])}.slice" for end in range(len(names)))

    def has(self, file: File) -> bool:
        """Whether this version has the file at all."""
        return bool(file.v2 if self.version is Version.V2 else file.v1)

    def path(self, directory: str, file: File) -> Path:
        """The file in a directory.  Raises ValueError where this version has none."""
        if not self.has(file):
            raise ValueError(f"cgroup {self.version} has no {file.v1 or file.v2}")
        if self.version is Version.V2:
            return self.root / directory / file.v2
        return self.root / file.controller / directory / file.v1

    def below(self, directory: str, file: File) -> Iterator[str]:
        """All directories below one, the file's hierarchy being asked; sorted."""
        top = self.path(directory, file).parent
        for parent, names, _ in os.walk(top):
            names.sort()
            yield from (str(Path(directory, Path(parent, name).relative_to(top))) for name in names)

    def there(self, directory: str, file: File) -> bool:
        return self.has(file) and self.path(directory, file).exists()

    # reading and writing

    def read(self, directory: str, file: File) -> str:
        """The text without its newline.  Raises CgroupError."""
        return read(self.path(directory, file))

    def quota(self, directory: str) -> int:
        """Microseconds a period, -1 without limit.  Raises CgroupError."""
        word = self.read(directory, CPU_QUOTA).partition(" ")[0]
        if word == "max":
            return UNLIMITED
        try:
            return int(word)
        except ValueError:
            path = self.path(directory, CPU_QUOTA)
            raise CgroupError(f"{path}: {word!r} is no quota in microseconds") from None

    def quota_text(self, quota: int) -> str:
        """A quota as its file wants it; one below the kernel's least is raised to it."""
        if quota < 0:
            return "max" if self.version is Version.V2 else str(UNLIMITED)
        limited = max(quota, LEAST_QUOTA)
        return f"{limited} {PERIOD}" if self.version is Version.V2 else str(limited)

    def share(self, milli: int) -> int:
        """The CPU share of so many millicores."""
        if self.version is Version.V2:
            return min(max(milli // 10, 1), 10_000)
        return min(max(milli * 1024 // 1000, 2), 262_144)

    def apply(self, writes: Iterable[Write]) -> int:
        """Write what differs, all of it decided before the first is written; returns how many files
        were.  Raises CgroupError when all were tried."""
        written, problems = 0, []
        for write in list(writes):
            try:
                now = read(write.path)
                if not same(write.path, now, write.value):
                    _put(write.path, write.value)
                    written += 1
                    log.debug("%s: %s, was %s", write.path, write.value, now)
            except Missing as error:
                if write.required:
                    problems.append(str(error))
                else:
                    self.say_once(write.path.name, "%s; it is skipped", error)
            except CgroupError as error:
                problems.append(str(error))
        if problems:
            raise CgroupError("; ".join(problems))
        return written

    def say_once(self, subject: str, text: str, *values: object) -> None:
        """Log something the first time only; it would be said for every pod otherwise."""
        if subject not in self._said:
            self._said.add(subject)
            log.warning(text, *values)


SCOPES = {"containerd": "cri-containerd", "docker": "docker", "cri-o": "crio"}
"""Runtime -> how the name of a container's scope begins."""
GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
"""What reading and writing a file of a directory that is being removed gives."""


def _class(qos_class: str) -> tuple[str, ...]:
    return {BEST_EFFORT: ("besteffort",), BURSTABLE: ("burstable",)}.get(qos_class, ())


def taken_back(writes: Iterable[Write]) -> Iterator[Write]:
    """The writes that take back what these have written, and nothing that somebody else has changed
    since."""
    for write in writes:
        try:
            if write.off is not None and same(write.path, read(write.path), write.value):
                yield Write(write.path, write.off)
        except CgroupError:
            continue  # what cannot be read is not taken back: the pod is going


def read(path: Path) -> str:
    """A file's text without its newline.  Raises CgroupError, Missing where it is not there."""
    try:
        return path.read_text().rstrip("\n")
    except OSError as error:
        raise _problem(path, error) from None


def _put(path: Path, value: str) -> None:
    try:
        # not write_text: a file that vanishes must not be made, and the kernel wants one write
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _problem(path, error, f'"{value}" is not taken: ') from None


def _problem(path: Path, error: OSError, what: str = "") -> CgroupError:
    if error.errno in GONE:
        return Missing(f"{path} is not there")
    return CgroupError(f"{path}: {what}{error.strerror}")


def same(path: Path, now: str, value: str) -> bool:
    """Whether a file says this already.  The kernel adds the period to a quota, counts memory in whole
    pages, and has its own number for no limit."""
    if now == value:
        return True
    words, wanted = now.split(), value.split()
    if path.name == CPU_QUOTA.v2:
        return words == wanted or (words[:1] == wanted[:1] == ["max"])
    if path.name.startswith("memory.") and len(words) == len(wanted) == 1:
        if wanted[0] == str(UNLIMITED):
            return words[0].isdigit() and int(words[0]) >= 1 << 62
        if words[0].isdigit() and wanted[0].isdigit():
            return int(words[0]) == int(wanted[0]) // PAGE * PAGE
    return False


# what the machine has

DRIVER_LINE = re.compile(r"^\s*cgroupDriver:\s*[\"']?(\w+)", re.MULTILINE)
DRIVER_FLAG = re.compile(r"--cgroup-driver[= ](\w+)")


def find(machine: Machine, kube_root: str = "") -> Cgroups:
    """The cgroups of this machine."""
    return Cgroups(
        version_of(machine),
        driver_of(machine),
        machine.cgroup,
        tuple(part for part in kube_root.split("/") if part),
    )


def version_of(machine: Machine) -> Version:
    """By the file system that is mounted; v1 where that cannot be asked."""
    match machine.cgroup_version:
        case "v1" | "1":
            return Version.V1
        case "v2" | "2":
            return Version.V2
    return Version.V2 if (machine.cgroup / "cgroup.controllers").exists() else Version.V1


def driver_of(machine: Machine) -> Driver:
    """The first that says it: the environment, the kubelet's files, its process, the directories."""
    for word in _told(machine):
        if word in tuple(Driver):
            return Driver(word)
    root = machine.cgroup
    unified = root / "unified"
    for path, driver in (
        (root / "system.slice", Driver.SYSTEMD),
        (root / "systemd", Driver.SYSTEMD),
        (root / "cpu", Driver.CGROUPFS),
        (root / "cgroup.controllers", Driver.CGROUPFS),
        (unified / "system.slice", Driver.SYSTEMD),
    ):
        if path.exists():
            return driver
    return Driver.CGROUPFS


def _told(machine: Machine) -> Iterator[str]:
    """What the environment, the kubelet's files and its process say, each asked when its turn comes."""
    yield machine.cgroup_driver
    for file in (
        machine.kubelet_root / "config.yaml",
        machine.etc_kubernetes / "kubelet.conf",
        machine.kubelet_root / "kubeadm-flags.env",
    ):
        yield _stated(_text(file))
    yield _of_process(machine.proc)


def _of_process(proc: Path) -> str:
    """What the running kubelet was told: by its flag, or by the file that --config names."""
    for comm in sorted(proc.glob("[0-9]*/comm")):
        if _text(comm).strip() == "kubelet":
            words = _text(comm.with_name("cmdline")).replace("\0", " ")
            if stated := _stated(words):
                return stated
            if config := re.search(r"--config[= ](\S+)", words):
                return _stated(_text(Path(config[1])))
    return ""


def _stated(text: str) -> str:
    found = DRIVER_LINE.search(text) or DRIVER_FLAG.search(text)
    return found[1] if found else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
