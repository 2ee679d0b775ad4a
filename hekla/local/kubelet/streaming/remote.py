"""The remote terminal of an exec or attach: its input, its output, its size, and the final status.

There are two implementations: channels of a WebSocket (`v5.channel.k8s.io` and older) and SPDY
streams. Reference: local-cluster 8.10.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from hekla.kube.http.server import Request
from hekla.kube.streams.spdy import Data, Event, Opened, Reset
from hekla.kube.streams.websocket import WebSocket
from hekla.local.kubelet.streaming.wire import Inlet, Lost, SpdyWire, Wire

STREAMS_TIMEOUT = 30.0
"""Seconds in which a SPDY client must open all streams that it requested."""
CHANNELS = {"stdin": 0, "stdout": 1, "stderr": 2, "error": 3, "resize": 4}
CLOSE_CHANNEL = 255
MAX_RESIZE_BUFFER = 4096
"""Bytes of terminal sizes that are not a complete JSON text."""
WEBSOCKET_PROTOCOLS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "base64.channel.k8s.io",
)
SPDY_PROTOCOLS = (
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
)
WITH_STATUS = ("v5.", "v4.")
SUCCESS = {"metadata": {}, "status": "Success"}


@dataclass(frozen=True, slots=True)
class ExecOptions:
    """The streams that a client requests."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    @classmethod
    def of(cls, request: Request) -> ExecOptions:
        """The options in the query of a request."""

        def flag(name: str, short: str) -> bool:
            return request.flag(name) or request.flag(short)

        tty = request.flag("tty")
        return cls(
            tuple(request.options.get("command", ())),
            flag("stdin", "input"),
            flag("stdout", "output"),
            flag("stderr", "error") and not tty,
            tty,
        )

    @property
    def wants(self) -> bool:
        """Whether a role (stdin, stdout, ...) is requested."""
        return self.stdin or self.stdout or self.stderr


def exited(code: int) -> dict[str, Any]:
    """The Status of a command that ran to its end."""
    if code == 0:
        return SUCCESS
    cause = {"reason": "ExitCode", "message": str(code)}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [cause]},
    }


def failed(message: str) -> dict[str, Any]:
    """The Status of a command that could not be run."""
    text = f"Internal error occurred: {message}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": text,
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }


class Terminal:
    """The remote terminal as exec and attach use it."""

    stdin: Inlet
    resized: Callable[[int, int], None]
    wire: Wire

    def __init__(self) -> None:
        self.resized = lambda width, height: None
        self._size: tuple[int, int] | None = None

    def on_resize(self, listener: Callable[[int, int], None]) -> None:
        """Call the listener with every new size, and at once if there is a size already."""
        self.resized = listener
        if self._size is not None:
            listener(*self._size)

    def on_size(self, tree: Any) -> None:
        """A size has come from the client."""
        if isinstance(tree, dict):
            width, height = tree.get("Width"), tree.get("Height")
            if (
                isinstance(width, int)
                and isinstance(height, int)
                and 0 < width < 65536
                and 0 < height < 65536
            ):
                self._size = (width, height)
                self.resized(width, height)

    async def ready(self) -> None:
        """Wait until all streams are open. Raises Lost."""

    async def write(self, role: str, data: bytes) -> None:
        """Send output. Raises Lost."""
        raise NotImplementedError

    async def finish(self, status: Mapping[str, Any]) -> None:
        """Send the final status, and close."""
        raise NotImplementedError


