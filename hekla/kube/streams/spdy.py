"""SPDY/3.1, as far as kubectl needs it: frames in, events out, no sockets.

The protocol died years ago everywhere but here, and no library for Python is kept, so this is one
of our own.  Nobody who speaks it to a Kubernetes server keeps its flow control (window updates are
sent by some and heeded by none), so what holds a fast sender back is the connection itself; the
caller pauses it.  Server push and priorities do not occur.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = (
    1,
    2,
    3,
    4,
    6,
    7,
    8,
    9,
)
FIN = 1
PROTOCOL_ERROR, INVALID_STREAM, REFUSED_STREAM, CANCEL = 1, 2, 3, 5
VERSION = 3
LONGEST_FRAME = 1 << 20
"""Bytes; clients write at most a few ten thousand at once."""
LONGEST_BLOCK = 64 * 1024
"""Bytes of headers of one stream, unpacked."""
MOST_HEADERS = 256
CHUNK = 32 * 1024
"""Bytes of data that one frame of ours carries."""

_WORDS = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow authorization
cache-control connection content-base content-encoding content-language content-length content-location content-md5 content-range
content-type date etag expect expires from host if-match if-modified-since if-none-match if-range if-unmodified-since
last-modified location max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer
transfer-encoding upgrade user-agent vary via warning www-authenticate method get status
"""
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative Information"
    "204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 Internal Server Error"
    "501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, "
    "Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(
        struct.pack(">I", len(word)) + word.encode()
        for word in [
            *_WORDS.split(),
            "200 OK",
            "version",
            "HTTP/1.1",
            "url",
            "public",
            "set-cookie",
            "keep-alive",
            "origin",
        ]
    )
    + _REST.encode()
)
"""The dictionary of the header compression."""

_FRAME = struct.Struct(">II")
_PAIR = struct.Struct(">II")


class SpdyError(Exception):
    """The peer broke the protocol; the connection is of no further use."""


@dataclass(slots=True)
class Opened:
    """The peer has opened a stream; it waits for `reply` or `reset`."""

    stream: int
    headers: dict[str, str]
    ended: bool = False


@dataclass(slots=True)
class Replied:
    """The peer has accepted a stream of ours."""

    stream: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Data:
    """Bytes of a stream; `ended`: the peer will send no more on it."""

    stream: int
    data: bytes
    ended: bool = False


@dataclass(slots=True)
class Reset:
    """A stream is over in both directions."""

    stream: int
    status: int


@dataclass(slots=True)
class Leaving:
    """The peer opens no more streams."""


Event = Opened | Replied | Data | Reset | Leaving


