"""No more requests are in flight than help."""

from __future__ import annotations

import asyncio
import contextlib
import heapq

import pytest

from hekla.kube.flowcontrol.concurrency_limit import LEAST, LESS, QUICK, ROUND, ConcurrencyLimit


class Server:
    """Works on `cores` requests at a time, `work` seconds on each, and queues the others; `far` is
    the way there and back.  Time passes when it answers."""

    def __init__(self, cores: int, work: float, far: float = 0.0) -> None:
        self.cores, self.work, self.far = cores, work, far
        self.now = 100.0
        self.limit = ConcurrencyLimit(64, lambda: self.now)
        self.answers: list[tuple[float, float]] = []
        """(when, sent) of the requests in flight."""
        self.free_at = [0.0] * cores

    def send(self) -> None:
        begun = max(self.now + self.far / 2, heapq.heappop(self.free_at))
        heapq.heappush(self.free_at, begun + self.work)
        heapq.heappush(self.answers, (begun + self.work + self.far / 2, self.now))

    async def flood(self, requests: int) -> float:
        """So many requests that all wish to be sent at once; gives the seconds that they took."""
        began = self.now
        waiting = [asyncio.ensure_future(self.limit.enter()) for _ in range(requests)]
        unsent = set(waiting)
        while unsent or self.answers:
            for _ in range(3):
                await asyncio.sleep(0)
            for _ in [unsent.discard(one) for one in list(unsent) if one.done()]:
                self.send()
            self.now, sent = heapq.heappop(self.answers)
            self.limit.leave()
            self.limit.observe(sent)
        return self.now - began


async def test_a_quick_server_is_given_all_that_there_is() -> None:
    server = Server(cores=8, work=0.002)
    await server.flood(2000)
    assert server.limit.allowed == 64


async def test_what_only_waits_in_the_servers_queue_is_not_sent_and_nothing_takes_longer() -> None:
    server = Server(cores=2, work=0.004)
    seconds = await server.flood(2000)
    assert server.limit.allowed * 0.004 / 2 < 1.5 * QUICK
    assert seconds == pytest.approx(2000 * 0.004 / 2, rel=0.01)


async def test_a_server_that_is_far_away_is_not_taken_for_a_busy_one() -> None:
    server = Server(cores=64, work=0.001, far=0.2)
    await server.flood(2000)
    assert server.limit.allowed == 64


async def test_it_grows_again_when_the_server_has_become_quick() -> None:
    server = Server(cores=1, work=0.02)
    await server.flood(500)
    assert server.limit.allowed == LEAST
    server.free_at, server.work = [server.now] * 16, 0.002
    await server.flood(3000)
    assert server.limit.allowed == 64


async def test_it_does_not_grow_while_it_is_in_nobodys_way() -> None:
    server = Server(cores=1, work=0.02)
    await server.flood(500)
    server.work = 0.001
    for _ in range(500):
        await server.flood(1)
    assert server.limit.allowed == LEAST


async def test_a_refusal_for_too_many_requests_takes_a_part() -> None:
    limit = ConcurrencyLimit(64)
    limit.refused()
    assert limit.allowed == int(64 * LESS)
    for _ in range(20):
        limit.refused()
    assert limit.allowed == LEAST


async def test_responses_to_requests_of_an_earlier_limit_decide_nothing() -> None:
    now = 100.0
    limit = ConcurrencyLimit(8, lambda: now)
    now += 1
    limit.refused()
    for _ in range(10 * ROUND):
        limit.observe(now - 0.5)
    assert limit.allowed == 6


async def test_the_first_that_waits_is_the_first_to_pass_and_who_gives_up_takes_no_place() -> None:
    limit = ConcurrencyLimit(1)
    await limit.enter()
    order: list[str] = []

    async def pass_as(name: str) -> None:
        await limit.enter()
        order.append(name)

    first, second, third = (asyncio.ensure_future(pass_as(name)) for name in "abc")
    await asyncio.sleep(0)
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    limit.leave()
    second.cancel()  # its turn has come, and it does not know it yet
    with contextlib.suppress(asyncio.CancelledError):
        await second
    await third
    assert (order, limit.in_flight) == (["c"], 1)
