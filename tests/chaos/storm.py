"""Kills of every process of a cluster while clients write: nothing that was acknowledged may be
lost, or be as it was before.

A supervisor that was killed, and a death of everything at once, are followed by one `hekla up`,
which must work at the first try.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.members import LOG_WRITER, SUPERVISOR, members
from hekla.local.cluster.supervisor import running

DAEMONS = (
    "apiserver",
    LOG_WRITER,
    "kubelet",
    "scheduler",
    "controllers",
    "kube-controllers",
    "admission",
    "metrics-server",
)
ALL = "everything"
NAMESPACE = "default"
WRITERS = 16
PATIENCE = 90.0
"""Seconds in which a process must be there to be killed, or the server must answer."""
AWAY = (TransportError, OSError, TimeoutError)
CONFIG_MAP = core.CONFIG_MAP.untyped
CREATES, DELETES = 0.2, 0.15
"""Shares of the writes; the others change what is there."""


def schedule(dice: random.Random, kills: int) -> list[str]:
    """Whom to kill, in order: mostly daemons, each as often as another, and in between the
    supervisor or everything."""
    total = max(2, kills // 15)
    names = [SUPERVISOR if number % 2 else ALL for number in range(total)]
    names += [DAEMONS[number % len(DAEMONS)] for number in range(kills - total)]
    dice.shuffle(names)
    return names


@dataclass
class Entry:
    """What a writer knows of one object: what was acknowledged, and what it asked for without
    hearing an answer."""

    value: int
    version: int
    doubt: str = ""
    """Of create, change and delete, the one that nobody answered."""


@dataclass
class Tally:
    """What came of it."""

    acknowledged: int = 0
    unanswered: int = 0
    lost: list[str] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """Each `hekla up` that did not work at the first try, and each `hekla status` that did not say
    so."""
    kills: Counter[str] = field(default_factory=Counter)
    ups: list[float] = field(default_factory=list)
    """Seconds that each took."""
    highest: int = 0
    """resourceVersion."""
    seconds: float = 0.0
    served: set[int] = field(default_factory=set)
    """Tenths of a second in which something was acknowledged."""

    def text(self) -> str:
        serving = len(self.served) / 10
        slowest = max(self.ups, default=0.0)
        return "\n".join(
            (
                f"{sum(self.kills.values())} kills in {self.seconds:.0f} s: "
                + ", ".join(f"{name} {n}" for name, n in sorted(self.kills.items())),
                f"{self.acknowledged} writes acknowledged, {self.unanswered} in doubt; the server answered in {serving:.0f} s of these, "
                f"at {self.acknowledged / max(serving, 0.1):.0f} writes a second",
                f"lost {len(self.lost)}, backwards {len(self.backwards)}",
                f"hekla up after a death: {len(self.ups)}, {len(self.failed)} not at the first try; the slowest {slowest:.1f} s",
                *self.lost[:5],
                *self.backwards[:5],
                *self.failed[:5],
            )
        )


class Writer:
    """Creates, changes and deletes its own objects, one request at a time."""

    def __init__(
        self,
        number: int,
        client: Client,
        tally: Tally,
        dice: random.Random,
        every: float,
        began: float,
    ) -> None:
        self.number = number
        self.client = client
        self.tally = tally
        self.dice = dice
        self.every = every
        self.began = began
        self.entries: dict[str, Entry] = {}
        self.deleted: set[str] = set()
        self.count = 0

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self.every, time.monotonic() - 1.0)
            await self.step()
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def step(self) -> None:
        doubtful = next((name for name, entry in self.entries.items() if entry.doubt), "")
        try:
            if doubtful:
                await self.resolve(doubtful)
            elif not self.entries or (draw := self.dice.random()) < CREATES:
                await self.create()
            elif draw < CREATES + DELETES:
                await self.delete(self.dice.choice(list(self.entries)))
            else:
                await self.change(self.dice.choice(list(self.entries)))
        except (ApiError, *AWAY):
            self.tally.unanswered += 1
            await asyncio.sleep(0.1)

    def took(self, answer: dict[str, Any]) -> int:
        version = int(answer["metadata"]["resourceVersion"])
        self.tally.acknowledged += 1
        self.tally.highest = max(self.tally.highest, version)
        self.tally.served.add(int((time.monotonic() - self.began) * 10))
        return version

    async def create(self) -> None:
        self.count += 1
        name = f"storm-{self.number}-{self.count}"
        entry = self.entries[name] = Entry(1, 0, "create")
        made = await self.client.create(
            CONFIG_MAP, {"metadata": {"name": name}, "data": {"value": "1"}}, NAMESPACE
        )
        entry.version, entry.doubt = self.took(made), ""

    async def change(self, name: str) -> None:
        entry = self.entries[name]
        entry.doubt = "change"
        try:
            made = await self.client.patch(
                CONFIG_MAP, name, {"data": {"value": str(entry.value + 1)}}, NAMESPACE
            )
        except NotFound:
            self.lose(name, "is not there")
            return
        version = self.took(made)
        if version <= entry.version:
            self.tally.backwards.append(f"{name}: resourceVersion {version} after {entry.version}")
        entry.value, entry.version, entry.doubt = entry.value + 1, version, ""

    async def delete(self, name: str) -> None:
        entry = self.entries[name]
        entry.doubt = "delete"
        try:
            await self.client.delete(CONFIG_MAP, name, NAMESPACE)
        except NotFound:
            self.lose(name, "is not there to be deleted")
            return
        self.tally.acknowledged += 1
        del self.entries[name]
        self.deleted.add(name)

    async def resolve(self, name: str) -> None:
        """Looks what became of a request that nobody answered."""
        try:
            held = await self.client.get(CONFIG_MAP, name, NAMESPACE)
        except NotFound:
            self.judge(name, None)
        else:
            self.judge(name, held)

    def judge(self, name: str, held: Mapping[str, Any] | None) -> None:
        """Compares what the server has with what it said."""
        entry = self.entries[name]
        if held is None:
            if entry.doubt in ("create", "delete"):
                del self.entries[name]  # the create never happened, or the delete did
            else:
                self.lose(name, "is lost")
            return
        value, version = int(held["data"]["value"]), int(held["metadata"]["resourceVersion"])
        allowed = {entry.value, entry.value + 1} if entry.doubt == "change" else {entry.value}
        if value not in allowed or version < entry.version:
            self.tally.backwards.append(
                f"{name}: {value} at {version}, where {entry.value} at {entry.version} was acknowledged"
            )
        entry.value, entry.version, entry.doubt = value, version, ""

    def lose(self, name: str, why: str) -> None:
        self.tally.lost.append(f"{name} {why}: {self.entries.pop(name)}")


class Storm:
    """One cluster, its writers, and the kills."""

    def __init__(
        self, cluster: Cluster, environment: Mapping[str, str], rate: float, seed: int
    ) -> None:
        self.cluster = cluster
        self.environment = environment
        self.rate = rate
        self.dice = random.Random(seed)
        self.tally = Tally()

    async def rage(self, kills: int, pause: float = 1.0, limit: float = math.inf) -> Tally:
        """Kills so many times, with about so many seconds between, for so many seconds at most, and
        compares at the end."""
        began = time.monotonic()
        async with Client(
            config.load(str(self.cluster.internal_kubeconfig)), user_agent="storm", pool=WRITERS
        ) as client:
            every = WRITERS / self.rate
            writers = [
                Writer(n, client, self.tally, random.Random(self.dice.random()), every, began)
                for n in range(WRITERS)
            ]
            writing = [asyncio.create_task(writer.run()) for writer in writers]
            try:
                for name in schedule(self.dice, kills):
                    if time.monotonic() - began > limit:
                        break
                    await asyncio.sleep(self.dice.uniform(0.0, 2 * pause))
                    await self.kill(name)
                await asyncio.sleep(pause)
            finally:
                for task in writing:
                    task.cancel()
                await asyncio.gather(*writing, return_exceptions=True)
                self.tally.seconds = time.monotonic() - began
            await self.compare(client, writers)
        return self.tally

    async def kill(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not (
            victims := [one for one in members(self.cluster) if one.name == name or name == ALL]
        ):
            assert time.monotonic() < deadline, f"{name} never came back"
            await asyncio.sleep(0.05)
        for victim in victims:
            victim.process.send(signal.SIGKILL)
        self.tally.kills[name] += 1
        if name in (SUPERVISOR, ALL):
            await self.up(name)

    async def up(self, after: str) -> None:
        """One `hekla up`; what it says where it fails is kept, and others follow until it works."""
        while running(self.cluster) is not None:
            await asyncio.sleep(0.02)
        if after == SUPERVISOR:
            code, said = await self.hekla("status")
            if code != 1 or "Its supervisor is dead" not in said:
                self.tally.failed.append(f"hekla status after the death of the supervisor: {said}")
        began = time.monotonic()
        for attempt in range(3):
            code, said = await self.hekla("up")
            if code == 0:
                break
            self.tally.failed.append(f"attempt {attempt} after the death of {after}: {said}")
        self.tally.ups.append(time.monotonic() - began)

    async def hekla(self, command: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hekla",
            command,
            "--name",
            self.cluster.name,
            env={**os.environ, **self.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode(errors="replace")

    async def compare(self, client: Client, writers: list[Writer]) -> None:
        """All that was acknowledged, beside what is there."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                listing = await client.list(CONFIG_MAP, NAMESPACE)
                break
            except (ApiError, *AWAY):
                assert time.monotonic() < deadline, "the API server stayed away"
                await asyncio.sleep(0.2)
        found = {item["metadata"]["name"]: item for item in listing.items}
        if int(listing.resource_version) < self.tally.highest:
            self.tally.backwards.append(
                f"the list is of {listing.resource_version}, and {self.tally.highest} was acknowledged"
            )
        for writer in writers:
            for name in list(writer.entries):
                writer.judge(name, found.get(name))
            for name in writer.deleted & found.keys():
                self.tally.backwards.append(
                    f"{name} is there again after its deletion was acknowledged"
                )
