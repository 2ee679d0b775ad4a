"""Containers as processes: starts each container once, notices its end, and adopts it after the
kubelet was killed.

The kubelet is not an ancestor of the containers (see spawner.py). It follows their shims by pidfd,
which does not confuse a reused pid; without pidfds it polls ten times a second. The state is always
read from the slot on disk; nothing in this module would be missed after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from hekla.local.kubelet.network import network
from hekla.local.kubelet.records import MEMORY, Claim, Exit, Launch, Slot, name_of, pod_directories
from hekla.local.kubelet.runtime import cgroups
from hekla.local.machine.processes import start_of

log = logging.getLogger("kubelet.runtime")

SPAWNER = Path(__file__).with_name("spawner.py")
POLL_INTERVAL = 0.1
"""Seconds between polls of processes that have no pidfd."""
EXIT_CODE_TIMEOUT = 2.0
"""Seconds for a shim to write the exit code of a command that was killed."""
STARTS_AT_ONCE = 16


class CannotStart(Exception):
    """The container was not started, and its slot not claimed. The text is for the pod's status."""


class Instance:
    """A container that was started."""

    __slots__ = ("claim", "exit", "on_end", "pidfd", "slot", "started")

    def __init__(self, slot: Slot, claim: Claim, started: float) -> None:
        self.slot = slot
        self.claim = claim
        self.started = started
        self.exit: Exit | None = None
        self.pidfd = -1
        self.on_end: Callable[[Instance], None] | None = None


def children_of(pid: int) -> list[int]:
    """The direct children of a process; none if it has ended."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        if sys.platform == "linux" and os.path.exists("/proc/self/task"):
            if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
                return children_by_search(pid)
            return []
        return children_by_search(pid)


def children_by_search(pid: int) -> list[int]:
    """`children_of` without /proc/<pid>/task/<tid>/children: searches all processes."""
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def session_of(shim: int) -> list[int]:
    """All processes in the shim's session, which are to be killed if there is no pid namespace."""
    found = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == shim:
                found.append(pid)
        except OSError:
            continue
    return found


