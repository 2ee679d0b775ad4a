"""Says of each pod where it was bound: one event a pod, or one for many while the server is busy.

The event says what the pod's `spec.nodeName` and its condition say too.  In a flood it costs a server
that is shared an eighth of what a job of one pod needs, so it is gathered then (decision 0202).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hekla.kube.events import Recorder
from hekla.kube.flowcontrol.adaptive_debounce import AdaptiveDebounce

FLOOD = 16
"""So many pods that are bound within a second while the server is busy are a flood."""
GATHERED_FOR = 1.0
"""Seconds for which the binds of one namespace are gathered."""

Reference = Callable[[str, str, str], dict[str, Any]]


@dataclass(slots=True)
class GatheredBinds:
    """The first pod of a namespace, and how many were bound after it."""

    pod: str
    uid: str
    node: str
    more: int = 0


class BindEvents:
    """Records the event `Scheduled`, on `reference(kind, key, uid)`.  For one event loop."""

    def __init__(
        self, recorder: Recorder, debounce: AdaptiveDebounce, reference: Reference
    ) -> None:
        self._recorder = recorder
        self._debounce = debounce
        self._reference = reference
        self._bound_at: deque[float] = deque(maxlen=FLOOD)
        """When the last pods were bound (loop time)."""
        self._gathered: dict[str, GatheredBinds] = {}
        """Namespace -> its binds that no event has told of."""

    def bound(self, pod: str, uid: str, node: str) -> None:
        """A pod was bound: record it now, or with others of its namespace."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        bound_at = self._bound_at
        flooded = len(bound_at) == FLOOD and now - bound_at[0] <= 1.0
        bound_at.append(now)
        namespace = pod.partition("/")[0]
        gathered = self._gathered.get(namespace)
        if gathered is not None:
            gathered.more += 1
        elif flooded and self._debounce.busy:
            self._gathered[namespace] = GatheredBinds(pod, uid, node)
            loop.call_later(GATHERED_FOR, self._record, namespace)
        else:
            self._event(pod, uid, node, "")

    def flush(self) -> None:
        """Record what is gathered now."""
        for namespace in list(self._gathered):
            self._record(namespace)

    def _record(self, namespace: str) -> None:
        gathered = self._gathered.pop(namespace, None)
        if gathered is None:
            return
        others = (
            f", and in the same second {gathered.more} more pods of the namespace, each to the node "
            "that its spec.nodeName names"
        )
        self._event(gathered.pod, gathered.uid, gathered.node, others if gathered.more else "")

    def _event(self, pod: str, uid: str, node: str, others: str) -> None:
        self._recorder.event(
            self._reference("Pod", pod, uid),
            "Normal",
            "Scheduled",
            f"Successfully assigned {pod} to {node}{others}",
        )
