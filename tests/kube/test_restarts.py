"""Twenty kills of the API server while twelve writers write: no cache goes astray, and nothing
acknowledged is lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from hekla.api.kubernetes.core import CONFIG_MAP, ConfigMap
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection.config import load
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from tests.apiserver_process import ApiServerProcess

KILLS = 20
WRITERS = 12
WRITES = 50
"""Done at least before each kill, on the average."""


class Writer:
    """Creates, changes and deletes its own config maps, and knows which the server has
    acknowledged."""

    def __init__(self, client: Client, number: int) -> None:
        self.client = client
        self.number = number
        self.acknowledged: set[str] = set()
        self.uncertain: set[str] = set()
        self.writes = 0

    async def run(self, stop: asyncio.Event) -> None:
        draw = random.Random(self.number)
        while not stop.is_set():
            name = f"w{self.number}-{draw.randrange(40)}"
            self.uncertain.add(name)
            try:
                await self._write(name, delete=draw.random() < 0.3)
            except TransportError:
                await asyncio.sleep(0.05)
                continue
            except ApiError as error:  # what an earlier, unanswered request has done
                assert error.code in (404, 409), error
                (self.acknowledged.add if error.code == 409 else self.acknowledged.discard)(name)
            self.uncertain.discard(name)
            self.writes += 1

    async def _write(self, name: str, *, delete: bool) -> None:
        if name not in self.acknowledged:
            tree = {"metadata": {"name": name, "namespace": "default"}}
            await self.client.create(CONFIG_MAP.untyped, tree)
            self.acknowledged.add(name)
        elif delete:
            await self.client.delete(CONFIG_MAP, name, "default")
            self.acknowledged.discard(name)
        else:
            await self.client.patch(CONFIG_MAP, name, {"data": {"v": str(self.writes)}}, "default")


def listener(heard: dict[str, str]) -> object:
    """Keeps name -> resourceVersion by what it is told, and checks that it is told in order."""

    def changed(old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is not None:
            assert (old is None) == (new.metadata.name not in heard)
            heard[new.metadata.name] = new.metadata.resource_version
        elif old is not None:
            del heard[old.metadata.name]

    return changed


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_caches_converge_through_twenty_kills(apiserver: ApiServerProcess) -> None:
    draw = random.Random(7)
    async with Client(load(str(apiserver.internal_kubeconfig))) as client:
        caches = [Cache(client, CONFIG_MAP, namespace="default", page=page) for page in (500, 7, 0)]
        heard: list[dict[str, str]] = [{} for _ in caches]
        for cache, told in zip(caches, heard):
            cache.on_change(listener(told))  # type: ignore[arg-type]
            await cache.start()
        writers = [Writer(client, number) for number in range(WRITERS)]
        stop = asyncio.Event()
        tasks = [asyncio.ensure_future(writer.run(stop)) for writer in writers]
        for turn in range(1, KILLS + 1):
            await asyncio.sleep(0.1 + draw.random() * 0.7)
            async with asyncio.timeout(60):  # however few writes a busy machine does in that time
                while sum(writer.writes for writer in writers) < turn * WRITES:
                    await asyncio.sleep(0.01)
            await asyncio.to_thread(apiserver.restart, kill=True)
        stop.set()
        await asyncio.gather(*tasks)

        listing = await client.list(CONFIG_MAP, "default")
        wanted = {item.metadata.name: item.metadata.resource_version for item in listing.items}
        async with asyncio.timeout(60):
            while any(told != wanted for told in heard):
                await asyncio.sleep(0.01)
        for cache in caches:
            await cache.stop()

    for writer in writers:
        assert writer.acknowledged - writer.uncertain <= wanted.keys()
