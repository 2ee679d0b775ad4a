"""The HTTP client against servers that behave, and servers that do not."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.connection.tls import Pem, TlsSource
from hekla.kube.http.client import HttpClient, Target, TimedOut, TransportError, _Connection
from hekla.kube.http.message import Request, Response, Stream
from hekla.kube.http.proxy import Proxy, from_environment
from hekla.kube.http.server import serve
from tests.kube.sockets import OK, Certificates, make_certificates, read_request, scripted


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("pki"))


async def test_many_requests_share_few_connections(socket: Path) -> None:
    connections = 0
    most = 0
    running = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, running, most
        connections += 1
        while True:
            head, body = await read_request(reader)
            if not head:
                return
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            writer.write(
                b"HTTP/1.1 201 Created\r\nX-Seen: yes\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=4)
        answers = await asyncio.gather(
            *(client.request("POST", f"/{i}", b"", b"body %d" % i) for i in range(100))
        )
        await client.close()

    assert [answer.body for answer in answers] == [b"body %d" % i for i in range(100)]
    assert {answer.status for answer in answers} == {201}
    assert answers[0].header(b"x-seen") == "yes"
    assert answers[0].header(b"x-missing") == ""
    assert connections == 4
    assert most <= 4


async def test_what_is_sent(socket: Path) -> None:
    seen: list[tuple[str, bytes]] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await read_request(reader))
            writer.write(OK)

    async with scripted(script, socket) as target:
        client = HttpClient(target)
        await client.request("PATCH", "/api/v1/pods/a?x=1", b"Accept: application/json\r\n", b"{}")
        await client.request("GET", "/", b"")
        big = b"x" * 1_000_000
        await client.request("PUT", "/big", b"", big)
        await client.close()

    lines = seen[0][0].split("\r\n")
    assert lines[0] == "PATCH /api/v1/pods/a?x=1 HTTP/1.1"
    assert set(lines[1:]) == {
        "Host: localhost",
        "Accept: application/json",
        "Content-Length: 2",
        "",
    }
    assert seen[2][1] == big


async def test_answers_in_pieces_chunked_and_up_to_the_close(socket: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nfoo\r\n3\r\nbar\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end",
        ):
            head, _ = await read_request(reader)
            if not head:
                return
            for byte in answer:
                writer.write(bytes([byte]))
                await writer.drain()
                if byte == 10:
                    await asyncio.sleep(0)

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        bodies = [(await client.request("GET", "/")).body for _ in range(4)]
        await client.close()
    assert bodies == [b"hello", b"foobar", b"", b"until the end"]


async def test_a_kept_connection_that_died_is_replaced_for_what_may_be_repeated(
    socket: Path,
) -> None:
    requests: list[str] = []

    async def one_answer_a_connection(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head, _ = await read_request(reader)
        requests.append(head.split(" ")[0])
        writer.write(OK)
        await read_request(reader)  # takes the next one and hangs up without a word

    async with scripted(one_answer_a_connection, socket) as target:
        client = HttpClient(target, pool=1)
        await client.request("GET", "/")
        assert (await client.request("GET", "/")).body == b"ok"
        assert (await client.request("DELETE", "/")).body == b"ok"
        with pytest.raises(TransportError) as caught:
            await client.request("POST", "/")
        assert caught.value.sent
        assert (await client.request("POST", "/")).body == b"ok"
        await client.close()
    assert requests == ["GET", "GET", "DELETE", "POST"]


async def test_a_server_that_is_not_there(socket: Path) -> None:
    client = HttpClient(Target(unix=str(socket)))
    with pytest.raises(TransportError, match="no such socket; the server is not running") as caught:
        await client.request("GET", "/")
    assert not caught.value.sent
    other = HttpClient(Target("127.0.0.1", 1))
    with pytest.raises(TransportError, match="connection refused"):
        await other.request("GET", "/")


async def test_waiting_requests_survive_a_failed_connection(socket: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if "GET /good" in head:
            writer.write(OK)
            await read_request(reader)

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        paths = ["/bad", "/good", "/bad", "/good"]
        answers = await asyncio.gather(
            *(client.request("GET", path) for path in paths), return_exceptions=True
        )
        await client.close()
    assert [type(answer).__name__ for answer in answers] == [
        "TransportError",
        "Response",
        "TransportError",
        "Response",
    ]


async def test_a_request_that_takes_too_long(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hekla.kube.http.client.SWEEP_PERIOD", 0.01)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if "/slow" not in head:
            writer.write(OK)
        await read_request(reader)

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        with pytest.raises(TimedOut, match="no answer within the time allowed"):
            await client.request("GET", "/slow", timeout=0.01)
        assert (await client.request("GET", "/fast")).body == b"ok"
        await client.close()


async def test_what_goes_first_waits_for_one_answer_only(socket: Path) -> None:
    served: list[str] = []
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, _ = await read_request(reader)
            if not head:
                return
            served.append(head.split()[1])
            await go_on.wait()
            writer.write(OK)

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        work = [asyncio.ensure_future(client.request("POST", f"/work{i}")) for i in range(3)]
        await asyncio.sleep(0)  # all of them wait now, but for the one that has the connection
        first = [
            asyncio.ensure_future(client.request("GET", f"/first{i}", urgent=True))
            for i in range(2)
        ]
        await asyncio.sleep(0)
        first[0].cancel()
        go_on.set()
        await asyncio.gather(*work, first[1])
        await client.close()
    assert served == ["/work0", "/first1", "/work1", "/work2"]


async def test_a_request_given_up_frees_its_place(socket: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        if "/slow" in head:
            await read_request(reader)
        writer.write(OK)

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        slow = asyncio.ensure_future(client.request("GET", "/slow"))
        waiting = asyncio.ensure_future(client.request("GET", "/waiting"))
        next_one = asyncio.ensure_future(client.request("GET", "/next"))
        await asyncio.sleep(0.02)
        waiting.cancel()
        slow.cancel()
        assert (await next_one).body == b"ok"
        await client.close()


async def test_a_request_given_up_as_its_answer_comes_disturbs_nobody(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (await read_request(reader))[0]:
            writer.write(OK)

    tasks: list[asyncio.Task[Any]] = []
    complete = _Connection.on_message_complete

    def complete_and_cancel(connection: _Connection) -> None:
        """The second request takes the connection before the first, cancelled with its answer
        there, runs again."""
        if len(tasks) == 1:
            tasks.append(asyncio.ensure_future(client.request("GET", "/second")))
            complete(connection)
            tasks[0].cancel()
        else:
            complete(connection)

    monkeypatch.setattr(_Connection, "on_message_complete", complete_and_cancel)
    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=1)
        tasks.append(asyncio.ensure_future(client.request("GET", "/first")))
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        async with asyncio.timeout(20):
            assert (await tasks[1]).body == b"ok"
        await client.close()


async def test_nonsense_is_an_error_not_a_hang(socket: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"220 this is a mail server\r\n")

    async with scripted(script, socket) as target:
        client = HttpClient(target)
        with pytest.raises(TransportError, match=r"the answer is not HTTP/1\.1"):
            await client.request("GET", "/")
        await client.close()


async def test_a_stream_is_read_while_it_comes(socket: Path) -> None:
    gate = asyncio.Event()

    async def handler(request: Request) -> Stream:
        async def run(body) -> None:  # type: ignore[no-untyped-def]
            body.write(b"one\n")
            await gate.wait()
            body.write(b"two\n")

        return Stream(run)

    server = await serve(handler, unix=socket)
    client = HttpClient(Target(unix=str(socket)))
    stream = await client.stream("GET", "/watch")
    assert stream.status == 200
    assert stream.header(b"content-type") == "application/json"
    assert await stream.read() == b"one\n"
    gate.set()
    assert await stream.read() == b"two\n"
    assert await stream.read() == b""
    await client.close()
    await server.close()


async def test_a_stream_that_nobody_reads_is_held_back(socket: Path) -> None:
    written = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()
            written += 65536
        writer.write(b"0\r\n\r\n")

    async with scripted(script, socket) as target:
        client = HttpClient(target)
        stream = await client.stream("GET", "/")
        for _ in range(100):
            await asyncio.sleep(0.002)
        assert written < 4 << 20
        assert len(await stream.read_all()) == 200 * 65536
        await client.close()


async def test_a_broken_stream_says_so_after_what_came(socket: Path) -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await writer.drain()

    async with scripted(script, socket) as target:
        client = HttpClient(target)
        stream = await client.stream("GET", "/")
        assert await stream.read() == b"one\n"
        with pytest.raises(TransportError):
            await stream.read()
        await client.close()


async def test_tls_with_a_client_certificate(certificates: Certificates) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, f"{request.peer.common_name} {request.peer.organizations}".encode())

    server = await serve(handler, port=0, ssl=certificates.server_context())
    trusting = TlsSource(
        Pem("ca", path=certificates.authority),
        Pem("cert", path=certificates.client),
        Pem("key", text=certificates.client_key.read_text()),
    )
    client = HttpClient(Target("127.0.0.1", server.port, tls=trusting.context))
    assert (await client.request("GET", "/")).body == b"alice ('system:masters',)"
    await client.close()

    distrusting = HttpClient(Target("127.0.0.1", server.port, tls=TlsSource().context))
    with pytest.raises(TransportError, match="the server's certificate is not trusted"):
        await distrusting.request("GET", "/")

    careless = HttpClient(Target("127.0.0.1", server.port, tls=TlsSource(insecure=True).context))
    assert (await careless.request("GET", "/")).body == b" ()"
    await careless.close()

    authority = TlsSource(Pem("ca", path=certificates.authority))
    wrong_name = HttpClient(
        Target("127.0.0.1", server.port, tls=authority.context, server_name="elsewhere.test")
    )
    with pytest.raises(TransportError, match="not trusted"):
        await wrong_name.request("GET", "/")
    right_name = HttpClient(
        Target("127.0.0.1", server.port, tls=authority.context, server_name="cluster.test")
    )
    assert (await right_name.request("GET", "/")).status == 200
    await right_name.close()
    await server.close()


async def test_a_rotated_certificate_file_is_taken_up(
    certificates: Certificates, tmp_path: Path
) -> None:
    copy = tmp_path / "client.crt"
    copy.write_bytes(certificates.client.read_bytes())
    source = TlsSource(
        certificate=Pem("cert", path=copy), key=Pem("key", path=certificates.client_key)
    )
    first = source.context()
    assert source.context() is first
    import os

    os.utime(copy, (1, 1))
    assert source.context() is not first


async def test_through_a_proxy(certificates: Certificates, tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: Request) -> Response:
        return Response(200, b"through")

    server = await serve(answer, port=0, ssl=certificates.server_context())

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head, _ = await read_request(reader)
        asked.append(head)
        if not head.startswith("CONNECT 127.0.0.1:"):
            writer.write(OK)
            return
        onward, to_server = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, to_server), pump(onward, writer))

    listener = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    through = Proxy.parse(f"http://user:secret@127.0.0.1:{port}")
    tls = TlsSource(Pem("ca", path=certificates.authority))
    client = HttpClient(Target("127.0.0.1", server.port, tls=tls.context, proxy=through))
    assert (await client.request("GET", "/")).body == b"through"
    await client.close()
    assert "Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in asked[0]

    plain = HttpClient(Target("cluster.test", 8080, proxy=through))
    assert (await plain.request("GET", "/version")).body == b"ok"
    assert asked[1].startswith("GET http://cluster.test:8080/version HTTP/1.1\r\n")
    await plain.close()
    listener.close()
    await server.close()


@pytest.mark.parametrize(
    ("host", "rules", "proxied"),
    [
        ("api.example.com", "", True),
        ("127.0.0.1", "", False),
        ("localhost", "", False),
        ("api.example.com", "example.com", False),
        ("api.example.com", ".example.com", False),
        ("example.com", ".example.com", True),
        ("badexample.com", "example.com", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3:6443", False),
        ("10.1.2.3", "10.1.2.3:1", True),
        ("anything", "*", False),
    ],
)
def test_which_servers_the_environments_proxy_is_for(host: str, rules: str, proxied: bool) -> None:
    environment = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": rules}
    assert (from_environment(host, 6443, True, environment) is not None) == proxied


def test_a_proxy_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme 'socks5' are not supported"):
        Proxy.parse("socks5://proxy:1080")


@pytest.mark.parametrize("seed", range(5))
async def test_a_flaky_server_and_impatient_callers_leave_the_pool_whole(
    socket: Path, seed: int
) -> None:
    draw = random.Random(seed)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await read_request(reader)
            if not head:
                return
            fate = draw.random()
            if fate < 0.05:
                return  # hangs up without an answer
            if fate < 0.10:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
                return
            if fate < 0.15:
                writer.write(b"nonsense\r\n\r\n")
                return
            if fate < 0.3:
                await asyncio.sleep(draw.random() * 0.003)
            close = b"Connection: close\r\n" if fate > 0.95 else b""
            writer.write(
                b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (close, len(body), body)
            )
            if close:
                return

    async def caller(client: HttpClient, number: int) -> str:
        body = b"%d" % number
        try:
            async with asyncio.timeout(draw.choice((0.001, 0.004, 5))):
                answer = await client.request(draw.choice(("GET", "POST", "PUT")), "/", b"", body)
        except TransportError:
            return "failed"
        except TimeoutError:
            return "gave up"
        assert answer.body == body  # never somebody else's answer
        return "answered"

    async with scripted(script, socket) as target:
        client = HttpClient(target, pool=5)
        async with asyncio.timeout(30):
            outcomes = await asyncio.gather(*(caller(client, i) for i in range(400)))
        assert {"answered", "failed"} <= set(outcomes)
        async with asyncio.timeout(20):
            while client._busy or client._open != len(client._idle):
                client._idle = [c for c in client._idle if not c.closed]
                await asyncio.sleep(0.001)
        assert client._open <= 5
        assert not any(not waiter.done() for waiter in client._waiters)
        await client.close()
