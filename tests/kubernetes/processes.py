"""Programs of a test that run beside it: started in order, ended in reverse, and never left behind."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

PARENT_DEATH = 1
"""PR_SET_PDEATHSIG of <sys/prctl.h>."""


class NotStarted(Exception):
    """A program ended or was not ready in time; the text has the end of its log."""


class Processes:
    """The programs and their logs, one file each in a directory."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(
        self, name: str, command: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        with self.logs.joinpath(f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )
        self._running.append((name, process))

    def wait(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Returns once `ready` says so.  Raises NotStarted when the program ended, or the time has
        passed."""
        process = next(process for known, process in self._running if known == name)
        deadline = time.monotonic() + seconds
        while not ready():
            if process.poll() is not None:
                raise NotStarted(
                    f"{name} ended with {process.returncode}:\n{self.end_of_log(name)}"
                )
            if time.monotonic() > deadline:
                raise NotStarted(
                    f"{name} is not ready after {seconds:.0f} s:\n{self.end_of_log(name)}"
                )
            time.sleep(0.05)

    def pid(self, name: str) -> int:
        """Of a program that runs."""
        return next(process.pid for known, process in self._running if known == name)

    def end_of_log(self, name: str) -> str:
        return self.logs.joinpath(f"{name}.log").read_text(errors="replace")[-3000:]

    def dead(self) -> list[str]:
        """The programs that have ended by themselves."""
        return [
            f"{name} ({process.returncode})"
            for name, process in self._running
            if process.poll() is not None
        ]

    def cpu_seconds(self) -> dict[str, float]:
        """What each program has used so far, its threads and the children that have ended included."""
        used = {}
        for name, process in self._running:
            times = psutil.Process(process.pid).cpu_times()
            used[name] = times.user + times.system + times.children_user + times.children_system
        return used

    def stop(self) -> None:
        self.end(*(name for name, _ in self._running))

    def end(self, *names: str) -> None:
        """Ends these programs, the last started first."""
        for named in reversed([one for one in self._running if one[0] in names]):
            self._running.remove(named)
            _, process = named
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_with_parent() -> None:
    # A test run that is killed takes its servers with it; where the system has no such call they
    # are left to the user.
    try:
        ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    except (OSError, AttributeError):
        pass
