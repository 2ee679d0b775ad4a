"""Keeps what a descheduler has to know after it was killed, in a ConfigMap beside its lease.

Before the first eviction of a cycle it says there that it is evicting, and after the cycle what came of it.  Who starts and
finds the first without the second knows only that nodes may have lost pods just now.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from hekla.api.kubernetes import core
from hekla.descheduler.returns import SavedTrace, SavedWish
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

KEY = "memory"
FORMER = 3600.0
"""Seconds after which nobody asks any more what a node lost."""


class Kept(msgspec.Struct, rename="camel", omit_defaults=True):
    """What stands in the ConfigMap."""

    evicting: float = 0.0
    """When a cycle began to evict that has not ended; 0 for none."""
    settling: dict[str, float] = {}
    """When a node last lost a pod."""
    returns: list[SavedTrace] = []
    wishes: list[SavedWish] = []


class KeptMemory:
    """The ConfigMap."""

    def __init__(self, client: Client, name: str, namespace: str) -> None:
        self._client = client
        self.name = name
        self.namespace = namespace
        self._told = False

    async def read(self) -> Kept:
        """What the process before this one has left; nothing where there is none, or it cannot be read."""
        try:
            found = await self._client.get(core.CONFIG_MAP.untyped, self.name, self.namespace)
            return msgspec.json.decode((found.get("data") or {}).get(KEY, "{}"), type=Kept)
        except NotFound:
            return Kept()
        except (ApiError, TransportError, TimeoutError, msgspec.DecodeError) as error:
            self._tell("read", error)
            return Kept()

    async def write(self, kept: Kept) -> bool:
        """Gives whether it stands there."""
        body: dict[str, Any] = {
            "metadata": {"name": self.name, "namespace": self.namespace},
            "data": {KEY: msgspec.json.encode(kept).decode()},
        }
        kind = core.CONFIG_MAP.untyped
        try:
            try:
                await self._client.update(kind, body)
            except NotFound:
                await self._client.create(kind, body, self.namespace)
        except (ApiError, TransportError, TimeoutError) as error:
            self._tell("written", error)
            return False
        return True

    def _tell(self, what: str, error: Exception) -> None:
        """Once: without it, a descheduler works as one that has just begun."""
        if not self._told:
            self._told = True
            log.warning(
                "ConfigMap %s/%s cannot be %s, so what is known of evictions ends with this process: %s",
                self.namespace,
                self.name,
                what,
                error or "it takes too long",
            )
