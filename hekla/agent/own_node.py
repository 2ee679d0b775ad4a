"""What the agent writes on its own node: lent resources, labels, conditions, and the taint that says
that offline pods are being evicted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hekla.agent.pods import NODE, Node
from hekla.api.kubernetes.nodes import NodeCondition
from hekla.api.kubernetes.placement import Taint
from hekla.api.text.times import stamp
from hekla.kube.client import Client
from hekla.kube.errors import Conflict

TRIES = 20
PAUSE = 0.05
"""Seconds before another attempt, and up to twice as many."""
EVICTING_TAINT = Taint(key="volcano.sh/offline-job-evicting", effect="NoSchedule")
EVICTING = "OfflineJobEvicting"
"""The condition beside the taint, which says why."""
TOLD = ("status", "reason", "message")
"""The fields of a condition whose difference counts."""

Change = Callable[[Node], dict[str, Any] | None]
"""A patch of the node as it is; None: nothing is to be written."""


class OwnNode:
    """The node of this agent, read anew for each write: what is written depends on what is there.

    Methods raise ApiError and TransportError.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    async def read(self) -> Node:
        return await self.client.get(NODE, self.name)

    async def write_status(self, change: Change) -> bool:
        """Whether something was written."""
        return await self._write(change, "status")

    async def write(self, change: Change) -> bool:
        return await self._write(change, None)

    async def _write(self, change: Change, subresource: str | None) -> bool:
        for attempt in range(TRIES):
            node = await self.read()
            patch = change(node)
            if patch is None:
                return False
            version = {"resourceVersion": node.metadata.resource_version}
            patch = {**patch, "metadata": {**patch.get("metadata", {}), **version}}
            try:
                await self.client.patch(NODE, self.name, patch, subresource=subresource)
                return True
            except Conflict:
                if attempt == TRIES - 1:
                    raise
            await asyncio.sleep(PAUSE * (1 + random.random()))
        raise AssertionError("unreachable")

    async def annotate(
        self, labels: Mapping[str, str], annotations: Mapping[str, str | None]
    ) -> None:
        """Set labels and annotations; None removes one."""

        def change(node: Node) -> dict[str, Any] | None:
            have = node.metadata
            if all(have.labels.get(name) == value for name, value in labels.items()) and all(
                have.annotations.get(name) == value for name, value in annotations.items()
            ):
                return None
            return {"metadata": {"labels": labels, "annotations": annotations}}

        await self.write(change)

    async def cordon(self) -> bool:
        """Keep pods away while offline ones are evicted; whether that is new."""
        return await self.write(
            lambda node: None if is_cordoned(node) else _taints([*node.spec.taints, EVICTING_TAINT])
        )

    async def thaw(self) -> bool:
        """Let pods come again; whether that is new."""
        return await self.write(
            lambda node: (
                _taints([one for one in node.spec.taints if one.key != EVICTING_TAINT.key])
                if is_cordoned(node)
                else None
            )
        )

    async def say(self, evicting: bool, reason: str, message: str) -> None:
        """State whether offline pods are being evicted."""
        node, status = await self.read(), "True" if evicting else "False"
        if evicting or any(one.type == EVICTING for one in node.status.conditions):
            wanted = {"type": EVICTING, "status": status, "reason": reason, "message": message}
            await self.write_condition(node, wanted)

    async def write_condition(self, node: Node, wanted: Mapping[str, str]) -> None:
        """Write a condition, unless the node as it is known says the same.  Conditions are merged by
        their type, so a version need not be checked."""
        there = (one for one in node.status.conditions if one.type == wanted["type"])
        known = next(there, NodeCondition())
        if all(getattr(known, name) == wanted[name] for name in TOLD):
            return
        now = stamp(time.time())
        since = known.last_transition_time if known.status == wanted["status"] else now
        condition = {**wanted, "lastHeartbeatTime": now, "lastTransitionTime": since}
        patch = {"status": {"conditions": [condition]}}
        await self.client.patch(NODE, self.name, patch, type="strategic", subresource="status")


def is_cordoned(node: Node) -> bool:
    return any(one.key == EVICTING_TAINT.key for one in node.spec.taints)


def says_evicting(node: Node) -> bool:
    return any(one.type == EVICTING and one.status == "True" for one in node.status.conditions)


def _taints(taints: list[Taint]) -> dict[str, Any]:
    return {"spec": {"taints": msgspec.to_builtins(taints)}}
