"""Sends the statuses of pods to the API server, the newest of each, one request at a time for a
pod, many pods at once; and deletes their objects.

A status that was replaced while it waited is never sent.  Patches carry the pod's uid, so that a
new pod of the same name never gets the status of the old one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, Invalid, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger("kubelet.reporter")

SENDERS = 16
RETRY = 0.5
"""Seconds until a status that could not be sent is tried again."""


@dataclass(slots=True)
class Report:
    """A status on its way."""

    namespace: str
    name: str
    status: Mapping[str, Any]


class Reporter:
    """The queue of statuses and those who send them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._kind = core.POD.untyped
        self._waiting: OrderedDict[str, Report] = OrderedDict()
        self._sending: set[str] = set()
        self._flushes: dict[str, list[asyncio.Future[None]]] = {}
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._send_all(), name="reporter") for _ in range(SENDERS)
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def put(self, uid: str, namespace: str, name: str, status: Mapping[str, Any]) -> None:
        """Has a status sent; it replaces one of the same pod that still waits."""
        self._waiting[uid] = Report(namespace, name, status)
        self._wanted.set()

    async def flush(self, uid: str) -> None:
        """Waits until nothing of the pod waits or is on its way."""
        if uid not in self._waiting and uid not in self._sending:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.setdefault(uid, []).append(future)
        await future

    async def stands(self, uid: str, namespace: str, name: str) -> bool:
        """Whether the pod is still there, and no other of its name.  Raises ApiError,
        TransportError."""
        try:
            found = await self._client.get(self._kind, name, namespace)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == uid)

    async def delete(self, uid: str, namespace: str, name: str) -> bool:
        """Removes a pod's object at once; False when that must be tried again."""
        try:
            try:
                await self._client.delete(self._kind, name, namespace, grace=0, uid=uid)
            except Conflict:
                return not await self.stands(uid, namespace, name)
        except NotFound:
            return True
        except (ApiError, TransportError) as error:
            log.info("pod %s/%s: not deleted yet: %s", namespace, name, error)
            return False
        return True

    def _next(self) -> tuple[str, Report] | None:
        for uid in self._waiting:
            if uid not in self._sending:
                return uid, self._waiting.pop(uid)
        return None

    async def _send_all(self) -> None:
        while True:
            found = self._next()
            if found is None:
                self._wanted.clear()
                await self._wanted.wait()
                continue
            uid, report = found
            self._sending.add(uid)
            try:
                again = not await self._send(uid, report)
            finally:
                self._sending.discard(uid)
            if again:
                self._waiting.setdefault(uid, report)
                await asyncio.sleep(RETRY)
            if uid in self._waiting:
                self._wanted.set()
            else:
                for future in self._flushes.pop(uid, ()):
                    if not future.done():
                        future.set_result(None)

    async def _send(self, uid: str, report: Report) -> bool:
        """Sends one status; False when it must be tried again."""
        patch = {"metadata": {"uid": uid}, "status": report.status}
        try:
            try:
                await self._client.patch(
                    self._kind,
                    report.name,
                    patch,
                    report.namespace,
                    type="strategic",
                    subresource="status",
                )
            except Conflict:
                # Replaced by another pod of that name, or changed by others at every try.
                return not await self.stands(uid, report.namespace, report.name)
        except NotFound:
            return True
        except Invalid as error:
            log.warning(
                "pod %s/%s: the API server refuses its status: %s",
                report.namespace,
                report.name,
                error,
            )
            return True
        except (ApiError, TransportError) as error:
            log.info("pod %s/%s: status not sent yet: %s", report.namespace, report.name, error)
            return False
        return True
