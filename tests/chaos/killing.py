"""Kills daemons of a running cluster at moments that a seed decides, and records what a client was
promised meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, Conflict
from hekla.kube.http.client import TransportError
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status

TARGETS = ("apiserver", "scheduler", "controllers", "kubelet")
PATIENCE = 60.0


@dataclass(frozen=True)
class Kill:
    """One kill: how long after the one before, and whom."""

    after: float
    name: str


def schedule(dice: random.Random, count: int, seconds: float) -> list[Kill]:
    """So many kills of all targets in random order, over about so many seconds."""
    names = [TARGETS[number % len(TARGETS)] for number in range(count)]
    dice.shuffle(names)
    return [Kill(round(dice.uniform(0, 2 * seconds / count), 2), name) for name in names]


async def carry_out(cluster: Cluster, kills: list[Kill]) -> Counter[str]:
    """Kills by the schedule; a process that is down at its moment is killed as soon as it is up
    again."""
    done: Counter[str] = Counter()
    for kill in kills:
        await asyncio.sleep(kill.after)
        deadline = time.monotonic() + PATIENCE
        while (pid := pid_of(cluster, kill.name)) == 0:
            assert time.monotonic() < deadline, f"{kill.name} never came back"
            await asyncio.sleep(0.05)
        os.kill(pid, signal.SIGKILL)
        done[kill.name] += 1
        while pid_of(cluster, kill.name) == pid:
            await asyncio.sleep(0.02)
    return done


def pid_of(cluster: Cluster, name: str, ready: bool = False) -> int:
    """The pid of a process of the cluster, 0 while it has none, or none that is ready."""
    status = read_status(cluster)
    for process in status.processes if status else ():
        if process.name == name and process.ready >= ready:
            return process.pid
    return 0


class Ledger:
    """A client that creates, changes and deletes ConfigMaps and writes down each answer that it was
    given."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.created: dict[str, str] = {}
        """Name and uid of what the server said was created."""
        self.deleted: set[str] = set()
        self.in_doubt: set[str] = set()
        """What it was asked to delete, perhaps without hearing the answer."""
        self.count = 0
        """The last value of the counter that the server acknowledged."""
        self.refused = 0

    async def write(self) -> None:
        """Writes until it is cancelled."""
        number = 0
        while True:
            name = f"entry-{number}"
            number += 1
            await self._attempt(self._create(name))
            await self._attempt(self._advance())
            if number % 5 == 0:
                await self._attempt(self._delete(f"entry-{number - 3}"))
            await asyncio.sleep(0.05)

    async def _attempt(self, step: Awaitable[None]) -> None:
        try:
            await step
        except (ApiError, TransportError, OSError):
            self.refused += 1
            await asyncio.sleep(0.1)

    async def _create(self, name: str) -> None:
        tree = {"metadata": {"name": name}, "data": {"said": name}}
        try:
            made = await self.client.create(core.CONFIG_MAP.untyped, tree, "default")
        except AlreadyExists:  # an attempt whose answer was lost
            return
        self.created[name] = made["metadata"]["uid"]

    async def _advance(self) -> None:
        kind = core.CONFIG_MAP.untyped
        try:
            await self.client.create(
                kind, {"metadata": {"name": "counter"}, "data": {"value": "0"}}, "default"
            )
        except AlreadyExists:
            pass
        held = await self.client.get(kind, "counter", "default")
        value = int(held["data"]["value"])
        assert value >= self.count, f"the counter went back from {self.count} to {value}"
        held["data"]["value"] = str(value + 1)
        try:
            await self.client.update(kind, held)
        except Conflict:
            return
        self.count = value + 1

    async def _delete(self, name: str) -> None:
        if name in self.created:
            self.in_doubt.add(name)
            await self.client.delete(core.CONFIG_MAP, name, "default")
            self.deleted.add(name)
