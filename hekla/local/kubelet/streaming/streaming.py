"""Entry to exec, attach and port-forward: negotiates the protocol, and finds the container."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.kube.http.server import Request, Response, Upgrade
from hekla.kube.streams import websocket
from hekla.kube.streams.websocket import WebSocket
from hekla.local.kubelet.background_tasks import BackgroundTasks
from hekla.local.kubelet.records import PodDirectory, Slot
from hekla.local.kubelet.runtime.logs import Clock
from hekla.local.kubelet.streaming.attachment import attach
from hekla.local.kubelet.streaming.execution import execute
from hekla.local.kubelet.streaming.forwarding import (
    CHANNEL_PROTOCOLS,
    SPDY_PROTOCOL,
    TUNNEL_PROTOCOLS,
    ChannelForward,
    Ports,
    SpdyForward,
)
from hekla.local.kubelet.streaming.remote import (
    SPDY_PROTOCOLS,
    WEBSOCKET_PROTOCOLS,
    Channels,
    ExecOptions,
    Streams,
)

log = logging.getLogger("kubelet.streams")

PLAIN = "text/plain"


class Refused(Exception):
    """The request is not upgraded; the text is for the client."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    def response(self) -> Response:
        """The HTTP response."""
        return Response(self.status, str(self).encode(), PLAIN, self.headers)


def spdy_choice(request: Request, spoken: Sequence[str]) -> str:
    """The protocol version of a SPDY request. Raises Refused."""
    headers = request.headers
    if (
        "upgrade" not in headers.get("connection", "").lower()
        or headers.get("upgrade", "").lower() != "spdy/3.1"
    ):
        raise Refused(
            400, "Upgrade request required: neither a WebSocket nor SPDY/3.1 was asked for"
        )
    offered = [
        name.strip()
        for name in headers.get("x-stream-protocol-version", "").split(",")
        if name.strip()
    ]
    if not offered and len(spoken) > 1:
        return spoken[-1]  # the first clients sent none
    for name in offered:
        if name in spoken:
            return name
    text = f"unable to upgrade: unable to negotiate protocol: client supports {offered}, server accepts {list(spoken)}"
    raise Refused(403, text, {"X-Accepted-Stream-Protocol-Versions": ",".join(spoken)})


def websocket_choice(request: Request, spoken: Sequence[str]) -> str:
    """The subprotocol of a WebSocket request; "" if the client sends none. Raises Refused."""
    offered = websocket.offered(request.headers)
    if not offered:
        return ""
    for name in spoken:
        if name in offered:
            return name
    raise Refused(
        400,
        f"none of the WebSocket protocols {', '.join(offered)} is spoken here; {', '.join(spoken)} are",
    )


def spdy_answer(protocol: str) -> dict[str, str]:
    """The headers of the response to a SPDY request."""
    return {"Connection": "Upgrade", "Upgrade": "SPDY/3.1", "X-Stream-Protocol-Version": protocol}


class Streaming:
    """All stream connections of this kubelet."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._tasks = BackgroundTasks()

    async def close(self) -> None:
        """End the connections; the containers run on."""
        await self._tasks.cancel()

    def answer(
        self, what: str, pod: core.Pod, container: str, request: Request
    ) -> Response | Upgrade:
        """The response to a request, or the upgrade of its connection."""
        try:
            if what == "portForward":
                return self._forward(pod, request)
            return self._terminal(what, pod, container, request)
        except Refused as refused:
            return refused.response()

    def _slot(self, pod: core.Pod, container: str) -> Slot:
        """The running instance of a container.  Raises Refused."""
        slots = [
            slot
            for slot in PodDirectory(self._root, pod.metadata.uid).slots()
            if slot.container == container
        ]
        for slot in reversed(slots):
            claim = slot.claim()
            if claim is not None and slot.exit() is None and claim.alive():
                return slot
        raise Refused(500, f'container not found ("{container}")')

    def _terminal(self, what: str, pod: core.Pod, container: str, request: Request) -> Upgrade:
        """exec and attach.  Raises Refused."""
        options = ExecOptions.of(request)
        if not options.wants:
            raise Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
        if what == "exec" and not options.command:
            raise Refused(400, "you must specify a command")
        slot = self._slot(pod, container)
        terminal: Channels | Streams
        if websocket.is_upgrade(request.headers):
            protocol = websocket_choice(request, WEBSOCKET_PROTOCOLS)
            headers = websocket.answer_headers(request.headers, protocol)
            terminal = Channels(protocol, options)
        else:
            protocol = spdy_choice(request, SPDY_PROTOCOLS)
            headers = spdy_answer(protocol)
            terminal = Streams(protocol, options)
        work = (
            execute(slot, options, terminal)
            if what == "exec"
            else attach(slot, options, terminal, self._clock)
        )

        def take(transport: asyncio.Transport, rest: bytes) -> asyncio.BaseProtocol:
            terminal.take(transport, rest)
            self._tasks.start(
                until_gone(terminal, work),
                f"{what} in {pod.metadata.namespace}/{pod.metadata.name}",
            )
            return terminal

        return Upgrade(take, headers)

    def _forward(self, pod: core.Pod, request: Request) -> Upgrade:
        """Raises Refused."""
        ports = Ports(PodDirectory(self._root, pod.metadata.uid))
        name = f"port-forward to {pod.metadata.namespace}/{pod.metadata.name}"
        if not websocket.is_upgrade(request.headers):
            protocol = spdy_choice(request, (SPDY_PROTOCOL,))
            return Upgrade(SpdyForward(ports).take, spdy_answer(protocol))
        protocol = websocket_choice(request, (*TUNNEL_PROTOCOLS, *CHANNEL_PROTOCOLS))
        headers = websocket.answer_headers(request.headers, protocol)
        if protocol in TUNNEL_PROTOCOLS:
            return Upgrade(SpdyForward(ports, WebSocket(server=True)).take, headers)
        channels = ChannelForward(ports, wanted_ports(request))

        def take(transport: asyncio.Transport, rest: bytes) -> asyncio.BaseProtocol:
            channels.take(transport, rest)
            self._tasks.start(until_gone(channels, channels.serve()), name)
            return channels

        return Upgrade(take, headers)


async def until_gone(wire: Any, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine for a client, and cancel it when the client has gone."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(wire.gone.wait())
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        wire.abort()
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def wanted_ports(request: Request) -> list[int]:
    """The ports in the query of a WebSocket request. Raises Refused."""
    found = []
    for text in ",".join(request.options.get("ports", [])).split(","):
        if not text:
            continue
        if not text.isdecimal() or not 0 < int(text) < 65536:
            raise Refused(400, f'unable to parse "{text}" as a port')
        found.append(int(text))
    if not found:
        raise Refused(400, 'query parameter "ports" is required')
    return found
