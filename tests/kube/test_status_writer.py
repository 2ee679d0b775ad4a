"""What nobody waits for goes out a few at a time, the newest text of each object."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hekla.kube.status_writer import StatusWriter


class Slow:
    """A server that answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.answers: list[asyncio.Event] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.lane = StatusWriter(self.launch, width=2)

    def launch(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.ensure_future(work))

    def tell(self, name: str, text: str) -> None:
        self.lane.put(name, lambda: asyncio.ensure_future(self.write(f"{name}: {text}")))

    async def write(self, text: str) -> None:
        self.sent.append(text)
        self.answers.append(asyncio.Event())
        await self.answers[-1].wait()

    async def so_far(self) -> list[str]:
        for _ in range(8):
            await asyncio.sleep(0)
        return self.sent

    async def answer_all(self) -> list[str]:
        while any(not task.done() for task in self.tasks):
            for answer in self.answers:
                answer.set()
            await asyncio.sleep(0)
        return self.sent


async def test_few_are_on_their_way() -> None:
    server = Slow()
    for number in range(5):
        server.tell(f"pod-{number}", "waits")
    assert await server.so_far() == ["pod-0: waits", "pod-1: waits"]
    server.answers[1].set()
    assert await server.so_far() == ["pod-0: waits", "pod-1: waits", "pod-2: waits"]
    assert len(await server.answer_all()) == 5


async def test_the_newest_text_keeps_the_place_of_the_oldest() -> None:
    server = Slow()
    for name in "abcd":
        server.tell(name, "first")
    await server.so_far()
    server.tell("c", "second")
    server.tell("a", "second")
    assert await server.answer_all() == [
        "a: first",
        "b: first",
        "c: second",
        "d: first",
        "a: second",
    ]


async def test_what_has_nothing_to_tell_any_more_makes_room_for_the_next() -> None:
    server = Slow()
    for name in "abc":
        server.lane.put(name, lambda: None)
    server.tell("d", "waits")
    assert await server.answer_all() == ["d: waits"]


async def test_a_write_that_fails_does_not_stop_the_others() -> None:
    server = Slow()

    async def fail() -> None:
        raise ValueError("as broken as can be")

    failing: list[asyncio.Task[None]] = []

    def start() -> asyncio.Task[None]:
        failing.append(asyncio.ensure_future(fail()))
        return failing[-1]

    server.lane.width = 1
    server.lane.put("a", start)
    server.tell("b", "waits")
    assert await server.answer_all() == ["b: waits"]
    assert isinstance(failing[0].exception(), ValueError)


async def test_it_goes_on_after_it_was_empty() -> None:
    server = Slow()
    server.tell("a", "first")
    await server.answer_all()
    server.tell("a", "second")
    assert await server.answer_all() == ["a: first", "a: second"]


async def test_a_long_queue_is_given_more_room_for_as_long_as_it_is_long() -> None:
    server = Slow()
    for number in range(100):
        server.tell(f"pod-{number}", "waits")
    assert len(await server.so_far()) == 2 + 3
    server.answers[0].set()
    await server.so_far()
    assert server.lane.workers == 2 + 2
    assert len(await server.answer_all()) == 100


async def test_what_was_overtaken_is_not_told() -> None:
    server = Slow()
    for name in "abc":
        server.tell(name, "waits")
    await server.so_far()
    server.lane.drop("c")
    assert await server.answer_all() == ["a: waits", "b: waits"]
