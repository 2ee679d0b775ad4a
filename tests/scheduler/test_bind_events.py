"""One event a pod, or one for many of a flood on a busy server."""

from __future__ import annotations

import asyncio
from typing import Any

from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce
from hekla.scheduler.bind_events import FLOOD, GATHERED_FOR, BindEvents
from hekla.scheduler.binder import reference
from tests.kube import virtual_time


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def event(self, about: dict[str, Any], severity: str, reason: str, message: str) -> None:
        assert (severity, reason) == ("Normal", "Scheduled")
        self.told.append((f"{about['metadata']['namespace']}/{about['metadata']['name']}", message))


def scene(seconds: float) -> tuple[Events, BindEvents]:
    """On a server whose responses take so many seconds."""
    clock = virtual_time.now
    debounce = AdaptiveDebounce(clock)
    for _ in range(100):
        debounce.observe(clock() - seconds)
    events = Events()
    return events, BindEvents(events, debounce, reference)  # type: ignore[arg-type]


def bind(events: BindEvents, namespace: str, count: int) -> None:
    for number in range(count):
        events.bound(f"{namespace}/p{number}", f"uid-{number}", f"n{number}")


def test_on_a_quiet_server_each_pod_has_its_event() -> None:
    async def story() -> None:
        told, events = scene(seconds=0.002)
        bind(events, "default", 100)
        assert told.told == [
            (f"default/p{n}", f"Successfully assigned default/p{n} to n{n}") for n in range(100)
        ]

    virtual_time.run(story())


def test_few_pods_have_each_its_own_on_any_server() -> None:
    async def story() -> None:
        told, events = scene(seconds=1.0)
        for _ in range(10):
            bind(events, "default", FLOOD - 1)
            await asyncio.sleep(1.1)
        assert len(told.told) == 10 * (FLOOD - 1)

    virtual_time.run(story())


def test_a_flood_on_a_busy_server_is_told_of_once_a_second_and_namespace() -> None:
    async def story() -> None:
        told, events = scene(seconds=1.0)
        bind(events, "a", FLOOD + 100)
        bind(events, "b", 1)
        assert len(told.told) == FLOOD
        await asyncio.sleep(GATHERED_FOR + 0.1)
        assert told.told[FLOOD:] == [
            (
                f"a/p{FLOOD}",
                f"Successfully assigned a/p{FLOOD} to n{FLOOD}, and in the same second 99 more pods "
                "of the namespace, each to the node that its spec.nodeName names",
            ),
            ("b/p0", "Successfully assigned b/p0 to n0"),
        ]

    virtual_time.run(story())


def test_a_scheduler_that_stops_tells_what_it_has_gathered() -> None:
    async def story() -> None:
        told, events = scene(seconds=1.0)
        bind(events, "a", FLOOD + 2)
        events.flush()
        await asyncio.sleep(GATHERED_FOR + 0.1)
        assert len(told.told) == FLOOD + 1

    virtual_time.run(story())
