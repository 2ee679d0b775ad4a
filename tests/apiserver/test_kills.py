"""kill -9 under load, again and again: what was answered is there, versions grow, watchers lose
nothing and hear nothing twice.

Writers work at 1,000 writes a second in all (creates, updates, deletes of config maps); each knows
what it was answered, and the one write whose answer a kill took from it: that one may or may not
have happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path
from typing import Any

import pytest

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import Expired
from tests.apiserver_process import ApiServerProcess

KIND = core.CONFIG_MAP.untyped
RATE, WRITERS, LIVES = 1000, 20, 12
"""Writes a second in all; writers; the objects that each writer has at most."""
ANSWERS = 50
"""After so many a server may be killed, however long that takes."""
PATIENCE = 60.0
"""Seconds: a bound for what is stuck."""

GONE = "gone"
Lost = (OSError, EOFError, ConnectionError, asyncio.TimeoutError)


class Writer:
    """Writes its own objects one at a time.  `states` has, for each name, every content that it may
    have now."""

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.random = random.Random(f"{seed}-{number}")
        self.states: dict[str, set[str]] = {}
        self.answered = 0
        self.newest = 0
        """The highest resourceVersion of an answer."""

    def live(self) -> list[str]:
        return [name for name, states in self.states.items() if states != {GONE}]

    async def write(self, client: Client, serial: int) -> None:
        """One write.  Until it is answered, both what was and what is written are possible."""
        live = self.live()
        choice = self.random.random()
        if not live or (choice < 0.4 and len(live) < LIVES):
            name, content, method = f"w{self.number}-{serial}", str(serial), "POST"
        elif choice < 0.8:
            name, content, method = self.random.choice(live), str(serial), "PATCH"
        else:
            name, content, method = self.random.choice(live), GONE, "DELETE"
        self.states[name] = self.states.get(name, {GONE}) | {content}
        body: dict[str, Any] = {"data": {"n": content}}
        if method == "POST":
            made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **body}
            answer = await client.request("POST", KIND.path("default"), None, made)
        elif method == "PATCH":
            patch = {"Content-Type": "application/merge-patch+json"}
            answer = await client.request("PATCH", KIND.path("default", name), None, body, patch)
        else:
            answer = await client.request("DELETE", KIND.path("default", name))
        self.states[name] = {content}
        self.answered += 1
        if method != "DELETE":
            version = int(answer.body.partition(b'"resourceVersion":"')[2].partition(b'"')[0])
            assert version > self.newest, (
                f"{name} was answered version {version} after {self.newest}"
            )
            self.newest = version

    def settle(self, found: dict[str, str]) -> list[str]:
        """Compares with what the server has; after that every state is certain again."""
        wrong = []
        for name, states in self.states.items():
            now = found.get(name, GONE)
            if now not in states:
                wrong.append(f"{name} is {now}, possible were {sorted(states)}")
            self.states[name] = {now}
        self.states = {name: states for name, states in self.states.items() if states != {GONE}}
        return wrong


class Watcher:
    """Keeps a copy by list and watch, as an informer does, and notes whatever an informer must not
    see."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.copy: dict[str, str] = {}
        self.version = 0
        self.resumed = self.listed = 0
        self.wrong: list[str] = []

    async def run(self, server: ApiServerProcess) -> None:
        while True:
            with contextlib.suppress(*Lost):
                async with Client(config.load(str(server.internal_kubeconfig)), pool=1) as client:
                    if not self.version:
                        await self.list(client)
                    try:
                        await self.follow(client)
                    except Expired:
                        await self.list(client)
            await asyncio.sleep(0.02)

    async def list(self, client: Client) -> None:
        listing = await client.list(KIND, "default")
        if int(listing.resource_version) < self.version:
            self.wrong.append(
                f"a list of version {listing.resource_version} after an event of {self.version}"
            )
        self.version = int(listing.resource_version)
        self.copy = {
            item["metadata"]["name"]: item["data"]["n"] for item in listing.items if "data" in item
        }
        self.listed += 1

    async def follow(self, client: Client) -> None:
        opened = False
        async for event in client.watch(
            KIND, "default", resource_version=str(self.version), bookmarks=False
        ):
            self.resumed += not opened
            opened = True
            tree = event.object
            version, name = int(tree["metadata"]["resourceVersion"]), tree["metadata"]["name"]
            if version <= self.version:
                self.wrong.append(
                    f"{event.type} of {name} with version {version} after {self.version}"
                )
            if (event.type == "ADDED") == (name in self.copy):
                self.wrong.append(
                    f"{event.type} of {name}, which was {'there' if name in self.copy else 'not there'}"
                )
            self.version = version
            if event.type == "DELETED":
                self.copy.pop(name, None)
            else:
                self.copy[name] = tree["data"]["n"]


