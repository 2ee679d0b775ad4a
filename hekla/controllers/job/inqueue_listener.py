"""Hears which PodGroups the scheduler has let in, where it names many in one write (decision 0202)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hekla.api import inqueue
from hekla.api.kubernetes.core import CONFIG_MAP, ConfigMap
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import AlreadyExists, Forbidden, NotFound

log = logging.getLogger(__name__)

PAUSE = 60.0
"""Seconds after which the ConfigMap is created again that could not be."""


class InqueueListener(Controller):
    """Keeps the ConfigMap there, and tells `let_in` the group and uid of each line that comes."""

    name = "inqueue-listener"
    workers = 1

    def __init__(self, client: Client, namespace: str, let_in: Callable[[str, str], None]) -> None:
        self._announcement = Cache(
            client, CONFIG_MAP, namespace=namespace, fields=f"metadata.name={inqueue.NAME}"
        )
        super().__init__(self._announcement)
        self._client = client
        self._namespace = namespace
        self._let_in = let_in
        self._announcement.on_change(self._changed)

    async def start(self) -> None:
        self.queue.add(inqueue.NAME)

    def _changed(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        if new is None:
            self.queue.add(inqueue.NAME)
        elif old is not None:  # what was there at the start is of a time that is over
            for group, uid in inqueue.read(new.data.get(inqueue.KEY, "")):
                self._let_in(group, uid)

    async def reconcile(self, key: str) -> float | None:
        """Create the ConfigMap if it is not there: this tells a scheduler that somebody reads it."""
        if self._announcement.get(f"{self._namespace}/{key}") is not None:
            return None
        body = {"metadata": {"name": key, "namespace": self._namespace}}
        try:
            await self._client.create(CONFIG_MAP.untyped, body, self._namespace)
        except AlreadyExists:
            pass
        except (NotFound, Forbidden) as error:
            log.info("the scheduler lets each PodGroup in by itself: %s", error)
            return PAUSE
        return None
