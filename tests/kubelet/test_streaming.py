"""Commands in containers and their consoles, while kubelets come and go."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from hekla.kube.http.upgrade import Opening
from hekla.kube.streams import websocket
from hekla.kube.streams.websocket import WebSocket
from hekla.local.kubelet.records import Launch, PodDirectory, PodRecord
from hekla.local.kubelet.runtime.logs import Clock
from hekla.local.kubelet.runtime.runtime import Runtime
from hekla.local.kubelet.streaming import console
from hekla.local.kubelet.streaming.attachment import attach
from hekla.local.kubelet.streaming.remote import SUCCESS, ExecOptions, Terminal
from tests.kubelet.live_cluster import PATIENCE, Cluster, cluster

HEADERS = websocket.request_headers(["v5.channel.k8s.io"])


async def run(c: Cluster, pod: str, *command: str) -> tuple[bytes, bytes]:
    """(output, status) of a command, over the API server's Unix socket."""
    loop = asyncio.get_running_loop()
    transport, opening = await loop.create_unix_connection(Opening, c.client.connection.target.unix)
    query = "&".join(
        [*(f"command={quote(word)}" for word in command), "stdout=true", "container=c"]
    )
    path = f"/api/v1/namespaces/{c.namespace}/pods/{pod}/exec?{query}"
    lines = [f"GET {path} HTTP/1.1", "Host: x", *(f"{k}: {v}" for k, v in HEADERS.items())]
    transport.write("\r\n".join([*lines, "", ""]).encode())
    status = await asyncio.wait_for(opening.answered, PATIENCE)
    assert status == 101, opening.body
    told: dict[int, bytes] = {}
    spoken = WebSocket(server=False)
    fed = 0
    for _ in range(3000):
        fresh, fed = opening.rest[fed:], len(opening.rest)
        for message in spoken.feed(fresh) if fresh else []:
            told[message[0]] = told.get(message[0], b"") + message[1:]
        if 3 in told:
            break
        await asyncio.sleep(0.02)
    transport.close()
    return told.get(1, b""), told.get(3, b"")


async def test_a_new_agent_runs_commands_in_the_old_ones_containers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.create("stayed", "sleep", "60")
        await c.phase("stayed", "Running")
        assert await run(c, "stayed", "echo", "one") == (
            b"one\n",
            b'{"metadata":{},"status":"Success"}',
        )
        c.kubelet.kill()
        c.kubelet.start()
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                assert (await run(c, "stayed", "echo", "two"))[0] == b"two\n"
                return
            except AssertionError:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.2)


