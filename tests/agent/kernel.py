"""Directories of our own in this machine's control groups of version 1."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.agent.cgroups import Cgroups, Driver, File, Version
from hekla.agent.features import Feature
from hekla.agent.handlers.context import Context
from hekla.agent.handlers.table import HANDLERS
from hekla.agent.pods import Pod

ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def own_directory(name: str, *controllers: str) -> Iterator[Cgroups]:
    """A directory of pods in each of these hierarchies, which goes with all that is in it.  Skips
    where the machine has none, or lets nobody make any."""
    tops = [ROOT / controller / f"{name}-{os.getpid()}" for controller in controllers]
    try:
        try:
            for top in tops:
                top.mkdir()
                if not any(top.iterdir()):
                    pytest.skip(f"{top.parent} is no hierarchy of cgroup v1")
        except OSError as error:
            pytest.skip(f"no directory can be made in cgroup v1 here: {error}")
        yield Cgroups(Version.V1, Driver.CGROUPFS, ROOT, (tops[0].name,))
    finally:
        for top in tops:
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    Path(directory).rmdir()


class Kernel:
    """A directory of pods of our own in each hierarchy."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups
        self.context = Context(cgroups, active=frozenset({Feature.CPU_QOS}))

    def add(self, pod: Pod) -> Pod:
        for controller in ("cpu", "memory"):
            for container in pod.spec.containers:
                directory = self.cgroups.container(pod, container.name)
                (self.cgroups.root / controller / directory).mkdir(parents=True)
        return pod

    def says(self, pod: Pod, container: str, *files: File) -> tuple[str, ...]:
        directory = self.cgroups.container(pod, container)
        return tuple(self.cgroups.read(directory, file) for file in files)

    def run(self, pod: Pod) -> int:
        """All handlers once; how many files were written."""
        return sum(self.cgroups.apply(each.writes(pod, self.context)) for each in HANDLERS)