def send(pid: int, number: int) -> bool:
    """Send a signal to a process; False if it has ended or belongs to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class Runtime:
    """Starts and follows containers."""

    def __init__(self, root: Path = Path()) -> None:
        self._root = root
        """The kubelet's directory, on the spawner's command line, so that one sees whose it is."""
        self._spawner: subprocess.Popen[bytes] | None = None
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._last = 0
        self._partial = b""
        self._polled: set[Instance] = set()
        self._poll: asyncio.TimerHandle | None = None
        self._limit = asyncio.Semaphore(STARTS_AT_ONCE)
        self._pidfds = hasattr(os, "pidfd_open")
        self.instances: set[Instance] = set()

    # --- the spawner ------------------------------------------------------------------------------

    def _ensure_spawner(self) -> subprocess.Popen[bytes]:
        if self._spawner is None:
            self._spawner = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SPAWNER), str(self._root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
            assert self._spawner.stdout is not None
            os.set_blocking(self._spawner.stdout.fileno(), False)
            asyncio.get_running_loop().add_reader(self._spawner.stdout.fileno(), self._read_answers)
        return self._spawner

    def _read_answers(self) -> None:
        spawner = self._spawner
        assert spawner is not None and spawner.stdout is not None
        try:
            data = os.read(spawner.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            self._lose_spawner()
            return
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            number, _, text = line.decode(errors="replace").partition(" ")
            if (future := self._answers.pop(int(number), None)) is not None and not future.done():
                future.set_result(text)

    def _lose_spawner(self) -> None:
        """The spawner has ended, and every child that had not become a shim with it; the claims say
        which had."""
        spawner, self._spawner = self._spawner, None
        assert spawner is not None and spawner.stdout is not None and spawner.stdin is not None
        asyncio.get_running_loop().remove_reader(spawner.stdout.fileno())
        spawner.stdout.close()
        spawner.stdin.close()
        spawner.wait()
        log.warning(
            "the spawner ended with code %s; the next container starts another", spawner.returncode
        )
        waiting, self._answers, self._partial = self._answers, {}, b""
        for future in waiting.values():
            if not future.done():
                future.set_result("")

    def close(self) -> None:
        """Stop following the containers; they run on."""
        if self._poll is not None:
            self._poll.cancel()
        loop = asyncio.get_running_loop()
        for instance in list(self.instances):
            self._unwatch(instance)
        if self._spawner is not None:
            assert self._spawner.stdout is not None and self._spawner.stdin is not None
            loop.remove_reader(self._spawner.stdout.fileno())
            self._spawner.stdin.close()
            self._spawner.stdout.close()
            self._spawner.wait()
            self._spawner = None

    # --- starting and adopting --------------------------------------------------------------------

    async def start(
        self, slot: Slot, launch: Launch, on_end: Callable[[Instance], None]
    ) -> Instance:
        """Start the container of a slot, or adopt it if it was started before. Raises CannotStart."""
        # On disk before anything starts; the spawner is told the directory alone.
        slot.prepare(launch)
        async with self._limit:
            for _ in range(3):
                if (known := self.adopt(slot, on_end)) is not None:
                    return known
                answer = await self._request_start(slot)
                if answer.startswith("! "):
                    if (known := self.adopt(slot, on_end)) is not None:
                        return known
                    raise CannotStart(answer[2:])
        known = self.adopt(slot, on_end)
        if known is None:
            raise CannotStart(
                "the process that starts containers was killed three times while it started this one"
            )
        return known

    async def _request_start(self, slot: Slot) -> str:
        """One attempt of the spawner; an empty answer if the spawner died meanwhile."""
        spawner = self._ensure_spawner()
        assert spawner.stdin is not None
        self._last += 1
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[self._last] = future
        try:
            spawner.stdin.write(f"{self._last} {slot.directory}\n".encode())
        except BrokenPipeError:
            pass  # the end of its output follows, and resolves all futures
        return await future

    def adopt(self, slot: Slot, on_end: Callable[[Instance], None]) -> Instance | None:
        """The container of a slot that was started before, whether it still runs or not; None if it
        was never started."""
        claim = slot.claim()
        if claim is None:
            return None
        if claim.start == "-" or (sys.platform != "linux" and "@" not in claim.start):
            claim = Claim(claim.pid, start_of(claim.pid) or "-")
        instance = Instance(slot, claim, slot.started())
        instance.on_end = on_end
        instance.exit = slot.exit()
        if instance.exit is None and not self._watch(instance):
            instance.exit = self._exit_of(instance)
        return instance

    def _exit_of(self, instance: Instance) -> Exit:
        """The exit of a container whose shim has ended."""
        return instance.slot.give_up(
            "ContainerStatusUnknown",
            "The container could not be located when the pod was terminated",
        )

    # --- following --------------------------------------------------------------------------------

    def _watch(self, instance: Instance) -> bool:
        """Follow the shim; False if it has ended already."""
        if not instance.claim.alive():
            return False
        if self._pidfds:
            try:
                instance.pidfd = os.pidfd_open(instance.claim.pid)
            except ProcessLookupError:
                return False
            except OSError:
                self._pidfds = False
            else:
                if not instance.claim.alive():  # the pid was reused between the check and the open
                    os.close(instance.pidfd)
                    instance.pidfd = -1
                    return False
                asyncio.get_running_loop().add_reader(instance.pidfd, self._ended, instance)
        if not self._pidfds:
            self._polled.add(instance)
            if self._poll is None:
                self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_pids)
        self.instances.add(instance)
        return True

    def _poll_pids(self) -> None:
        self._poll = None
        for instance in [one for one in self._polled if not one.claim.alive()]:
            self._ended(instance)
        if self._polled:
            self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_pids)

    def _unwatch(self, instance: Instance) -> None:
        self.instances.discard(instance)
        self._polled.discard(instance)
        if instance.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(instance.pidfd)
            os.close(instance.pidfd)
            instance.pidfd = -1

    def _ended(self, instance: Instance) -> None:
        if instance not in self.instances:
            return
        self._unwatch(instance)
        instance.exit = instance.slot.exit() or self._exit_of(instance)
        if instance.on_end is not None:
            instance.on_end(instance)

    # --- ending -----------------------------------------------------------------------------------

    async def signal(self, instance: Instance, number: int) -> None:
        """Send a signal to the container's main process only."""
        for _ in range(50):
            if instance.exit is not None or not instance.claim.alive():
                return
            pids = children_of(instance.claim.pid)
            if pids:
                send(pids[0], number)
                return
            await asyncio.sleep(0.01)  # the shim has not started the command

    async def kill(self, instance: Instance) -> None:
        """Kill the container and all its processes. Its exit code becomes 137 unless it had one."""
        if instance.exit is not None:
            return
        await self.signal(instance, signal.SIGKILL)
        deadline = time.monotonic() + EXIT_CODE_TIMEOUT
        while instance.exit is None and instance.claim.alive() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if instance.exit is None and instance.claim.alive():
            instance.slot.give_up("Error", "")
            kill_shim(instance.claim)


def kill_shim(claim: Claim) -> None:
    """Kill a shim, and all processes in its session if no pid namespace does that."""
    for pid in session_of(claim.pid):
        if pid != claim.pid:
            send(pid, signal.SIGKILL)
    if claim.alive():
        send(claim.pid, signal.SIGKILL)


def stop_all(root: Path, grace: float = 2.0) -> int:
    """Stop all containers that a kubelet with this directory has left running; returns how many.

    For `hekla down`, after the kubelet has ended. Each has `grace` seconds between SIGTERM and
    SIGKILL.
    """
    claims: list[tuple[Slot, Claim]] = []
    for pod in pod_directories(root):
        for slot in pod.slots():
            claim = slot.claim()
            if claim is not None and slot.exit() is None and claim.alive():
                claims.append((slot, claim))
    for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, EXIT_CODE_TIMEOUT)):
        for _, claim in claims:
            for pid in children_of(claim.pid):
                send(pid, number)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any(claim.alive() for _, claim in claims):
            time.sleep(0.02)
    for slot, claim in claims:
        if claim.alive():
            with contextlib.suppress(OSError):
                slot.give_up("Error", "")
            kill_shim(claim)
    network.end(root)
    cgroups.sweep(root)
    shutil.rmtree(MEMORY / name_of(root), ignore_errors=True)
    return len(claims)
