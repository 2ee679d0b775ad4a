"""port-forward: forwards connections of a client to ports of a pod. Reference: local-cluster 8.10."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import psutil

from hekla.kube.streams.spdy import Data, Event, Opened, Reset
from hekla.kube.streams.websocket import WebSocket
from hekla.local.kubelet.records import PodDirectory
from hekla.local.kubelet.runtime.probes import SPAWNER
from hekla.local.kubelet.streaming.wire import Inlet, Lost, SpdyWire, Wire

log = logging.getLogger("kubelet.streams")

SPDY_PROTOCOL = "portforward.k8s.io"
TUNNEL_PROTOCOLS = ("SPDY/3.1+portforward.k8s.io",)
CHANNEL_PROTOCOLS = ("v4.channel.k8s.io", "v4.base64.channel.k8s.io")
PAIR_TIMEOUT = 30.0
"""Seconds in which both streams of a connection must be opened."""
CONNECT_TIMEOUT = 10.0
CHUNK = 32 * 1024


class NotListening(Exception):
    """No process listens on the port; the text says which addresses were tried."""


class Ports:
    """The ports of a pod."""

    def __init__(self, directory: PodDirectory) -> None:
        self.directory = directory
        record = directory.record()
        self.address = record.address if record is not None else "127.0.0.1"
        self.uid = directory.path.name

    async def connect(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port. Raises NotListening."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await asyncio.open_connection(self.address, port, limit=CHUNK)
        except TimeoutError:
            why = "i/o timeout"
        except OSError as error:
            why = f"connect: {'connection refused' if isinstance(error, ConnectionRefusedError) else error.strerror or error}"
        # The program may listen on localhost only.
        found = await asyncio.to_thread(self._at_localhost, port)
        if isinstance(found, socket.socket):
            found.setblocking(False)
            return await asyncio.open_connection(sock=found, limit=CHUNK)
        raise NotListening(
            f"error forwarding port {port} to pod {self.uid}, uid : dial tcp4 {self.address}:{port}: {why}"
        )

    def _at_localhost(self, port: int) -> socket.socket | None:
        """A connection to a port of the pod's localhost; None if no process of the pod listens
        there."""
        for slot in self.directory.slots():
            claim = slot.claim()
            if claim is None or slot.exit() is not None or not claim.alive():
                continue
            launch = slot.launch()
            if launch is not None and launch.network:
                return dialled(claim.pid, port)
            if (address := listener(claim.pid, port)) is not None:
                with contextlib.suppress(OSError):
                    return socket.create_connection((address, port), CONNECT_TIMEOUT)
        return None


def listener(shim: int, port: int) -> str | None:
    """The address on which a process of the container listens. If pods share the machine's
    localhost, only their own listeners may be reached."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(shim).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                for found in process.net_connections("tcp"):
                    if found.status == psutil.CONN_LISTEN and found.laddr.port == port:
                        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(
                            found.laddr.ip, found.laddr.ip
                        )
    return None


