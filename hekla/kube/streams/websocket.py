"""WebSocket after its handshake: messages in, messages out, no sockets.

The frames are those of the library `websockets` (its part that does no I/O, with the masking in C);
this file adds the handshake as the HTTP server here wants it and keeps fragments together.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TOKEN_PROTOCOL = "base64url.bearer.authorization.k8s.io."
"""The prefix of a subprotocol that is a bearer token: browsers can send no header with a WebSocket.
"""
LONGEST_MESSAGE = 32 << 20
"""Bytes of one message of a client; kubectl sends at most 32 KiB, programs that upload files in one
piece send more."""


def accepts(key: str) -> str:
    """The answer to a client's key."""
    return base64.b64encode(
        hashlib.sha1((key + GUID).encode(), usedforsecurity=False).digest()
    ).decode()


def offered(headers: Mapping[str, str]) -> list[str]:
    """The subprotocols that a client offers, best first."""
    return [
        name.strip()
        for name in headers.get("sec-websocket-protocol", "").split(",")
        if name.strip()
    ]


def is_upgrade(headers: Mapping[str, str]) -> bool:
    """Whether a request (header names in lower case) asks for a WebSocket."""
    tokens = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    return (
        "upgrade" in tokens
        and headers.get("upgrade", "").lower() == "websocket"
        and "sec-websocket-key" in headers
    )


def answer_headers(headers: Mapping[str, str], chosen: str) -> dict[str, str]:
    """The headers of the 101 answer."""
    answer = {"Upgrade": "websocket", "Sec-WebSocket-Accept": accepts(headers["sec-websocket-key"])}
    if chosen:
        answer["Sec-WebSocket-Protocol"] = chosen
    return answer


def request_headers(protocols: Iterable[str]) -> dict[str, str]:
    """The headers of a client's request."""
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        "Sec-WebSocket-Protocol": ", ".join(protocols),
    }


class WebSocketError(Exception):
    """The peer broke the protocol or has failed."""


class WebSocket:
    """One end of a connection after its handshake.

    It answers pings and joins fragments.  `closed` is True once the peer has announced the end.
    """

    def __init__(self, server: bool, longest: int = LONGEST_MESSAGE) -> None:
        from websockets.client import ClientProtocol
        from websockets.protocol import Protocol, State
        from websockets.server import ServerProtocol
        from websockets.uri import parse_uri

        self._protocol: Protocol
        if server:
            self._protocol = ServerProtocol(state=State.OPEN, max_size=longest)
        else:
            self._protocol = ClientProtocol(
                parse_uri("ws://localhost/"), state=State.OPEN, max_size=longest
            )
        self._parts: list[bytes] = []
        self.closed = False

    def feed(self, data: bytes) -> list[bytes]:
        """The whole messages in these bytes, text as UTF-8.  Raises WebSocketError."""
        from websockets.frames import Frame, Opcode

        self._protocol.receive_data(data)
        messages: list[bytes] = []
        for event in self._protocol.events_received():
            # What is not a frame is a handshake, and there is none here.
            assert isinstance(event, Frame)
            opcode = event.opcode
            if opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
                piece = bytes(event.data)
                if event.fin and not self._parts:
                    messages.append(piece)
                    continue
                self._parts.append(piece)
                if event.fin:
                    messages.append(b"".join(self._parts))
                    self._parts.clear()
            elif opcode is Opcode.CLOSE:
                self.closed = True
        if self._protocol.parser_exc is not None:
            raise WebSocketError(str(self._protocol.parser_exc))
        return messages

    def take(self) -> bytes:
        """The bytes to be sent, once."""
        return b"".join(self._protocol.data_to_send())

    def send(self, message: bytes, text: bool = False) -> None:
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            if text:
                self._protocol.send_text(message)
            else:
                self._protocol.send_binary(message)

    def ping(self) -> None:
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            self._protocol.send_ping(b"")

    def close(self, code: int = 1000, reason: str = "") -> None:
        from websockets.protocol import State

        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, reason)
