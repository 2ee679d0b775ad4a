"""The controller loop and its expectations."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hekla.api.kubernetes.core import CONFIG_MAP
from hekla.kube.cache import Cache
from hekla.kube.controller import Controller, Expectations, run
from hekla.kube.errors import Conflict
from hekla.kube.http.client import TransportError
from tests.kube import virtual_time
from tests.kube.scripted_api import config_map, scripted_api
from tests.kube.virtual_time import now


class Notes(Controller):
    """Writes down what it is asked to look at; does with a key what `acts` says."""

    name = "notes"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []
        self.acts: dict[str, list[Any]] = {}

    async def reconcile(self, key: str) -> float | None:
        self.seen.append((key, round(now(), 3)))
        act = self.acts[key].pop(0) if self.acts.get(key) else None
        if isinstance(act, BaseException):
            raise act
        return act


async def running(controller: Controller, seconds: float) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await run([controller], workers=2)


def test_a_reconcile_that_raises_is_tried_again_and_stops_no_other() -> None:
    async def story() -> None:
        controller = Notes()
        controller.acts["bad"] = [
            ValueError("a bug"),
            Conflict(409, "Conflict", "changed"),
            asyncio.CancelledError(),
            None,
        ]
        controller.queue.add("bad")
        controller.queue.add("good")
        await running(controller, 10)
        assert controller.seen == [
            ("bad", 0),
            ("good", 0),
            ("bad", 0.005),
            ("bad", 0.015),
            ("bad", 0.035),
        ]
        assert controller.queue.failures("bad") == 0

    virtual_time.run(story())


def test_a_reconcile_may_ask_to_be_called_again() -> None:
    async def story() -> None:
        controller = Notes()
        controller.acts["a"] = [5, 2.5, None]
        controller.queue.add("a")
        await running(controller, 100)
        assert controller.seen == [("a", 0), ("a", 5), ("a", 7.5)]

    virtual_time.run(story())


def test_a_key_that_fails_too_often_is_given_up() -> None:
    async def story() -> None:
        controller = Notes()
        controller.most_retries = 3
        controller.acts["a"] = [ValueError("always")] * 100
        controller.queue.add("a")
        await running(controller, 1000)
        assert len(controller.seen) == 4
        assert controller.queue.failures("a") == 0

    virtual_time.run(story())


async def test_changes_in_a_cache_become_keys(tmp_path: Path) -> None:
    async with scripted_api(tmp_path) as (api, client):
        api.objects = [config_map("a", 1, owner="x"), config_map("b", 2)]
        controller = Notes()
        controller.enqueue(
            Cache(client, CONFIG_MAP),
            lambda obj: [obj.data["owner"]] if "owner" in obj.data else [],
        )
        task = asyncio.ensure_future(run([controller]))
        await api.watching()
        api.feed(("MODIFIED", config_map("a", 11, owner="y")))
        async with asyncio.timeout(20):
            while len(controller.seen) < 3:
                await asyncio.sleep(0.001)
        # The owner that lost it looks, too.
        assert [key for key, _ in controller.seen] == [
            "x",
            "x",
            "y",
        ]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for cache in controller.caches:
            await cache.stop()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def owner(obj: dict[str, Any]) -> str | None:
    return obj.get("data", {}).get("owner")


def test_a_creation_is_expected_until_it_is_seen() -> None:
    expectations = Expectations(owner, clock=Clock())
    assert expectations.satisfied("job")
    with expectations.creating("job", "ns/a"), expectations.creating("job", "ns/b"):
        pass
    assert not expectations.satisfied("job")
    expectations.observe(None, config_map("a", 1, owner="job"))
    assert not expectations.satisfied("job")
    expectations.observe(None, config_map("b", 1, owner="job"))
    assert expectations.satisfied("job")


def test_a_deletion_is_seen_when_the_object_is_marked_or_gone() -> None:
    expectations = Expectations(owner, clock=Clock())
    obj = config_map("a", 1, owner="job")
    with expectations.deleting("job", "uid-a"):
        pass
    expectations.observe(obj, config_map("a", 2, owner="job"))
    assert not expectations.satisfied("job")
    marked = config_map("a", 3, owner="job")
    marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    expectations.observe(obj, marked)
    assert expectations.satisfied("job")
    with expectations.deleting("job", "uid-a"):
        pass
    expectations.observe(obj, None)
    assert expectations.satisfied("job")


def test_a_request_that_failed_for_certain_expects_nothing() -> None:
    expectations = Expectations(owner, clock=Clock())
    with pytest.raises(Conflict), expectations.creating("job", "ns/a"):
        raise Conflict(409, "AlreadyExists", "there")
    assert expectations.satisfied("job")
    with pytest.raises(TransportError), expectations.creating("job", "ns/a"):
        raise TransportError("refused", sent=False)
    assert expectations.satisfied("job")
    with pytest.raises(TransportError), expectations.creating("job", "ns/a"):
        raise TransportError("lost on the way", sent=True)
    assert not expectations.satisfied("job")


def test_what_was_answered_is_waited_for_longer_than_what_was_not() -> None:
    clock = Clock()
    expectations = Expectations(owner, deadline=30, doubt=5, clock=clock)
    with expectations.creating("job", "ns/made"):
        pass
    with pytest.raises(TransportError), expectations.creating("job", "ns/perhaps"):
        raise TransportError("the server closed the connection", sent=True)
    clock.now += 6
    assert not expectations.satisfied("job")
    expectations.observe(None, config_map("made", 1, owner="job"))
    assert expectations.satisfied("job")


def test_an_expectation_is_given_up_after_its_deadline() -> None:
    clock = Clock()
    expectations = Expectations(owner, deadline=30, clock=clock)
    with expectations.creating("job", "ns/a"):
        pass
    clock.now = 10
    assert expectations.remaining("job") == 20
    assert not expectations.satisfied("job")
    clock.now = 30
    assert expectations.satisfied("job")
    assert expectations.remaining("job") == 0
