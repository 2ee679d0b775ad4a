"""One request of gRPC's health protocol, for probes: only as much HTTP/2 as one call and its
response need."""

from __future__ import annotations

import asyncio
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MAX_FRAME_BYTES = 1 << 20
STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


class HealthError(Exception):
    """The server did not answer the request properly."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """An HTTP/2 frame."""
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )


def header(name: str, value: str) -> bytes:
    """A header field as a literal, neither indexed nor compressed."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def health_request(authority: str, service: str) -> bytes:
    """The frames of a request to grpc.health.v1.Health/Check."""
    headers = b"".join(
        header(name, value)
        for name, value in (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/grpc.health.v1.Health/Check"),
            (":authority", authority[:120]),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("user-agent", "kube-probe/1.36"),
        )
    )
    name = service.encode()
    body = b"\x0a" + bytes([len(name)]) + name if name else b""
    return (
        PREFACE
        + frame(SETTINGS, 0, 0)
        + frame(HEADERS, END_HEADERS, 1, headers)
        + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(body)) + body)
    )


async def health(host: str, port: int, service: str) -> str:
    """The status of a service: SERVING, NOT_SERVING, ... Raises OSError, HealthError."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(health_request(f"{host}:{port}", service[:120]))
        body = b""
        while True:
            head = await reader.readexactly(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            if length > MAX_FRAME_BYTES:
                raise HealthError("the server does not speak gRPC")
            payload = await reader.readexactly(length)
            if kind == SETTINGS and not flags & ACK:
                writer.write(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                writer.write(frame(PING, ACK, 0, payload))
            elif kind == DATA:
                body += payload
            elif kind in (RESET, GO_AWAY):
                raise HealthError("the server refused the call")
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                break
    except asyncio.IncompleteReadError as error:
        raise HealthError("the server hung up") from error
    finally:
        writer.close()
    if len(body) < 5:
        raise HealthError(
            "the server has no health service, or does not know the service that is asked for"
        )
    message = body[5:]
    return STATUS.get(message[1] if message[:1] == b"\x08" and len(message) > 1 else 0, "UNKNOWN")
