"""Processes on this machine: which they are, stopped for a while and continued."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status
from hekla.local.kubelet.runtime.runtime import children_of


def pid_of(made: Cluster, program: str) -> int:
    """Of a program that the cluster's supervisor keeps."""
    status = read_status(made)
    assert status is not None
    return next(process.pid for process in status.processes if process.name == program)


def family(head: int) -> list[int]:
    """A process and those that came from it."""
    found = [head]
    for pid in found:
        found += children_of(pid)
    return found


def tell(pids: Iterable[int], number: int) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def stopped(*pids: int) -> Iterator[None]:
    """As if these processes were not there."""
    tell(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        tell(pids, signal.SIGCONT)
