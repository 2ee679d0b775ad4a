"""Processes of this machine, each identified by its pid and its start time.

A pid alone may be reused, and a wall clock may be set: the start time is counted in ticks since the
boot, and named together with the boot.  Whoever ends a process here learns whether it has gone from
the process table and from nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

POLL_INTERVAL = 0.02
"""Seconds between checks of processes that are to end."""
LOOKS, LOOK_SOON = 10, 0.002
"""How often, and after how many seconds each, a process without a command line is read again."""


def boot() -> str:
    """Names this boot of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(psutil.boot_time()))


_BOOT = boot()


def start_of(pid: int) -> str:
    """When a process started, with the boot; empty when it is gone or a zombie."""
    if sys.platform == "linux":
        ticks = ticks_of(pid)
        return f"{ticks}@{_BOOT}" if ticks is not None else ""
    try:
        process = psutil.Process(pid)
        return (
            ""
            if process.status() == psutil.STATUS_ZOMBIE
            else f"{process.create_time():.2f}@{_BOOT}"
        )
    except psutil.Error:
        return ""


def ticks_of(pid: int) -> int | None:
    """The clock ticks from the boot to the start of a process; None when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def age_of(pid: int) -> float | None:
    """For how many seconds a process has run; None when it is gone."""
    if sys.platform != "linux":
        try:
            return max(0.0, time.time() - psutil.Process(pid).create_time())
        except psutil.Error:
            return None
    ticks = ticks_of(pid)
    if ticks is None:
        return None
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


class Process(NamedTuple):
    """One process, and no later one of the same pid."""

    pid: int
    start: str
    """As `start_of` words it."""
    command: tuple[str, ...] = ()

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None when there is none, it is a zombie, or another
        user's whose command is hidden."""
        start = start_of(pid)
        if not start:
            return None
        command = command_of(pid)
        return (
            cls(pid, start, tuple(command))
            if command is not None and start_of(pid) == start
            else None
        )

    def alive(self) -> bool:
        return start_of(self.pid) == self.start

    def send(self, number: int) -> bool:
        """Signals this process and no other; False when it has gone or may not be signalled."""
        try:
            if not hasattr(os, "pidfd_open"):
                if not self.alive():
                    return False
                os.kill(self.pid, number)
                return True
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if self.alive():  # the process behind a pidfd cannot change any more
                signal.pidfd_send_signal(descriptor, number)
                return True
        except OSError:
            pass
        finally:
            os.close(descriptor)
        return False


def command_of(pid: int) -> list[str] | None:
    """The command line of a process; None when it may not be read.  During exec a process has none
    for a moment."""
    for _ in range(LOOKS):
        try:
            if command := psutil.Process(pid).cmdline():
                return command
            os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return []  # a thread of the kernel
        except psutil.Error:
            return None
        time.sleep(LOOK_SOON)
    return []


def processes() -> Iterator[Process]:
    """All processes of the machine whose command lines may be read, this one left out."""
    for pid in psutil.pids():
        if pid != os.getpid() and (found := Process.of(pid)) is not None:
            yield found


def end(
    ending: Iterable[Process],
    patience: float,
    after: float = 5.0,
    said: Callable[[Process], None] = lambda _: None,
) -> list[Process]:
    """End processes with SIGTERM, and after so many seconds with SIGKILL. Gives those that do not
    end even then.  `after` is how long a killed one may take; `said` is told of each that must be
    killed."""
    left = list(ending)
    for process in left:
        process.send(signal.SIGTERM)
        process.send(signal.SIGCONT)  # a stopped process would not receive SIGTERM
    left = await_end(left, patience)
    for process in left:
        said(process)
        process.send(signal.SIGKILL)
    return await_end(left, after)


def await_end(ending: Iterable[Process], patience: float) -> list[Process]:
    """Waits until processes have gone; gives those that have not after so many seconds."""
    deadline = time.monotonic() + patience
    while left := [process for process in ending if process.alive()]:
        if time.monotonic() >= deadline:
            return left
        time.sleep(POLL_INTERVAL)
    return []
