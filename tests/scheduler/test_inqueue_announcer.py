"""PodGroups that are let in together are announced together, while somebody reads it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from hekla.api import inqueue
from hekla.kube.errors import ApiError, Forbidden, NotFound
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.kube.http.client import TransportError
from hekla.scheduler import inqueue_announcer
from hekla.scheduler.inqueue_announcer import FLOOD, FLOOD_IF_BUSY, InqueueAnnouncer


class Server:
    """Keeps what is announced; `answer` is set when it answers."""

    def __init__(self) -> None:
        self.debounce = AdaptiveDebounce()
        self.announced: list[list[tuple[str, str]]] = []
        self.one_by_one: list[str] = []
        self.answer = asyncio.Event()
        self.error: Exception | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.announcer = InqueueAnnouncer(self, "home", self.launch, self.one_by_one.extend)  # type: ignore[arg-type]

    def launch(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))

    async def patch(self, kind: Any, name: str, patch: dict[str, Any], namespace: str) -> None:
        assert (kind.plural, name, namespace) == ("configmaps", inqueue.NAME, "home")
        await self.answer.wait()
        if self.error is not None:
            raise self.error
        self.announced.append(inqueue.read(patch["data"][inqueue.KEY]))

    def let_in(self, *numbers: int) -> list[bool]:
        return [self.announcer.announce(f"default/g{n}", f"uid-{n}") for n in numbers]

    async def settle(self) -> None:
        self.answer.set()
        await asyncio.gather(*self.tasks)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    yield made
    await made.settle()


async def test_few_groups_are_let_in_one_by_one(server: Server) -> None:
    assert server.let_in(*range(FLOOD)) == [False] * FLOOD
    await server.settle()
    assert server.announced == []


async def test_in_a_flood_what_comes_while_one_is_on_its_way_goes_with_the_next(
    server: Server,
) -> None:
    server.let_in(*range(FLOOD))
    assert server.let_in(100) == [True]
    await asyncio.sleep(0)
    assert server.let_in(101, 102, 103) == [True] * 3
    await server.settle()
    assert server.announced == [
        [("default/g100", "uid-100")],
        [("default/g101", "uid-101"), ("default/g102", "uid-102"), ("default/g103", "uid-103")],
    ]


async def test_a_flood_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.let_in(*range(FLOOD))
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + 2.0)
    assert server.let_in(100) == [False]


async def test_on_a_busy_server_fewer_are_a_flood(server: Server) -> None:
    for _ in range(100):
        server.debounce.observe(time.monotonic() - 1.0)
    assert server.let_in(*range(FLOOD_IF_BUSY)) == [False] * FLOOD_IF_BUSY
    assert server.let_in(100) == [True]


async def test_without_a_namespace_nothing_is_announced() -> None:
    server = Server()
    server.announcer = InqueueAnnouncer(server, "", server.launch, server.one_by_one.extend)  # type: ignore[arg-type]
    assert server.let_in(*range(2 * FLOOD)) == [False] * (2 * FLOOD)


@pytest.mark.parametrize(
    ("error", "silent"),
    [
        (NotFound(404, "NotFound", "nobody reads"), True),
        (Forbidden(403, "Forbidden", "not for this account"), True),
        (ApiError(500, "InternalError", "no disk"), False),
        (TransportError("the server has gone", sent=True), False),
    ],
)
async def test_what_could_not_be_announced_is_let_in_one_by_one(
    server: Server, error: Exception, silent: bool
) -> None:
    server.error = error
    server.let_in(*range(FLOOD), 100)
    await asyncio.sleep(0)
    server.let_in(101)
    await server.settle()
    assert server.one_by_one == ["default/g100", "default/g101"]
    assert server.let_in(102) == [not silent]


async def test_somebody_reads_once_the_pods_of_an_announced_group_have_come(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.let_in(*range(FLOOD), 100, 101)
    server.announcer.heard("default/g1")
    assert not server.announcer.is_heard, "it was let in by itself"
    server.announcer.forget("default/g101")
    server.announcer.heard("default/g101")
    assert not server.announcer.is_heard, "its phase was written"
    server.announcer.heard("default/g100")
    assert server.announcer.is_heard
    loop = asyncio.get_running_loop()
    now = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now + inqueue_announcer.HEARD)
    assert not server.announcer.is_heard


def test_lines_that_name_no_group_are_passed_over() -> None:
    groups = [("default/a", "1"), ("other/b", "2")]
    assert inqueue.read(inqueue.written(groups) + "\nodd\na b c\n") == groups
