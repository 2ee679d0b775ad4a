"""Announces PodGroups that were let in to the job controller, many in one write (decision 0202)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hekla.api import inqueue
from hekla.api.kubernetes.core import CONFIG_MAP
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Forbidden, NotFound
from hekla.kube.http.client import TransportError
from hekla.kube.objects import unread

log = logging.getLogger(__name__)

FLOOD = 16
"""So many groups that are let in within a second are a flood: the next are announced."""
FLOOD_IF_BUSY = 4
"""The same while the server is busy: fewer are let in a second just because it is."""
MOST = 1000
"""Groups in one announcement, of about 100 bytes each."""
LONGEST_PAUSE = 0.25
"""Seconds between two announcements on a busy server."""
UNREAD_PAUSE = 60.0
"""Seconds for which nothing is announced after nobody was there to read it."""
HEARD = 30.0
"""Seconds for which somebody counts as reading after the pods of an announced group have come."""

_WRITTEN = unread(CONFIG_MAP)


class InqueueAnnouncer:
    """Collects groups while an announcement is on its way, and sends them with the next.

    `launch` runs a task; `not_announced` is told the keys of groups of which nobody will hear this
    way.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        launch: Callable[[Coroutine[Any, Any, None]], None],
        not_announced: Callable[[Sequence[str]], None],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._launch = launch
        self._not_announced = not_announced
        self._let_in_at: deque[float] = deque(maxlen=FLOOD)
        """When the last groups were let in (loop time)."""
        self._collected: list[tuple[str, str]] = []
        self._sending = False
        self._silent_until = 0.0
        self._announced: set[str] = set()
        """Groups that are announced and of which nothing has been heard since."""
        self._heard_until = 0.0

    def announce(self, group: str, uid: str) -> bool:
        """Announce that a group was let in, if there is a flood of them and somebody who reads it.
        Gives whether it will be."""
        if not self._namespace:
            return False
        now = asyncio.get_running_loop().time()
        flooded = self.flooded
        self._let_in_at.append(now)
        if not flooded or now < self._silent_until:
            return False
        self._collected.append((group, uid))
        self._announced.add(group)
        if not self._sending:
            self._sending = True
            self._launch(self._send())
        return True

    @property
    def flooded(self) -> bool:
        """Whether many groups have been let in within the last second."""
        let_in_at, now = self._let_in_at, asyncio.get_running_loop().time()
        many = FLOOD_IF_BUSY if self._client.debounce.busy else FLOOD
        return len(let_in_at) >= many and now - let_in_at[-many] <= 1.0

    def heard(self, group: str) -> None:
        """A group has come further: if it was announced, somebody reads announcements."""
        if group in self._announced:
            self._announced.discard(group)
            self._heard_until = asyncio.get_running_loop().time() + HEARD

    def forget(self, group: str) -> None:
        """The phase of a group is written, so that it no longer shows whether somebody reads."""
        self._announced.discard(group)

    @property
    def is_heard(self) -> bool:
        """Whether pods of an announced group have come a short time ago."""
        return asyncio.get_running_loop().time() < self._heard_until

    async def _send(self) -> None:
        try:
            while self._collected:
                groups = self._collected[:MOST]
                del self._collected[:MOST]
                if not await self._sent(groups):
                    break
                # What is let in meanwhile goes with the next.
                await asyncio.sleep(self._client.debounce.delay(0.0, LONGEST_PAUSE))
        finally:
            self._sending = False

    async def _sent(self, groups: Sequence[tuple[str, str]]) -> bool:
        body = {"data": {inqueue.KEY: inqueue.written(groups)}}
        try:
            await self._client.patch(_WRITTEN, inqueue.NAME, body, self._namespace)
        except (ApiError, TransportError) as error:
            if isinstance(error, (NotFound, Forbidden)):
                self._silent_until = asyncio.get_running_loop().time() + UNREAD_PAUSE
            log.info("%d PodGroups let in one by one: %s", len(groups), error)
            unread = [key for key, _ in (*groups, *self._collected)]
            self._collected.clear()
            self._announced.difference_update(unread)
            self._not_announced(unread)
            return False
        return True