async def test_a_command_that_is_not_there_is_an_error_of_the_request(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.create("room", "sleep", "60")
        await c.phase("room", "Running")
        said, status = await run(c, "room", "no-such-program")
        assert said == b"" and b'"reason":"InternalError"' in status
        assert b'exec: \\"no-such-program\\": executable file not found in $PATH' in status
        said, status = await run(c, "room", "/no/such/program")
        assert b"no such file or directory" in status
        # Which a command may say itself.
        said, status = await run(c, "room", "sh", "-c", "exit 126")
        assert b'"reason":"NonZeroExitCode"' in status


async def test_a_command_ends_with_its_client(tmp_path: Path) -> None:
    async with cluster(tmp_path) as c:
        await c.create("room", "sleep", "60")
        await c.phase("room", "Running")
        loop = asyncio.get_running_loop()
        transport, opening = await loop.create_unix_connection(
            Opening, c.client.connection.target.unix
        )
        words = "&".join(f"command={quote(word)}" for word in ("sh", "-c", "sleep 4711 & wait"))
        lines = [
            f"GET /api/v1/namespaces/{c.namespace}/pods/room/exec?{words}&stdout=true HTTP/1.1",
            "Host: x",
            *(f"{k}: {v}" for k, v in HEADERS.items()),
        ]
        transport.write("\r\n".join([*lines, "", ""]).encode())
        assert await asyncio.wait_for(opening.answered, PATIENCE) == 101

        async def until(there: bool) -> None:
            deadline = loop.time() + PATIENCE
            search = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 471[1]'; true"
            while ((await run(c, "room", "sh", "-c", search))[0] != b"0\n") != there:
                assert loop.time() < deadline
                await asyncio.sleep(0.1)

        await until(True)
        transport.abort()
        await until(False)


def prepared(root: Path, **more: Any) -> Any:
    directory = PodDirectory(root, "uid-1")
    directory.make(PodRecord("default", "p", "uid-1", "n", "127.0.0.1"))
    return directory.slot("c", 0), Launch(env={"PATH": os.environ["PATH"]}, cwd="/", **more)


class Typist(Terminal):
    """Types what it is given, and remembers what it is shown."""

    def __init__(self, *texts: bytes) -> None:
        super().__init__()
        self.texts = list(texts)
        self.shown = b""
        self.stdin = self  # type: ignore[assignment]

    async def read(self) -> bytes:
        return self.texts.pop(0) if self.texts else b""

    def drop(self) -> None:
        self.texts.clear()

    async def write(self, role: str, data: bytes) -> None:
        self.shown += data


async def test_standard_input_ends_with_the_first_who_typed(root: Path) -> None:
    slot, launch = prepared(root, argv=["sh", "-c", "cat; echo end"], stdin=True, stdin_once=True)
    ended = asyncio.Event()
    runtime = Runtime()
    try:
        await runtime.start(slot, launch, lambda _: ended.set())
        held = await console.connect(slot)
        assert held is not None
        await held.forward_input(Typist(b"one\n", b"two\n"))
        await asyncio.wait_for(ended.wait(), PATIENCE)
        held.close()
        assert slot.log.read_bytes() == b"one\ntwo\nend\n"
    finally:
        runtime.close()


class Slow(Typist):
    """Holds up the kubelet after what it typed until the container has answered, as a busy machine
    may."""

    def __init__(self, log: Path, *texts: bytes) -> None:
        super().__init__(*texts)
        self.log = log

    async def read(self) -> bytes:
        until = time.monotonic() + 10
        while not self.texts and not self.log.stat().st_size and time.monotonic() < until:
            time.sleep(0.001)
        return await super().read()

    async def finish(self, status: Mapping[str, Any]) -> None:
        self.status = status


@pytest.mark.parametrize("split", [True, False])
async def test_an_answer_that_comes_at_once_is_shown(root: Path, split: bool) -> None:
    slot, launch = prepared(
        root,
        argv=["sh", "-c", "read line; echo heard $line"],
        stdin=True,
        stdin_once=True,
        split=split,
    )
    runtime, clock = Runtime(), Clock()
    clock.start()
    try:
        await runtime.start(slot, launch, lambda _: None)
        clock.follow(slot)
        typist = Slow(slot.log, b"one\n")
        await asyncio.wait_for(
            attach(slot, ExecOptions(stdin=True, stdout=True, stderr=True), typist, clock), PATIENCE
        )
        assert typist.shown == b"heard one\n" and typist.status == SUCCESS
    finally:
        clock.close()
        runtime.close()


async def test_a_terminal_outlives_the_runtime_that_started_it(root: Path) -> None:
    slot, launch = prepared(root, argv=["sh"], tty=True, stdin=True)
    first = Runtime()
    await first.start(slot, launch, lambda _: None)
    first.close()
    second, ended = Runtime(), asyncio.Event()
    try:
        instance = second.adopt(slot, lambda _: ended.set())
        assert instance is not None and instance.exit is None
        held = await console.connect(slot)
        assert held is not None
        typist = Typist(b"stty size; echo se''en; exit 3\n")
        held.send(b"r", console.SIZE.pack(33, 99))
        await asyncio.wait_for(held.run(typist, True), PATIENCE)
        assert b"33 99" in typist.shown and b"\r\nseen" in typist.shown
        await asyncio.wait_for(ended.wait(), PATIENCE)
        assert instance.exit is not None and instance.exit.code == 3
        assert b"seen" in slot.log.read_bytes()
        for _ in range(400):  # the holder ends a moment after what it holds
            if not console.draining(slot):
                break
            await asyncio.sleep(0.05)
        assert not console.draining(slot)
    finally:
        second.close()
