"""SPDY and WebSocket, frames in and events out: what is said arrives, and nothing that comes breaks
more than its connection."""

from __future__ import annotations

import struct
import zlib

from hypothesis import given, settings
from hypothesis import strategies as some

from hekla.kube.streams import spdy, websocket
from hekla.kube.streams.spdy import Data, Leaving, Opened, Replied, Reset, Session, SpdyError
from hekla.kube.streams.websocket import WebSocket, WebSocketError

NAMES = some.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[begin:end] for begin, end in zip([0, *at], [*at, len(data)])]


def test_the_dictionary_is_the_one_that_all_ends_have() -> None:
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_a_conversation() -> None:
    client, server = Session(server=False), Session(server=True)
    stream = client.open({"streamType": "error", "Port": "80"})
    client.send(stream, b"hello")
    client.send(stream, b"", end=True)
    assert server.feed(client.take()) == [
        Opened(stream, {"streamtype": "error", "port": "80"}),
        Data(stream, b"hello"),
        Data(stream, b"", True),
    ]
    server.reply(stream)
    server.send(stream, b"answer", end=True)
    server.leave()
    assert client.feed(server.take()) == [Replied(stream), Data(stream, b"answer", True), Leaving()]


def test_pings_are_answered_and_answers_are_not() -> None:
    client, server = Session(server=False), Session(server=True)
    client.ping(1)
    server.feed(client.take())
    answer = server.take()
    assert answer == struct.pack(">III", 0x80030006, 4, 1)
    client.feed(answer)
    assert client.take() == b""


def test_data_of_a_stream_that_is_over_resets_it_alone() -> None:
    client, server = Session(server=False), Session(server=True)
    one, two = client.open({"a": "b"}), client.open({"a": "c"})
    server.feed(client.take())
    server.reset(one)
    client.send(one, b"late")
    client.send(two, b"kept")
    assert server.feed(client.take()) == [Data(two, b"kept")]
    assert [type(event) for event in client.feed(server.take())] == [Reset]


@settings(max_examples=60, deadline=None)
@given(
    some.lists(
        some.tuples(some.dictionaries(NAMES, NAMES, max_size=5), some.binary(max_size=70_000)),
        max_size=5,
    ),
    some.lists(some.integers(0, 1 << 20), max_size=8),
)
def test_whatever_is_said_arrives_however_it_is_cut(
    told: list[tuple[dict[str, str], bytes]], cuts: list[int]
) -> None:
    client, server = Session(server=False), Session(server=True)
    streams = {}
    for headers, data in told:
        stream = client.open(headers)
        client.send(stream, data, end=True)
        streams[stream] = (headers, data)
    heard: dict[int, tuple[dict[str, str], bytes]] = {}
    for piece in pieces(client.take(), cuts):
        for event in server.feed(piece):
            if isinstance(event, Opened):
                heard[event.stream] = (event.headers, b"")
            elif isinstance(event, Data):
                headers, before = heard[event.stream]
                heard[event.stream] = (headers, before + event.data)
    assert heard == streams


@settings(max_examples=300, deadline=None)
@given(some.lists(some.one_of(
    some.binary(max_size=40),
    some.builds(lambda kind, flags, body: struct.pack(">II", 0x80030000 | kind, flags << 24 | len(body)) + body,
                some.integers(0, 12), some.integers(0, 255), some.binary(max_size=40)),
    some.builds(lambda stream, body: struct.pack(">II", stream, len(body)) + body, some.integers(0, 9), some.binary(max_size=40)),
), max_size=12))  # fmt: skip
def test_rubbish_ends_the_connection_and_nothing_else(parts: list[bytes]) -> None:
    server = Session(server=True)
    try:
        for part in parts:
            server.feed(part)
            server.take()
    except SpdyError as error:
        assert str(error)


def test_headers_that_unpack_to_megabytes_are_refused() -> None:
    pack = zlib.compressobj(zdict=spdy.DICTIONARY)
    block = pack.compress(b"\0" * (64 << 20)) + pack.flush(zlib.Z_SYNC_FLUSH)
    body = struct.pack(">II", 1, 0) + b"\0\0" + block
    server = Session(server=True)
    try:
        server.feed(struct.pack(">II", 0x80030001, len(body)) + body)
    except SpdyError as error:
        assert "more than" in str(error)
    else:
        raise AssertionError("64 MiB of headers were taken")


def test_a_websocket_joins_fragments_and_answers_pings() -> None:
    client, server = WebSocket(server=False), WebSocket(server=True)
    client.send(b"one")
    client.ping()
    client.send(b"\x00" * 70_000)
    assert server.feed(client.take()) == [b"one", b"\x00" * 70_000]
    assert client.feed(server.take()) == []
    first, last = (
        bytes((0x02, 0x83)) + b"\0\0\0\0" + b"abc",
        bytes((0x80, 0x82)) + b"\0\0\0\0" + b"de",
    )
    assert server.feed(first) == []
    assert server.feed(last) == [b"abcde"]
    client.close()
    server.feed(client.take())
    assert server.closed


@settings(max_examples=200, deadline=None)
@given(some.binary(max_size=200))
def test_rubbish_ends_a_websocket(data: bytes) -> None:
    server = WebSocket(server=True)
    try:
        server.feed(data)
        server.take()
    except WebSocketError as error:
        assert str(error)


def test_the_handshake() -> None:
    # The key and answer of RFC 6455, section 1.3.
    assert websocket.accepts("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
    headers = {
        name.lower(): value for name, value in websocket.request_headers(["v5", "v4"]).items()
    }
    assert websocket.is_upgrade(headers) and websocket.offered(headers) == ["v5", "v4"]