async def under_load(
    server: ApiServerProcess, writers: list[Writer], serial: int, seconds: float
) -> int:
    """All writers together at RATE until the server is killed after `seconds` and some answers.
    Returns the next serial number."""
    async with Client(config.load(str(server.internal_kubeconfig)), pool=WRITERS) as client:
        began = time.monotonic()
        turn = iter(range(serial, serial + 10_000_000))

        async def work(writer: Writer) -> None:
            with contextlib.suppress(*Lost):
                while True:
                    number = next(turn)
                    await asyncio.sleep(began + (number - serial) / RATE - time.monotonic())
                    await writer.write(client, number)

        tasks = [asyncio.create_task(work(writer)) for writer in writers]
        answered = sum(writer.answered for writer in writers)
        await asyncio.sleep(seconds)
        while sum(writer.answered for writer in writers) <= answered + ANSWERS and not all(
            task.done() for task in tasks
        ):
            await asyncio.sleep(0.005)
        server.kill()
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        return next(turn)


async def current(client: Client) -> tuple[int, dict[str, str]]:
    listing = await client.list(KIND, "default")
    found = {
        item["metadata"]["name"]: item["data"]["n"]
        for item in listing.items
        if item["metadata"]["name"].startswith("w")
    }
    return int(listing.resource_version), found


async def caught_up(watchers: list[Watcher], found: dict[str, str]) -> None:
    deadline = time.monotonic() + PATIENCE
    for watcher in watchers:
        while {name: n for name, n in watcher.copy.items() if name.startswith("w")} != found:
            if time.monotonic() > deadline:
                missing = sorted(found.items() - watcher.copy.items())[:5]
                raise AssertionError(
                    f"{watcher.name} has not caught up within {PATIENCE:.0f} s; it lacks {missing}"
                )
            await asyncio.sleep(0.005)


async def kills(directory: Path, rounds: int, seed: int) -> tuple[int, list[Watcher]]:
    """The whole story; returns how many writes were answered, and the watchers."""
    chance = random.Random(seed)
    with ApiServerProcess.started(directory) as server:
        writers = [Writer(number, seed) for number in range(WRITERS)]
        watchers = [Watcher(f"watcher {number}") for number in range(3)]
        following = [asyncio.create_task(watcher.run(server)) for watcher in watchers]
        newest = serial = 0
        try:
            for round_number in range(rounds):
                serial = await under_load(server, writers, serial, chance.uniform(0.02, 0.6))
                server.start()
                async with Client(config.load(str(server.internal_kubeconfig)), pool=1) as client:
                    version, found = await current(client)
                wrong = [text for writer in writers for text in writer.settle(found)]
                assert not wrong, f"after kill {round_number}: {wrong}"
                newest = max(newest, *(writer.newest for writer in writers))
                assert version >= newest, (
                    f"after kill {round_number} the version is {version}, {newest} was answered before"
                )
                for writer in writers:
                    writer.newest = version
                await caught_up(watchers, found)
        finally:
            for task in following:
                task.cancel()
            ended = await asyncio.gather(*following, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended), ended
        assert [text for watcher in watchers for text in watcher.wrong] == []
        assert "Traceback" not in server.log.read_text()
    return sum(writer.answered for writer in writers), watchers


async def test_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    answered, watchers = await kills(tmp_path, 5, seed=1)
    assert answered > 5 * ANSWERS
    assert all(watcher.resumed + watcher.listed >= 5 for watcher in watchers)


@pytest.mark.slow(seconds=200)
@pytest.mark.timeout(900)
async def test_two_hundred_kills_under_load_lose_nothing(tmp_path: Path) -> None:
    answered, watchers = await kills(tmp_path, 200, seed=2)
    print(
        f"{answered} writes answered; watches resumed and lists: {[(watcher.resumed, watcher.listed) for watcher in watchers]}"
    )
    assert answered > 200 * ANSWERS
