"""Keeps the processes of a local cluster running: starts them, writes down their state, restarts
those that crash.

One small process for each cluster, detached from the terminal that started it.  It knows nothing of
Kubernetes: a program is ready when it says so on the datagram socket named by NOTIFY_SOCKET
(systemd's convention, so the same daemons run under systemd too). The supervisor itself can be
killed at any moment: the next one finds what the last one left in the process table and ends it
before it starts its own.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec

from hekla.local.cluster.cluster import Cluster, Program, refusal
from hekla.local.cluster.members import PATIENCE, SUPERVISOR, end_daemons, members, name_of
from hekla.local.machine import homes
from hekla.local.machine.files import ClusterError, write_atomically
from hekla.local.machine.processes import Process, await_end, start_of

log = logging.getLogger("supervisor")

FIRST_BACK_OFF = 0.2
LONGEST_BACK_OFF = 10.0
STEADY_AFTER = 10.0
"""Seconds that a process must have run for its next crash to count as the first."""
WRITE_AGAIN = 1.0
LOOKS = 2.0
"""Seconds for which the lock may be held by those who only look whether it is free."""


class ProcessStatus(msgspec.Struct, rename="camel"):
    """The state of one process of the cluster, as `hekla status --json` shows it."""

    name: str
    pid: int
    ready: bool
    log: str
    restarts: int = 0
    start: str = ""
    """When this instance was started, in the process table's form."""
    last_exit: str = ""
    """How the previous instance ended."""


class Status(msgspec.Struct, rename="camel"):
    """What status.json holds."""

    supervisor: int
    processes: list[ProcessStatus]
    start: str = ""
    """When the supervisor was started, in the process table's form."""


def read_status(cluster: Cluster) -> Status | None:
    """The status that the supervisor wrote last; None unless it still runs, because the status of a
    dead one says nothing about now."""
    status = last_status(cluster)
    return status if status is not None and start_of(status.supervisor) == status.start else None


def last_status(cluster: Cluster) -> Status | None:
    """The status that a supervisor wrote last, whether it still runs or not; None when there is
    none or it cannot be read."""
    try:
        return msgspec.json.decode(cluster.status_file.read_bytes(), type=Status)
    except (OSError, msgspec.MsgspecError):
        return None


