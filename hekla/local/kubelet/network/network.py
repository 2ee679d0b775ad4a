"""The kubelet's side of the pod network: starts the network daemon when the first pod needs it, and
connects to it again after a restart of either.

A cluster with fake pods only has no network daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hekla.api.trees import Json
from hekla.local.kubelet.network.bridges import stop_forwarding
from hekla.local.kubelet.network.netlink import Netlink, open_within

log = logging.getLogger("kubelet.network")

START_TIMEOUT = 15.0
RETRY_INTERVAL = 1.0


class NetworkError(Exception):
    """The network could not do what a pod needs; the text is for the pod's event."""


def connect(root: Path) -> socket.socket:
    """Connect to the network daemon of a directory. Raises OSError if there is none."""
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY)
    made = socket.socket(socket.AF_UNIX)
    try:
        # This path is short even if that of the directory is too long for a socket.
        made.connect(f"/proc/self/fd/{directory}/network.sock")
    except OSError:
        made.close()
        raise
    finally:
        os.close(directory)
    return made


def end(root: Path) -> None:
    """End the network daemon of a directory, if there is one, and with it everything that it
    created in the kernel."""
    try:
        with connect(root) as connection:
            connection.settimeout(2.0)
            pid = ask(connection, {"do": "hello"})["pid"]
            follow = os.pidfd_open(pid)
            try:
                connection.sendall(b'{"do": "end"}\n')
                if not _gone(follow, 3.0):
                    signal.pidfd_send_signal(follow, signal.SIGKILL)
            finally:
                os.close(follow)
    except (OSError, ValueError, KeyError):
        return


def _gone(pidfd: int, seconds: float) -> bool:
    import select

    return bool(select.select([pidfd], [], [], seconds)[0])


def ask(connection: socket.socket, message: Json) -> Json:
    """Send a message and wait for the answer."""
    connection.sendall(json.dumps(message).encode() + b"\n")
    data = b""
    while not data.endswith(b"\n"):
        got = connection.recv(65536)
        if not got:
            raise OSError("the network daemon has gone")
        data += got
    answer: Json = json.loads(data)
    return answer


class Network:
    """The network of a kubelet's pods. `recall` is called when a new network daemon has replaced one
    that died."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = self.gateway = self.host = ""
        self.prefix = 0
        self.way_out = ""
        self.recall: Callable[[], Any] | None = None
        self.first: Callable[[], Awaitable[None]] | None = None
        """Called when a new network daemon runs, before any pod is connected to it."""
        self.up = False
        """The network daemon runs and has introduced itself."""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._namespace: Netlink | None = None
        """Keeps the bridges and their rules alive when the network daemon dies, until the bridges
        are down."""
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._last = 0
        self._ready: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None

    async def ready(self) -> None:
        """Wait until the network daemon runs; start it if necessary. Raises NetworkError."""
        if self.up:
            return
        if self._ready is None or self._ready.done():
            self._ready = asyncio.create_task(self._start(), name="network")
        await asyncio.shield(self._ready)

    async def _start(self) -> None:
        try:
            connection = connect(self.root)
        except OSError:
            try:
                connection = await asyncio.to_thread(self._launch)
            except OSError as error:  # the process or its log could not be created
                raise NetworkError(
                    f"the network of the pods did not start: {error.strerror}"
                ) from error
        connection.setblocking(False)
        self._reader, self._writer = await asyncio.open_unix_connection(
            sock=connection, limit=1 << 24
        )
        self._listening = asyncio.create_task(self._listen(), name="network answers")
        hello = await self.ask({"do": "hello"})
        self.base, self.prefix = hello["base"], hello["prefix"]
        self.gateway, self.host, self.way_out = hello["gateway"], hello["host"], hello["wayOut"]
        if "namespace" in hello:  # a daemon that has run since before an upgrade does not tell it
            try:
                self._namespace = open_within(hello["namespace"])
            except OSError as error:
                raise NetworkError(f"namespace of the pods' network: {error.strerror}") from error
        self.up = True
        if self.first is not None:
            await self.first()
        if self.way_out:
            log.warning("pods reach each other but nothing beyond this machine: %s", self.way_out)

    def _launch(self) -> socket.socket:
        command = [
            sys.executable,
            "-m",
            "hekla.local.kubelet.network.network_daemon",
            str(self.root),
        ]
        descriptor = os.open(
            self.root / "network.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=descriptor,
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._process.stdout.close()
        deadline = time.monotonic() + START_TIMEOUT
        # Another network daemon may be starting too; the one with the lock will listen.
        while True:
            try:
                return connect(self.root)
            except OSError as error:
                if time.monotonic() > deadline or self._process.poll() not in (None, 3):
                    raise NetworkError(
                        f"the network of the pods did not start: see {self.root / 'network.log'}"
                    ) from error
            time.sleep(0.02)

    async def _listen(self) -> None:
        reader = self._reader
        assert reader is not None
        try:
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._answers.pop(answer.get("id"), None)
                if future is not None and not future.done():
                    future.set_result(answer)
        except (OSError, ValueError) as error:
            log.info("the network daemon: %s", error)
        self.up, self._writer = False, None
        if self._namespace is not None:
            stop_forwarding(self._namespace)
        self._leave_namespace()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(NetworkError("the daemon of the pods' network has ended"))
        self._answers.clear()
        if not self._closed:
            log.warning("the daemon of the pods' network has ended; another takes its place")
            asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        while not self._closed and not self.up:
            try:
                await self.ready()
            except (NetworkError, OSError) as error:
                log.error("%s", error)
                await asyncio.sleep(RETRY_INTERVAL)
        if not self._closed and self.recall is not None:
            await self.recall()

    async def ask(self, message: Json) -> Json:
        """Send a message and return the answer. Raises NetworkError."""
        if self._writer is None:
            raise NetworkError("the network of the pods is not up")
        self._last += 1
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[self._last] = future
        self._writer.write(json.dumps({"id": self._last, **message}).encode() + b"\n")
        answer = await future
        if "error" in answer:
            raise NetworkError(f"network of the pod: {answer['error']}")
        return answer

    def tell(self, message: Json) -> None:
        """Send a message without waiting for the answer."""
        if self._writer is not None:
            self._writer.write(json.dumps(message).encode() + b"\n")

    async def attach(
        self, uid: str, address: str, pids: list[int], host_ports: list[list[Any]]
    ) -> str:
        """Connect a pod; returns the path of its namespace. Raises NetworkError."""
        await self.ready()
        message = {
            "do": "attach",
            "uid": uid,
            "address": address,
            "pids": pids,
            "hostPorts": host_ports,
        }
        return str((await self.ask(message))["path"])

    async def close(self) -> None:
        """Disconnect; the network stays for pods that run on."""
        self._closed = True
        for task in (self._ready, self._listening):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, NetworkError, OSError):
                    await task
        self.up = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self._leave_namespace()

    def _leave_namespace(self) -> None:
        if self._namespace is not None:
            self._namespace.close()
            self._namespace = None
