"""The work queue: each key once, in order, later when it failed."""

from __future__ import annotations

import asyncio

import pytest

from hekla.kube.workqueue import ShutDown, WorkQueue
from tests.kube.virtual_time import now, run


def test_a_key_is_in_the_queue_once_and_the_order_is_kept() -> None:
    async def story() -> None:
        queue = WorkQueue()
        for key in ("a", "b", "a", "c", "b"):
            queue.add(key)
        assert len(queue) == 3
        assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]

    run(story())


def test_urgent_keys_come_before_all_others() -> None:
    async def story() -> None:
        queue = WorkQueue()
        for key in ("new-1", "new-2"):
            queue.add(key)
        queue.add("let-in-1", urgent=True)
        queue.add("let-in-2", urgent=True)
        queue.add("new-2", urgent=True)  # waits already
        assert len(queue) == 4 and not queue.idle
        taken = [await queue.get() for _ in range(4)]
        assert taken == ["let-in-1", "let-in-2", "new-1", "new-2"]
        for key in taken:
            queue.done(key)
        assert queue.idle

        waiting = asyncio.ensure_future(queue.get())
        await asyncio.sleep(0)
        queue.add("let-in-1", urgent=True)
        queue.close()
        assert await waiting == "let-in-1"

    run(story())


def test_a_key_added_while_in_work_comes_back_when_that_is_done() -> None:
    async def story() -> None:
        queue = WorkQueue()
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")
        queue.add("a")
        queue.add("b")
        assert await queue.get() == "b"
        assert len(queue) == 0
        queue.done("a")
        assert await queue.get() == "a"
        queue.done("a")
        queue.done("b")
        assert queue.idle

    run(story())


def test_failures_come_back_later_and_later_until_forgotten() -> None:
    async def story() -> None:
        queue = WorkQueue()
        delays = []
        for _ in range(5):
            began = now()
            queue.add_rate_limited("a")
            assert await queue.get() == "a"
            queue.done("a")
            delays.append(round(now() - began, 4))
        assert delays == [0.005, 0.01, 0.02, 0.04, 0.08]
        assert queue.failures("a") == 5
        queue.forget("a")
        assert queue.add_rate_limited("a") == 0.005
        for _ in range(100):
            assert queue.add_rate_limited("b") <= 60

    run(story())


def test_of_several_delays_the_earliest_counts() -> None:
    async def story() -> None:
        queue = WorkQueue()
        queue.add_after("a", 10)
        queue.add_after("a", 3)
        queue.add_after("a", 7)
        queue.add_after("b", 5)
        assert (await queue.get(), round(now(), 3)) == ("a", 3)
        assert (await queue.get(), round(now(), 3)) == ("b", 5)
        queue.done("a")
        queue.add_after("a", 0)
        assert await queue.get() == "a"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.get(), 100)

    run(story())


def test_workers_each_get_a_key_even_if_one_gives_up() -> None:
    async def story() -> None:
        queue = WorkQueue()
        workers = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.add("a")
        workers[0].cancel()  # woken and cancelled in the same moment
        queue.add("b")
        assert sorted(await asyncio.gather(*workers[1:])) == ["a", "b"]

    run(story())


def test_a_closed_queue_gives_what_it_has() -> None:
    async def story() -> None:
        queue = WorkQueue("q")
        queue.add("a")
        waiting = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.close()
        queue.add("late")
        assert await waiting[0] == "a"
        for worker in waiting[1:]:
            with pytest.raises(ShutDown):
                await worker

    run(story())


def test_delays_with_a_callback_queue_nothing_and_end_with_the_queue() -> None:
    async def story() -> None:
        queue = WorkQueue()
        fallen: list[tuple[str, float]] = []
        aside = queue.delays_for(lambda key: fallen.append((key, round(now(), 2))))
        aside.after("a", 3.0)
        aside.after("b", 2.0)
        aside.after("a", 1.0)
        aside.after("b", 4.0)
        queue.add_after("c", 1.5)
        assert len(aside) == 2 and queue.delayed == 1
        assert await queue.get() == "c"
        await asyncio.sleep(5.0)
        assert fallen == [("a", 1.0), ("b", 2.0)]
        assert not len(aside) and not len(queue)

        aside.after("late", 1.0)
        queue.close()
        await asyncio.sleep(5.0)
        assert len(fallen) == 2

    run(story())
