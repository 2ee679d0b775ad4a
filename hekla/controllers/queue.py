"""The queue controller: keeps the state of queues true, down the tree (reference: controllers 4).

The state after an action is a table.  A queue whose parent is closed closes itself and notes that
in an annotation; when the parent opens, the queues that it closed open again, and no others.  A
child follows its parent's state by itself, and nobody else writes to it: one reconcile at a time
changes a queue, in an order that the cache shows too (decision 0226).
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from prometheus_client import Gauge

from hekla.api import names, scheduling
from hekla.api.bus import Action
from hekla.api.scheduling import QueueState
from hekla.api.text import quantity
from hekla.controllers.caches import Caches
from hekla.controllers.events import Events
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, ServerError, TooManyRequests
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

FIELD_MANAGER = "queue-controller"
OPEN, CLOSED, CLOSING, UNKNOWN = (
    QueueState.OPEN,
    QueueState.CLOSED,
    QueueState.CLOSING,
    QueueState.UNKNOWN,
)
SHUT = frozenset({CLOSED, CLOSING})
SYNC = Action.SYNC_QUEUE
PHASES = ("Pending", "Running", "Unknown", "Inqueue", "Completed")

GROUPS = {
    phase: Gauge(
        f"volcano_queue_pod_group_{phase.lower()}_count",
        f"The number of {phase} PodGroups in this queue",
        ["queue_name"],
    )
    for phase in PHASES
}

Next = Callable[[int], str]
"""The next state, by the number of PodGroups in the queue, and of pods that have none."""


def _to(state: str) -> Next:
    return lambda groups: state


def _shutting(groups: int) -> str:
    return CLOSING if groups else CLOSED


TABLE: dict[str, dict[str, Next]] = {
    OPEN: {Action.OPEN_QUEUE: _to(OPEN), Action.CLOSE_QUEUE: _shutting, SYNC: _to(OPEN)},
    CLOSED: {Action.OPEN_QUEUE: _to(OPEN), Action.CLOSE_QUEUE: _to(CLOSED), SYNC: _to(CLOSED)},
    CLOSING: {Action.OPEN_QUEUE: _to(OPEN), Action.CLOSE_QUEUE: _shutting, SYNC: _shutting},
    UNKNOWN: {Action.OPEN_QUEUE: _to(OPEN), Action.CLOSE_QUEUE: _shutting, SYNC: _to(UNKNOWN)},
}


def next_state(state: str, action: str, groups: int) -> str:
    """The state of a queue after an action.  Raises ValueError for a state that is none."""
    row = TABLE.get(state or OPEN)
    if row is None:
        raise ValueError(f"queue state {state} is invalid")
    return row.get(action, row[SYNC])(groups)


class QueueController(Controller):
    """Reconciles a queue's state with its parent's, its PodGroups and the actions asked for."""

    name = "queue-controller"

    def __init__(
        self, client: Client, caches: Caches, events: Events, *, most_retries: int = 15
    ) -> None:
        super().__init__(caches.queues, caches.groups)
        self.most_retries = most_retries
        self._client = client
        self._caches = caches
        self._events = events
        self._orders: dict[str, str] = {}
        """The requested action, by queue; the last one counts."""
        self._phases: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """How many PodGroups of each phase there are, by queue: counted as they change, because
        there may be many."""
        caches.queues.on_change(self._queue_changed)
        caches.groups.on_change(self._group_changed)

    def command(self, key: str, action: str) -> None:
        """Have an action carried out on a queue."""
        self._orders[key] = action
        self.queue.add(key)

    def _queue_changed(self, old: scheduling.Queue | None, new: scheduling.Queue | None) -> None:
        if new is None:
            assert old is not None
            self._orders.pop(old.metadata.name, None)
            for gauge in GROUPS.values():
                gauge.remove(old.metadata.name)
            return
        if old is not None and _same_to_us(old, new):
            return
        self.queue.add(new.metadata.name)
        if old is None or old.status.state != new.status.state:
            for child in self._caches.queues.by("parent", new.metadata.name):
                self.queue.add(child.metadata.name)

    def _group_changed(
        self, old: scheduling.PodGroup | None, new: scheduling.PodGroup | None
    ) -> None:
        if old is not None and new is not None and _place(old) == _place(new):
            return
        for group, sign in ((old, -1), (new, 1)):
            if group is not None and group.spec.queue:
                self._phases[group.spec.queue][group.status.phase] += sign
                self.queue.add_after(group.spec.queue, 0.05)

    async def reconcile(self, key: str) -> float | None:
        queue = self._caches.queues.get(key)
        if queue is None or queue.metadata.deletion_timestamp:
            self._orders.pop(key, None)
            return None
        action = self._orders.get(key, SYNC)
        groups = self._held(queue)
        try:
            if queue.metadata.name != names.ROOT_QUEUE and not queue.spec.parent:
                queue = await self._patch(queue, {"spec": {"parent": names.ROOT_QUEUE}})
            if action == Action.OPEN_QUEUE:
                await self._open(queue, groups)
            elif action == Action.CLOSE_QUEUE:
                await self._close(queue, groups)
            else:
                await self._sync(queue, groups)
        except (TransportError, Conflict, ServerError, TooManyRequests) as error:
            log.info("queue %s: %s; again soon", key, error)
            return 0.2
        if self._orders.get(key) == action:
            del self._orders[key]
        # A change that was seen meanwhile needs a reconcile of its own: at the parent, which an order does not
        # follow.
        return 0.0 if key in self._orders or action != SYNC else None

    def given_up(self, key: str, error: Exception) -> None:
        super().given_up(key, error)
        action = self._orders.pop(key, SYNC)
        queue = self._caches.queues.get(key)
        if queue is not None:
            self._events.event(queue, "Warning", action, f"{action} failed for {error}")

    def _held(self, queue: scheduling.Queue) -> int:
        """How many PodGroups the queue has; where it has none, how many pods still run in it without
        one: what the scheduler says that it has allocated, that of its children left out."""
        if groups := self._count(queue):
            return groups
        children = self._caches.queues.by("parent", queue.metadata.name)
        return max(0, _allocated_pods(queue) - sum(map(_allocated_pods, children)))

    def _count(self, queue: scheduling.Queue) -> int:
        phases = self._phases.get(queue.metadata.name, Counter[str]())
        for phase, gauge in GROUPS.items():
            gauge.labels(queue.metadata.name).set(phases[phase])
        return phases.total()

    async def _sync(self, queue: scheduling.Queue, groups: int) -> None:
        state = next_state(queue.status.state, SYNC, groups)
        if state != queue.status.state:
            await self._write_state(queue, state)
        parent = self._parent(queue)
        if parent is None:
            return
        if parent.status.state in SHUT and state not in SHUT:
            await self._mark(queue, "true")
            await self._close(queue, self._held(queue))
        elif parent.status.state == OPEN and state in SHUT and _closed_by_parent(queue):
            await self._open(queue, groups)

    def _parent(self, queue: scheduling.Queue) -> scheduling.Queue | None:
        """The parent, None for the root and its children's root that has not been made yet.  Raises
        LookupError."""
        if queue.metadata.name == names.ROOT_QUEUE or not queue.spec.parent:
            return None
        parent = self._caches.queues.get(queue.spec.parent)
        if parent is None and queue.spec.parent != names.ROOT_QUEUE:
            raise LookupError(f"parent queue {queue.spec.parent} does not exist")
        return parent

    async def _open(self, queue: scheduling.Queue, groups: int) -> None:
        if queue.status.state != OPEN:
            parent = self._parent(queue)
            if (
                parent is not None
                and parent.metadata.name != names.ROOT_QUEUE
                and parent.status.state in SHUT
            ):
                raise ValueError(
                    f"queue {queue.metadata.name} stays closed while its parent {parent.metadata.name} is"
                )
        # Written whatever the cache says: who asks has seen the server, which may be ahead of it.
        await self._write_state(queue, next_state(queue.status.state, Action.OPEN_QUEUE, groups))
        await self._mark(queue, "false")

    async def _close(self, queue: scheduling.Queue, groups: int) -> None:
        if queue.metadata.name == names.ROOT_QUEUE:
            log.warning("the root queue cannot be closed; the command is ignored")
            return
        state = next_state(queue.status.state, Action.CLOSE_QUEUE, groups)
        await self._write_state(queue, state)
        if state != queue.status.state:
            self._events.event(queue, "Normal", Action.CLOSE_QUEUE, "Close queue succeed")

    async def _write_state(self, queue: scheduling.Queue, state: str) -> None:
        """The one field that is ours, so that the scheduler's part of the status stays untouched."""
        await self._client.patch(
            scheduling.QUEUE,
            queue.metadata.name,
            {"status": {"state": str(state)}},
            subresource="status",
            field_manager=FIELD_MANAGER,
        )

    async def _mark(self, queue: scheduling.Queue, closed_by_parent: str) -> None:
        await self._patch(
            queue, {"metadata": {"annotations": {names.CLOSED_BY_PARENT: closed_by_parent}}}
        )

    async def _patch(self, queue: scheduling.Queue, patch: dict[str, Any]) -> scheduling.Queue:
        return await self._client.patch(scheduling.QUEUE, queue.metadata.name, patch)


def _closed_by_parent(queue: scheduling.Queue) -> bool:
    return queue.metadata.annotations.get(names.CLOSED_BY_PARENT) == "true"


def _allocated_pods(queue: scheduling.Queue) -> int:
    return quantity.whole(queue.status.allocated.get("pods", 0))


def _same_to_us(old: scheduling.Queue, new: scheduling.Queue) -> bool:
    return (
        old.spec.parent == new.spec.parent
        and old.status.state == new.status.state
        and (new.status.state != CLOSING or _allocated_pods(old) == _allocated_pods(new))
        and old.metadata.annotations == new.metadata.annotations
    )


def _place(group: scheduling.PodGroup) -> tuple[str, str]:
    return group.spec.queue, group.status.phase