def dialled(pid: int, port: int) -> socket.socket | None:
    """A connection that was made inside a pod's network."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SPAWNER), "dial", str(pid), str(port)],
                stdin=theirs.fileno(),
            )
        ours.settimeout(CONNECT_TIMEOUT)
        try:
            answer, descriptors, _, _ = socket.recv_fds(ours, 1024, 1)
        except OSError:
            process.kill()
            return None
        finally:
            process.wait()
    return socket.socket(fileno=descriptors[0]) if answer == b"+" and descriptors else None


async def carry(
    inlet: Inlet,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    send: Callable[[bytes], Awaitable[None]],
    ended: Callable[[], Awaitable[None]],
) -> None:
    """Forward bytes in both directions until both sides have ended, or one has gone."""

    async def up() -> None:
        try:
            while data := await inlet.read():
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
        except ConnectionError:
            inlet.drop()

    async def down() -> None:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while data := await reader.read(CHUNK):
                await send(data)
        await ended()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(up())
            await down()
            # A side that has closed its half may still read for a while; a client that never ends its
            # half must not hold us.
            inlet.end()
    except* Lost:
        pass
    finally:
        inlet.drop()
        writer.close()


@dataclass(slots=True)
class Pair:
    """The two streams of a forwarded connection."""

    port: int = 0
    data: int = 0
    error: int = 0
    inlet: Inlet | None = None
    timer: asyncio.TimerHandle | None = None
    streams: list[int] = field(default_factory=list)


class SpdyForward(SpdyWire):
    """Pairs of SPDY streams, one for each connection; bare or inside a WebSocket."""

    def __init__(self, ports: Ports, websocket: WebSocket | None = None) -> None:
        super().__init__(websocket)
        self.ports = ports
        self._pairs: dict[str, Pair] = {}
        self._inlets: dict[int, Inlet] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def happened(self, event: Event) -> None:
        """Handle an event of the SPDY connection."""
        if isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Data):
            if (inlet := self._inlets.get(event.stream)) is not None:
                inlet.feed(event.data)
                if event.ended:
                    inlet.end()
        elif isinstance(event, Reset) and (inlet := self._inlets.get(event.stream)) is not None:
            inlet.drop()

    def _opened(self, event: Opened) -> None:
        role, text = event.headers.get("streamtype", ""), event.headers.get("port", "")
        if role not in ("data", "error") or not text.isdecimal() or not 0 < int(text) < 65536:
            self.session.reset(event.stream, 1)
            return
        # Clients without request ids open the error stream first, and right after it the data
        # stream, whose number is larger by two.
        number = event.headers.get("requestid") or str(
            event.stream if role == "error" else event.stream - 2
        )
        pair = self._pairs.setdefault(number, Pair())
        if getattr(pair, role):
            self.session.reset(event.stream, 1)
            return
        self.session.reply(event.stream)
        pair.port = int(text)
        pair.streams.append(event.stream)
        if role == "data":
            pair.data = event.stream
            pair.inlet = self._inlets[event.stream] = self.inlet()
            if event.ended:
                pair.inlet.end()
        else:
            pair.error = event.stream
        if pair.data and pair.error:
            if pair.timer is not None:
                pair.timer.cancel()
            task = asyncio.create_task(self._forward(number, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            pair.timer = asyncio.get_running_loop().call_later(
                PAIR_TIMEOUT, self._give_up, number, pair
            )

    def _give_up(self, number: str, pair: Pair) -> None:
        self._close(number, pair, reset=True)

    def _close(self, number: str, pair: Pair, reset: bool = False) -> None:
        self._pairs.pop(number, None)
        if pair.inlet is not None:
            pair.inlet.drop()
            if pair.inlet in self.inlets:
                self.inlets.remove(pair.inlet)
        self._inlets.pop(pair.data, None)
        for stream in pair.streams:
            if reset:
                self.session.reset(stream)
            else:
                self.session.send(stream, b"", end=True)
        self.push()

    async def _forward(self, number: str, pair: Pair) -> None:
        assert pair.inlet is not None
        try:
            reader, writer = await self.ports.connect(pair.port)
        except NotListening as error:
            self.session.send(pair.error, str(error).encode(), end=True)
            self._close(number, pair)
            return
        await carry(
            pair.inlet,
            reader,
            writer,
            lambda data: self.write(pair.data, data),
            lambda: self.write(pair.data, b"", end=True),
        )
        self._close(number, pair)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        for task in self._tasks:
            task.cancel()


class ChannelForward(Wire):
    """WebSocket channels: two for each port, and one connection to each port; used by the Python
    client."""

    def __init__(self, ports: Ports, wanted: list[int]) -> None:
        super().__init__(WebSocket(server=True))
        self.ports = ports
        self.wanted = wanted
        self.inputs = [self.inlet() for _ in wanted]

    def received(self, data: bytes) -> None:
        """Handle a message of the client."""
        if data and data[0] % 2 == 0 and data[0] // 2 < len(self.wanted):
            self.inputs[data[0] // 2].feed(data[1:])

    async def serve(self) -> None:
        """Runs until all connections have ended."""
        for index, port in enumerate(self.wanted):
            for channel in (2 * index, 2 * index + 1):
                self.send(bytes((channel,)) + port.to_bytes(2, "little"))
        await asyncio.gather(
            *(self._forward(index, port) for index, port in enumerate(self.wanted))
        )
        await self.part()

    async def _forward(self, index: int, port: int) -> None:
        async def send(data: bytes) -> None:
            self.send(bytes((2 * index,)) + data)
            await self.drain()

        async def ended() -> None:
            """A channel cannot be closed alone."""

        try:
            reader, writer = await self.ports.connect(port)
        except NotListening as error:
            self.send(bytes((2 * index + 1,)) + str(error).encode())
            self.inputs[index].drop()
            return
        await carry(self.inputs[index], reader, writer, send, ended)