class Channels(Wire, Terminal):
    """Numbered channels of a WebSocket: the first byte of each message is the number."""

    def __init__(self, protocol: str, options: ExecOptions) -> None:
        Wire.__init__(self, WebSocket(server=True))
        Terminal.__init__(self)
        self.protocol = protocol
        self.options = options
        self.base64 = "base64" in protocol
        self.stdin = self.inlet()
        self.wire = self

    async def ready(self) -> None:
        first = next(
            (role for role in ("stdout", "stderr") if getattr(self.options, role)), "error"
        )
        self._put(first, b"")  # some clients wait for a first message

    def received(self, data: bytes) -> None:
        if not data:
            return
        if self.base64:
            try:
                channel, body = data[0] - ord("0"), base64.b64decode(data[1:])
            except binascii.Error:
                return
        else:
            channel, body = data[0], data[1:]
        if channel == CHANNELS["stdin"]:
            self.stdin.feed(body)
        elif channel == CLOSE_CHANNEL and self.protocol.startswith("v5."):
            if body[:1] == b"\x00":
                self.stdin.end()
        elif channel == CHANNELS["resize"]:
            try:
                self.on_size(json.loads(body))
            except ValueError:
                return

    def _put(self, role: str, data: bytes) -> None:
        channel = CHANNELS[role]
        if self.base64:
            assert self.websocket is not None
            self.websocket.send(b"%d" % channel + base64.b64encode(data), text=True)
            self._flush()
        else:
            self.send(bytes((channel,)) + data)

    async def write(self, role: str, data: bytes) -> None:
        self._put(role, data)
        await self.drain()

    async def finish(self, status: Mapping[str, Any]) -> None:
        if self.protocol.startswith(WITH_STATUS):
            self._put("error", msgspec.json.encode(status))
        elif status.get("status") != "Success":
            self._put("error", str(status.get("message", "")).encode())
        await self.part()


class Streams(SpdyWire, Terminal):
    """SPDY streams, each with the header streamType."""

    def __init__(self, protocol: str, options: ExecOptions) -> None:
        SpdyWire.__init__(self)
        Terminal.__init__(self)
        self.protocol = protocol
        self.stdin = self.inlet()
        self.wire = self
        self._roles: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._sizes = ""
        self._complete = asyncio.Event()
        expected = {"error"} | {
            role for role in ("stdin", "stdout", "stderr") if getattr(options, role)
        }
        if options.tty and protocol.startswith(("v5.", "v4.", "v3.")):
            expected.add("resize")
        self._expected = expected

    def happened(self, event: Event) -> None:
        """Handle an event of the SPDY connection."""
        if isinstance(event, Opened):
            role = event.headers.get("streamtype", "")
            if role not in self._expected or role in self._roles:
                self.session.reset(event.stream)
                return
            self._roles[role], self._names[event.stream] = event.stream, role
            self.session.reply(event.stream)
            if event.ended and role == "stdin":
                self.stdin.end()
            if self._expected <= self._roles.keys():
                self._complete.set()
        elif isinstance(event, Data):
            role = self._names.get(event.stream, "")
            if role == "stdin":
                self.stdin.feed(event.data)
                if event.ended:
                    self.stdin.end()
            elif role == "resize":
                self._resize(event.data)
        elif isinstance(event, Reset) and self._names.get(event.stream) == "stdin":
            self.stdin.end()

    def _resize(self, data: bytes) -> None:
        """Sizes come as JSON texts without separators."""
        text = (self._sizes + data.decode("utf-8", "replace")).lstrip()
        while text:
            try:
                tree, end = json.JSONDecoder().raw_decode(text)
            except ValueError:
                break
            self.on_size(tree)
            text = text[end:].lstrip()
        self._sizes = text[:MAX_RESIZE_BUFFER]

    async def ready(self) -> None:
        gone = asyncio.ensure_future(self.gone.wait())
        complete = asyncio.ensure_future(self._complete.wait())
        try:
            await asyncio.wait(
                (gone, complete), timeout=STREAMS_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            gone.cancel()
            complete.cancel()
        if not self._complete.is_set():
            self.abort()
            raise Lost(
                f"the client has not opened {', '.join(sorted(self._expected - self._roles.keys()))}"
            )

    async def write(self, role: str, data: bytes) -> None:  # type: ignore[override]  # channels have names here, numbers there
        await SpdyWire.write(self, self._roles[role], data)

    async def finish(self, status: Mapping[str, Any]) -> None:
        if self.protocol.startswith(WITH_STATUS):
            text = msgspec.json.encode(status)
        else:
            text = (
                b""
                if status.get("status") == "Success"
                else str(status.get("message", "")).encode()
            )
        for role in ("stdout", "stderr"):
            if role in self._roles:
                self.session.send(self._roles[role], b"", end=True)
        if "error" in self._roles:
            self.session.send(self._roles["error"], text, end=True)
        self.push()
        await self.part()
