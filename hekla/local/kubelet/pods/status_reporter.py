"""Reports the status of one pod when it says something new."""

from __future__ import annotations

import asyncio
import time

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.local.kubelet.pods import statuses
from hekla.local.kubelet.pods.context import PodContext
from hekla.local.kubelet.pods.statuses import PENDING

QUIET = 0.05
"""Seconds that a report about a pod which has not started yet may wait, because a better one often
follows.
"""


class StatusReporter:
    """What of one pod's status has been handed to the sender of all pods' statuses."""

    def __init__(self, context: PodContext) -> None:
        self._context = context
        self._reported: Json | None = None
        self._conditions: dict[str, core.PodCondition] = {}
        """As they were reported last, by type: newer than those of the pod object."""
        self._delayed: asyncio.TimerHandle | None = None

    def report(self) -> None:
        """Report the status, if it says anything new."""
        context = self._context
        if context.deleted:
            return
        conditions = list(self._known_conditions().values())
        status = statuses.status(context.pod, context.view, conditions, time.time())
        if status == self._reported:
            return
        self.cancel()
        if status["phase"] == PENDING and not self._has_news():
            self._delayed = asyncio.get_running_loop().call_later(QUIET, self.send, status)
            return
        self.send(status)

    def cancel(self) -> None:
        """Drop a report that waits."""
        if self._delayed is not None:
            self._delayed.cancel()
            self._delayed = None

    def _has_news(self) -> bool:
        """Whether a pod that is still Pending has more to tell than that: a container that ran, or
        a warning."""
        view = self._context.view
        return bool(self._context.warned) or any(
            container.ended or container.running_since is not None
            for container in (*view.inits, *view.mains, *view.ephemeral)
        )

    def _known_conditions(self) -> dict[str, core.PodCondition]:
        on_server = {one.type: one for one in self._context.pod.status.conditions}
        return on_server | self._conditions

    def send(self, status: Json) -> None:
        """Report a status now."""
        self._delayed = None
        self._reported = status
        before = self._known_conditions()
        conditions = status.get("conditions", ())
        patched = [
            statuses.replacing(condition, before.get(condition["type"])) for condition in conditions
        ]
        kinds = {condition["type"] for condition in patched}
        for kind in statuses.RESIZE_CONDITIONS & before.keys() - kinds:
            patched.append({"$patch": "delete", "type": kind})
            self._conditions.pop(kind, None)
        for condition in conditions:
            self._remember(condition)
        context = self._context
        meta = context.pod.metadata
        context.host.reporter.put(
            context.uid,
            meta.namespace,
            meta.name,
            {**status, "conditions": patched} if patched else status,
        )

    def _remember(self, condition: Json) -> None:
        context = self._context
        self._conditions[condition["type"]] = core.PodCondition(
            type=condition["type"],
            status=condition["status"],
            last_transition_time=condition["lastTransitionTime"],
            reason=condition.get("reason", ""),
            message=condition.get("message", ""),
        )
        if condition["type"] == "Ready":
            ready = condition["status"] == "True" and not context.pod.metadata.deletion_timestamp
            context.host.names.note_ready(context.uid, ready)