def running(cluster: Cluster) -> int | None:
    """The pid of the cluster's supervisor, None when none is running: only a living one holds the
    lock.

    -1 for one that has just taken it and not said yet who it is.
    """
    try:
        descriptor = os.open(cluster.lock_file, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        content = os.pread(descriptor, 32, 0).strip()
        pid = int(content) if content.isdigit() else 0
        if (named := Process.of(pid)) is not None and name_of(cluster, named.command) == SUPERVISOR:
            return pid
        return next(
            (member.process.pid for member in members(cluster) if member.name == SUPERVISOR), -1
        )
    finally:
        os.close(descriptor)
    return None


class Child:
    """One program and the instance of it that runs now."""

    def __init__(self, program: Program, log_file: Path) -> None:
        self.program = program
        self.log_file = log_file
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.once_ready = False
        self.restarts = 0
        self.since = 0.0
        """Monotonic time of the last start."""
        self.started = ""
        self.last_exit = ""
        self.back_off = FIRST_BACK_OFF
        self.start_at = 0.0
        """Monotonic time of the next start, while no instance runs."""

    def start(self, notify_socket: Path) -> None:
        """Start an instance whose output is appended to the log.  Where the system refuses, plan
        the next attempt."""
        environment = dict(
            os.environ,
            NOTIFY_SOCKET=str(notify_socket),
            PYTHONUNBUFFERED="1",
            **dict(self.program.environment),
        )
        self.ready = False
        self.since = time.monotonic()
        self.started = ""
        try:
            with open_log(self.log_file) as output:
                self.process = subprocess.Popen(
                    self.program.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                    cwd="/",
                )
            self.started = start_of(self.process.pid)
        except OSError as error:
            self.again(time.monotonic(), f"no start: {refusal(error)}")

    def ended(self, now: float) -> bool:
        """Whether the instance has ended since the last look; plans the next start."""
        if self.process is None or self.process.poll() is None:
            return False
        code = self.process.returncode
        self.again(now, f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}")
        return True

    def again(self, now: float, why: str) -> None:
        """Plan the next start.  After each early crash the delay doubles."""
        steady = now - self.since > STEADY_AFTER
        self.last_exit = why
        self.back_off = FIRST_BACK_OFF if steady else min(self.back_off * 2, LONGEST_BACK_OFF)
        self.start_at = now + self.back_off
        self.process = None
        self.ready = False
        self.restarts += 1

    def status(self) -> ProcessStatus:
        return ProcessStatus(
            self.program.name,
            self.process.pid if self.process else 0,
            self.ready,
            str(self.log_file),
            self.restarts,
            self.started,
            self.last_exit,
        )


class Supervisor:
    """The loop over all children; `run` returns when it was told to stop and everything has ended.

    `claims` are descriptors that hold the cluster's ports for it (see `hekla up`), also while the
    server of one is being started again: somebody who looked for a free port at that moment would
    take it, and the server could not come back.
    """

    def __init__(
        self, cluster: Cluster, programs: Iterable[Program], claims: Iterable[int] = ()
    ) -> None:
        self.cluster = cluster
        self.claims = list(claims)
        self.children = [
            Child(program, cluster.logs / f"{program.name}.log") for program in programs
        ]
        self.notify_path = cluster.socket.with_name(f"{cluster.socket.stem}.notify")
        self.stopping = False
        self.write_again: float | None = None
        """Monotonic time at which a status that could not be written is written again."""

    def run(self) -> int:
        """Supervises until SIGTERM or SIGINT.  Raises ClusterError when another supervisor holds
        the cluster."""
        lock = self.take_lock()
        homes.remember(self.cluster.closed)
        wake_read, wake_write = os.pipe()
        for descriptor in (wake_read, wake_write):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.cluster.status_file.unlink(missing_ok=True)
        end_daemons(self.cluster)
        self.notify_path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(self.notify_path))
        os.chmod(self.notify_path, 0o600)
        notify.setblocking(False)
        try:
            while not self.stopping:
                timeout = self.start_due()
                readable, _, _ = select.select([notify.fileno(), wake_read], [], [], timeout)
                if wake_read in readable:
                    os.read(wake_read, 4096)
                if notify.fileno() in readable:
                    self.hear(notify)
                self.notice_ends()
        finally:
            self.end_all()
            # The log writer of a server that was killed, and other orphaned processes.
            end_daemons(self.cluster)
            notify.close()
            self.notify_path.unlink(missing_ok=True)
            self.cluster.status_file.unlink(missing_ok=True)
            self.cluster.remove_socket_directory()
            # The lock is released last: whoever waits for it takes the ports next.
            for descriptor in [*self.claims, lock]:
                os.close(descriptor)
        return 0

    def take_lock(self) -> int:
        descriptor = os.open(self.cluster.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOOKS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    os.close(descriptor)
                    raise ClusterError(
                        f"the cluster in {self.cluster.directory} is already running"
                    ) from error
            time.sleep(0.01)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor

    def stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def start_due(self) -> float | None:
        """Start the programs that are due.  Gives the seconds until the next start is, None when
        nothing waits."""
        now = time.monotonic()
        changed = False
        wait: float | None = None
        ready = {child.program.name for child in self.children if child.once_ready}
        for child in self.children:
            if child.process is not None or (
                child.program.after and child.program.after not in ready
            ):
                continue
            if child.start_at <= now:
                child.start(self.notify_path)
                if child.process is not None:
                    log.info("%s started as process %d", child.program.name, child.process.pid)
                else:
                    log.warning("%s: %s", child.program.name, child.last_exit)
                changed = True
            if child.process is None:
                wait = min(wait if wait is not None else child.start_at - now, child.start_at - now)
        if changed or (self.write_again is not None and self.write_again <= now):
            self.write_status()
        if self.write_again is not None:
            wait = min(wait if wait is not None else WRITE_AGAIN, max(0.0, self.write_again - now))
        return wait

    def hear(self, notify: socket.socket) -> None:
        """Read the daemons' notifications: `READY=1` with MAINPID=<pid>."""
        by_pid = {child.process.pid: child for child in self.children if child.process}
        changed = False
        while True:
            try:
                message = notify.recv(4096)
            except BlockingIOError:
                break
            said = dict(
                line.split("=", 1)
                for line in message.decode(errors="replace").splitlines()
                if "=" in line
            )
            pid = said.get("MAINPID", "")
            child = by_pid.get(int(pid)) if pid.isdigit() else None
            if child is not None and said.get("READY") == "1" and not child.ready:
                child.ready = child.once_ready = changed = True
                log.info("%s is ready", child.program.name)
        if changed:
            self.write_status()

    def notice_ends(self) -> None:
        now = time.monotonic()
        ended = [child for child in self.children if child.ended(now)]
        for child in ended:
            log.warning(
                "%s ended with %s; starts again in %.1f s",
                child.program.name,
                child.last_exit,
                child.back_off,
            )
        if ended:
            self.write_status()

    def end_all(self) -> None:
        """End the children, the API server last, so that the others can still write to it."""
        try:
            self.end([child for child in self.children[1:] if child.process])
        finally:
            self.end([child for child in self.children[:1] if child.process])

    def end(self, children: list[Child]) -> None:
        processes = [(child.program.name, child.process) for child in children if child.process]
        for _, process in processes:
            process.terminate()
        deadline = time.monotonic() + PATIENCE
        for name, process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("%s did not end within %.0f s of SIGTERM and is killed", name, PATIENCE)
                process.kill()
                process.wait()

    def write_status(self) -> None:
        """Writes down how everything is; where that fails (a full disk), the processes run on and
        the next second tries again."""
        status = Status(
            os.getpid(), [child.status() for child in self.children], start_of(os.getpid())
        )
        try:
            write_atomically(self.cluster.status_file, msgspec.json.encode(status))
        except OSError as error:
            self.write_again = time.monotonic() + WRITE_AGAIN
            log.error("the status is not written: %s", refusal(error))
        else:
            self.write_again = None


def open_log(path: Path) -> BinaryIO:
    """A log to append to, for its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")


def launch(cluster: Cluster, claims: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """Starts the supervisor of the cluster as a detached process that keeps these descriptors open."""
    with open_log(cluster.logs / "supervisor.log") as output:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hekla.local.cluster.supervisor",
                str(cluster.directory),
                *map(str, claims),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            pass_fds=claims,
        )


def end(cluster: Cluster, patience: float = 3 * PATIENCE) -> bool:
    """Ends the supervisor and every daemon; False when none was running.

    Returns when the process table shows none of them any more; raises ClusterError, and nothing may
    be removed, where one does not go.
    """
    pid = running(cluster)
    supervisor = Process.of(pid) if pid is not None and pid > 0 else None
    if supervisor is not None:
        supervisor.send(signal.SIGCONT)
        supervisor.send(signal.SIGTERM)
        if await_end([supervisor], patience):
            log.warning(
                "the supervisor (process %d) did not end within %.0f s of SIGTERM and is killed",
                pid,
                patience,
            )
    left = end_daemons(cluster)
    cluster.status_file.unlink(missing_ok=True)
    cluster.remove_socket_directory()
    return supervisor is not None or left > 0


def main(argv: list[str]) -> int:
    """`python -m hekla.local.cluster.supervisor DIRECTORY [DESCRIPTOR ...]`: what `launch` starts."""
    logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
    cluster = Cluster(Path(argv[0]))
    try:
        return Supervisor(cluster, cluster.programs(cluster.settings()), map(int, argv[1:])).run()
    except ClusterError as error:
        log.error("%s", error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