class Session:
    """One end of a connection.

    Pass it what arrived; send what `take` returns.  A frame for a stream that the peer has not
    opened, or has ended, is answered with a reset and not with the end of the connection: the frame
    may have been on its way when we reset the stream.
    """

    def __init__(self, server: bool) -> None:
        self._buffer = bytearray()
        self._out = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._next = 2 if server else 1
        self._last_theirs = 0
        self._parity = 1 if server else 0
        self._reading: set[int] = set()
        """Streams on which the peer may still send."""
        self._writing: set[int] = set()
        """Streams on which we may still send."""

    # --- in ---------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> list[Event]:
        """The events of these bytes.  Raises SpdyError."""
        buffer = self._buffer
        buffer += data
        events: list[Event] = []
        at = 0
        while len(buffer) - at >= 8:
            first, second = _FRAME.unpack_from(buffer, at)
            length = second & 0xFFFFFF
            if length > LONGEST_FRAME:
                raise SpdyError(
                    f"a frame of {length} bytes is longer than the {LONGEST_FRAME} that are taken"
                )
            if len(buffer) - at - 8 < length:
                break
            body = bytes(buffer[at + 8 : at + 8 + length])
            at += 8 + length
            flags = second >> 24
            if first & 0x80000000:
                if (first >> 16) & 0x7FFF != VERSION:
                    raise SpdyError(
                        f"version {(first >> 16) & 0x7FFF} of SPDY is not spoken here, only {VERSION}"
                    )
                event = self._control(first & 0xFFFF, flags, body)
            else:
                event = self._data(first, flags, body)
            if event is not None:
                events.append(event)
        if at:
            del buffer[:at]
        return events

    def _data(self, stream: int, flags: int, body: bytes) -> Event | None:
        if stream not in self._reading:
            self._control_frame(RST_STREAM, _PAIR.pack(stream, INVALID_STREAM))
            return None
        if body:
            # Some clients keep flow control; they must never run out of window.
            for number in (stream, 0):
                self._control_frame(WINDOW_UPDATE, _PAIR.pack(number, len(body)))
        ended = bool(flags & FIN)
        if ended:
            self._reading.discard(stream)
        return Data(stream, body, ended)

    def _control(self, kind: int, flags: int, body: bytes) -> Event | None:
        if kind == SYN_STREAM:
            return self._syn_stream(flags, body)
        if kind == SYN_REPLY:
            stream = number(body)
            headers = self._headers(body[4:])
            if stream not in self._writing and stream not in self._reading:
                return None
            if flags & FIN:
                self._reading.discard(stream)
            return Replied(stream, headers)
        if kind == RST_STREAM:
            if len(body) < 8:
                raise SpdyError("a reset without its status")
            stream, status = _PAIR.unpack_from(body)
            known = stream in self._reading or stream in self._writing
            self._forget(stream)
            return Reset(stream, status) if known else None
        if kind == PING:
            if number(body) & 1 == self._parity:
                # A ping of the peer; answers to our own are ignored.
                self._control_frame(PING, body[:4])
            return None
        if kind == GOAWAY:
            return Leaving()
        if kind == HEADERS:
            stream = number(body)
            self._headers(body[4:])  # ignored, but the decompressor must see them
            if flags & FIN and stream in self._reading:
                self._reading.discard(stream)
                return Data(stream, b"", True)
        return None  # SETTINGS, WINDOW_UPDATE and what is unknown

    def _syn_stream(self, flags: int, body: bytes) -> Event:
        if len(body) < 10:
            raise SpdyError("a new stream without its head")
        stream = number(body)
        headers = self._headers(body[10:])
        if stream & 1 != self._parity or stream <= self._last_theirs:
            raise SpdyError(f"stream {stream} cannot be opened after {self._last_theirs}")
        self._last_theirs = stream
        ended = bool(flags & FIN)
        if not ended:
            self._reading.add(stream)
        self._writing.add(stream)
        return Opened(stream, headers, ended)

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._inflate.decompress(block, LONGEST_BLOCK)
        except zlib.error as error:
            raise SpdyError(f"headers that cannot be unpacked: {error}") from error
        if self._inflate.unconsumed_tail:
            raise SpdyError(f"headers of more than {LONGEST_BLOCK} bytes")
        try:
            return headers_of(text)
        except struct.error as error:
            raise SpdyError("headers that break off") from error

    # --- out --------------------------------------------------------------------------------------

    def take(self) -> bytes:
        """The bytes to be sent, once."""
        out = bytes(self._out)
        self._out.clear()
        return out

    def open(self, headers: dict[str, str]) -> int:
        """Open a stream."""
        stream = self._next
        self._next += 2
        self._reading.add(stream)
        self._writing.add(stream)
        head = _PAIR.pack(stream, 0) + b"\0\0"
        self._control_frame(SYN_STREAM, head + self._block(headers))
        return stream

    def reply(self, stream: int) -> None:
        """Accept a stream that the peer has opened."""
        self._control_frame(SYN_REPLY, struct.pack(">I", stream) + self._block({}))

    def send(self, stream: int, data: bytes, end: bool = False) -> None:
        """Send bytes on a stream; does nothing if it is over."""
        if stream not in self._writing:
            return
        view = memoryview(data)
        at = 0
        while at < len(view):
            piece = view[at : at + CHUNK]
            at += len(piece)
            last = end and at == len(view)
            self._out += _FRAME.pack(stream, (FIN << 24 if last else 0) | len(piece))
            self._out += piece
        if end:
            if not data:
                self._out += _FRAME.pack(stream, FIN << 24)
            self._writing.discard(stream)

    def reset(self, stream: int, status: int = CANCEL) -> None:
        """End a stream in both directions."""
        if stream in self._reading or stream in self._writing:
            self._forget(stream)
            self._control_frame(RST_STREAM, _PAIR.pack(stream, status))

    def leave(self) -> None:
        """Announce the end of the connection."""
        self._control_frame(GOAWAY, _PAIR.pack(self._last_theirs, 0))

    def ping(self, number: int) -> None:
        self._control_frame(PING, struct.pack(">I", number))

    def _forget(self, stream: int) -> None:
        self._reading.discard(stream)
        self._writing.discard(stream)

    def _control_frame(self, kind: int, body: bytes) -> None:
        self._out += _FRAME.pack(0x80000000 | VERSION << 16 | kind, len(body)) + body

    def _block(self, headers: dict[str, str]) -> bytes:
        text = bytearray(struct.pack(">I", len(headers)))
        for name, value in headers.items():
            for word in (name.lower().encode(), value.encode()):
                text += struct.pack(">I", len(word)) + word
        return self._deflate.compress(bytes(text)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def number(body: bytes) -> int:
    """The stream or ping number at the beginning of a control frame.  Raises SpdyError."""
    if len(body) < 4:
        raise SpdyError("a control frame that breaks off")
    return int.from_bytes(body[:4], "big") & 0x7FFFFFFF


def headers_of(text: bytes) -> dict[str, str]:
    """Names (in lower case) and values; of several values the first.  Raises SpdyError,
    struct.error."""
    (count,) = struct.unpack_from(">I", text)
    if count > MOST_HEADERS:
        raise SpdyError(f"{count} headers on one stream; {MOST_HEADERS} are taken")
    at, words = 4, []
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", text, at)
        if length > len(text) - at - 4:
            raise SpdyError("headers that break off")
        words.append(text[at + 4 : at + 4 + length].decode("utf-8", "replace"))
        at += 4 + length
    return {name.lower(): value.partition("\0")[0] for name, value in zip(words[::2], words[1::2])}
