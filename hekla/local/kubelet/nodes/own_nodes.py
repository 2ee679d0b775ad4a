"""The names of the nodes that this kubelet has registered, in a file of its directory.

A kubelet that is started with fewer nodes, or under another name, is the only one that knows that
the others are gone: their objects say Ready until their leases have run out.  So it writes down a
name before it registers the node, and deletes the nodes that it no longer runs before anything
else.  Their pods are left to the cluster's garbage collector, as with any node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Forbidden, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.records import write_atomically

log = logging.getLogger("kubelet.nodes")

FAKE_NAME = "fake-node"
RETRY = 0.2
AT_ONCE = 32


def real_names(count: int, base: str = "") -> list[str]:
    """The names of so many nodes of this machine."""
    return (
        [base or machine.name()]
        if count == 1
        else [f"{base or 'node'}-{number}" for number in range(count)]
    )


def fake_names(count: int, base: str = FAKE_NAME) -> list[str]:
    return [f"{base}-{number}" for number in range(count)]


class OwnNodes:
    """The file in a kubelet's directory."""

    def __init__(self, root: Path) -> None:
        self.path = root / "nodes.json"

    def names(self) -> list[str]:
        """The nodes that a kubelet here has registered and not removed; none where nothing readable
        was left."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[str])
        except (OSError, msgspec.MsgspecError):
            return []

    def leaving(self, wanted: Iterable[str]) -> list[str]:
        """Those of them that are not among the ones to be run now."""
        kept = set(wanted)
        return [name for name in self.names() if name not in kept]

    async def remove_old(self, client: Client, wanted: list[str]) -> None:
        """Delete the nodes that are no longer run, and write down those that are."""
        leaving = self.leaving(wanted)
        self._write([*leaving, *wanted])
        turn = asyncio.Semaphore(AT_ONCE)
        left = [
            name
            for name, gone in zip(
                leaving, await asyncio.gather(*(self._remove(client, n, turn) for n in leaving))
            )
            if not gone
        ]
        if leaving:
            log.info(
                "nodes that are run no more have left: %s",
                ", ".join(leaving[:10]) + (" ..." if len(leaving) > 10 else ""),
            )
            self._write([*left, *wanted])

    async def _remove(self, client: Client, name: str, turn: asyncio.Semaphore) -> bool:
        """Removes a node, however long the API server stays away; False where that is not allowed."""
        async with turn:
            while True:
                try:
                    await client.delete(core.NODE, name)
                    return True
                except NotFound:
                    return True
                except Forbidden as error:
                    log.warning("the node %s is run no more, and stays: %s", name, error)
                    return False
                except (ApiError, TransportError) as error:
                    log.info("the node %s is not removed yet: %s", name, error)
                await asyncio.sleep(RETRY)

    def _write(self, names: list[str]) -> None:
        write_atomically(self.path, msgspec.json.encode(names))
