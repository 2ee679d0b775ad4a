"""When the scheduler's next cycle starts."""

from __future__ import annotations

import asyncio
import time

from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.scheduler.cycle_timer import GATHER, LONGEST_GATHER, PAUSE, CycleTimer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def timer(clock: Clock) -> CycleTimer:
    return CycleTimer(asyncio.Event(), AdaptiveDebounce(clock), 1.0, clock)


def test_a_change_after_a_pause_waits_for_no_other() -> None:
    clock = Clock()
    waits = timer(clock)
    assert waits.gathering() == 0.0
    clock.now += 2 * PAUSE
    assert waits.gathering() == 0.0


def test_changes_of_a_burst_are_gathered_and_each_prolongs_it() -> None:
    clock = Clock()
    waits = timer(clock)
    waits.gathering()
    for _ in range(5):
        clock.now += 0.9 * PAUSE
        assert waits.gathering() == GATHER


def test_on_a_busy_server_even_a_change_after_a_pause_is_gathered() -> None:
    clock = Clock()
    waits = timer(clock)
    for _ in range(100):
        waits.debounce.observe(clock.now - 0.5)
    assert waits.gathering() == LONGEST_GATHER


def test_a_change_ends_the_wait_and_without_one_the_period_does() -> None:
    async def story() -> None:
        changed = asyncio.Event()
        waits = CycleTimer(changed, AdaptiveDebounce(), 60.0)
        asyncio.get_running_loop().call_soon(changed.set)
        await asyncio.wait_for(waits.next_cycle(0.0), 10.0)
        assert changed.is_set(), "the cycle clears it"

        waits = CycleTimer(asyncio.Event(), AdaptiveDebounce(), 0.01)
        began = time.monotonic()
        await waits.next_cycle(0.0)
        assert time.monotonic() - began >= 0.01

    asyncio.run(story())


def test_what_is_due_before_the_period_ends_the_wait() -> None:
    async def story() -> None:
        waits = CycleTimer(asyncio.Event(), AdaptiveDebounce(), 60.0)
        await asyncio.wait_for(waits.next_cycle(0.0, due=0.01), 10.0)

    asyncio.run(story())
