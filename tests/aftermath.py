"""Ends what a test session has left running, also when the session itself was killed.

The clusters of the tests are made to outlive whoever started them, so nothing would ever end those
of a session that got SIGKILL: its fixtures do not run any more.  Therefore a session gives its
children a mark, and starts this file as a process that waits for the session's end, at the end of a
pipe.  A child is known by the mark in its environment; a container, which has an environment of its
own, by its shim above it.  Interfaces, mounts and namespaces go with the last process in them;
the kubelets' control groups are swept.

    python -m tests.aftermath <mark>        and standard input as the pipe
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from hekla.local.kubelet.runtime import cgroups

MARK = "HEKLA_TEST_SESSION"
ROOT = Path(__file__).parents[1]
PATIENCE = 20.0
"""Seconds for which processes are looked for again: one that was just being started is not seen at
once."""


def begin() -> subprocess.Popen[bytes] | None:
    """Marks this process's children from now on; None inside another session, which ends what this
    one leaves too."""
    if MARK in os.environ:
        return None
    mark = f"{os.getpid()}-{time.time_ns():x}"
    # Started before the mark is set, so that it does not find itself.
    waiting = subprocess.Popen(
        [sys.executable, "-m", "tests.aftermath", mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        cwd=ROOT,
    )
    os.environ[MARK] = mark
    return waiting


def end(waiting: subprocess.Popen[bytes]) -> None:
    """The session is over: returns when what it left is gone, or will not go."""
    assert waiting.stdin is not None
    waiting.stdin.close()
    # What cannot be killed is no verdict on the tests.
    with contextlib.suppress(subprocess.TimeoutExpired):
        waiting.wait(2 * PATIENCE)
    del os.environ[MARK]


def left(mark: str) -> list[psutil.Process]:
    """The marked processes, and those that they have started."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):  # ended meanwhile, or another user's
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found[process.pid] = process
                found |= {child.pid: child for child in process.children(recursive=True)}
    return list(found.values())


def roots(processes: list[psutil.Process]) -> set[Path]:
    """The directories of the kubelets among the processes."""
    flag = "--root-dir="
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found |= {
                Path(word.removeprefix(flag)) for word in process.cmdline() if word.startswith(flag)
            }
    return found


def sweep(mark: str) -> int:
    """Kills until nothing is left; how many there were."""
    deadline = time.monotonic() + PATIENCE
    ended: set[int] = set()
    kubelets: set[Path] = set()
    while (processes := left(mark)) and time.monotonic() < deadline:
        kubelets |= roots(processes)
        for process in processes:  # nobody starts another any more while they are ended
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGSTOP)
        for process in left(mark):
            ended.add(process.pid)
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.1)
    for root in kubelets:
        cgroups.sweep(root)
    return len(ended)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(sys.argv[1])
