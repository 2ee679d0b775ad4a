"""The base class of controllers, and the loop that runs them.

A controller watches caches and queues the keys of objects that may need work.  `reconcile(key)`
compares the actual state with the desired one, writes the difference and returns.  It can run at
any time, twice, and after a crash, because the controller has no state that is not on the server.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hekla.api.meta import key as key_of
from hekla.kube.cache import Cache
from hekla.kube.errors import ApiError, Conflict
from hekla.kube.expectations import Expectations
from hekla.kube.http.client import TransportError
from hekla.kube.listeners import Sorter
from hekla.kube.workqueue import ShutDown, WorkQueue

__all__ = ["Controller", "Expectations", "run"]

log = logging.getLogger(__name__)

WORKERS = 3
SLOW_SYNC = 10.0
QUIET_FAILURES = 5
"""Failures of a key after which they are logged as warnings; fewer are ordinary (a conflict, a
restart)."""


class Controller(ABC):
    """Base class: subclasses set `name`, pass their caches, queue keys with `enqueue`, and
    reconcile."""

    name: str = ""
    workers: int = 0
    """Workers; 0 means the number that `run` is given."""
    most_retries: int = 0
    """Failures in a row after which a key is dropped until its object changes; 0 for never."""

    def __init__(self, *caches: Cache[Any]) -> None:
        self.queue = WorkQueue(self.name)
        self.caches: list[Cache[Any]] = list(caches)
        """The caches that must have synced before the first reconcile."""

    @abstractmethod
    async def reconcile(self, key: str) -> float | None:
        """Bring one object to its desired state.  Returns the seconds after which it is queued
        again, None for never."""

    def given_up(self, key: str, error: Exception) -> None:
        """Called when `most_retries` is reached."""
        log.warning(
            "%s: %s failed %d times; left until it changes: %s",
            self.name,
            key,
            self.most_retries,
            error,
        )

    def enqueue(
        self,
        cache: Cache[Any],
        keys: Callable[[Any], Iterable[str] | str | None] = key_of,
        *,
        of: tuple[Sorter[Any], Sequence[str]] | None = None,
    ) -> None:
        """For each change in the cache, queue the keys that `keys` returns for the old and the new
        object.

        `of` restricts it to some objects, by a sorter and its values: see `Cache.on_change_of`.
        """

        def changed(old: Any, new: Any) -> None:
            for obj in (old, new):
                if obj is None:
                    continue
                found = keys(obj)
                if isinstance(found, str):
                    self.queue.add(found)
                else:
                    for key in found or ():
                        self.queue.add(key)

        if cache not in self.caches:
            self.caches.append(cache)
        if of is None:
            cache.on_change(changed)
        else:
            cache.on_change_of(*of, changed)

    async def start(self) -> None:  # noqa: B027 (not every controller has something to do at its start)
        """Called once, after the caches have synced and before the first reconcile."""


async def run(controllers: Sequence[Controller], workers: int = WORKERS) -> None:
    """Run the controllers until cancelled: their caches are started and synced, then `workers` each
    take keys.

    One reconcile that raises is logged and tried again later, with growing delays; it never stops
    another.
    """
    try:
        for cache in unique(cache for controller in controllers for cache in controller.caches):
            await cache.start()
        async with asyncio.TaskGroup() as group:
            for controller in controllers:
                group.create_task(
                    _run_one(controller, controller.workers or workers), name=controller.name
                )
    finally:
        for controller in controllers:
            controller.queue.close()


async def _run_one(controller: Controller, workers: int) -> None:
    await _synced(controller)
    await controller.start()
    log.info("%s runs with %d workers", controller.name, workers)
    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(_work(controller))


async def _synced(controller: Controller) -> None:
    for cache in controller.caches:
        while True:
            try:
                # Not wait_for: it loses a cancellation that comes together with the result, and the
                # controller would never end.
                async with asyncio.timeout(SLOW_SYNC):
                    await cache.synced()
                break
            except TimeoutError:
                log.warning("%s waits for the first list of %s", controller.name, cache.kind.plural)


async def _work(controller: Controller) -> None:
    queue = controller.queue
    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        try:
            again = await controller.reconcile(key)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            _failed(
                controller,
                key,
                RuntimeError(f"something that it waited for was cancelled: {error}"),
            )
        except Exception as error:
            # A bug with one key must not stop the others; the key is tried again.
            _failed(controller, key, error)
        else:
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)
        finally:
            queue.done(key)


def _failed(controller: Controller, key: str, error: Exception) -> None:
    queue = controller.queue
    if controller.most_retries and queue.failures(key) >= controller.most_retries:
        queue.forget(key)
        controller.given_up(key, error)
        return
    delay = queue.add_rate_limited(key)
    if not isinstance(error, (ApiError, TransportError)):
        log.error("%s: %s: %r; again in %.3g s", controller.name, key, error, delay, exc_info=error)
    elif queue.failures(key) > QUIET_FAILURES:
        log.warning("%s: %s: %s; again in %.3g s", controller.name, key, error, delay)
    else:
        log.log(
            logging.DEBUG if isinstance(error, Conflict) else logging.INFO,
            "%s: %s: %s",
            controller.name,
            key,
            error,
        )


def unique(caches: Iterable[Cache[Any]]) -> list[Cache[Any]]:
    return list(dict.fromkeys(caches))
