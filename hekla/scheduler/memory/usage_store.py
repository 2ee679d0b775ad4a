"""Keeps what a plugin counts of use over time beyond the scheduler's end: in a ConfigMap, or in a file.

That of fairshare is Volcano's: its name, its key and its JSON.  It is written rarely, and once more when
the scheduler ends.  What cannot be read is left alone until there is something to write, and the
memory begins empty.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.scheduler.memory.kept_usage import KeptUsage, Place

log = logging.getLogger(__name__)

KEY = "state.json"
APP = "volcano-scheduler"
IDLE = 1.0
"""Seconds between two looks at the policy while it keeps nothing."""
LOST = (ApiError, TransportError, OSError)


class UsageStore:
    """Reads at the start, then writes as often as the policy says."""

    def __init__(
        self,
        kept: KeptUsage,
        client: Client,
        state: State,
        policy: Callable[[], Policy],
        home: str,
    ) -> None:
        """`home`: the namespace of the ConfigMap where the policy names none."""
        self.kept = kept
        self.client = client
        self.state = state
        self.policy = policy
        self.home = home
        self.saved: Json = {}
        """What was written last, without the time."""

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            wanted = self.wanted()
            if wanted is None:
                await asyncio.sleep(IDLE)
                continue
            await asyncio.sleep(wanted.seconds)
            await self.save()

    def wanted(self) -> Place | None:
        """Where the policy has it kept, if it is to be."""
        place = self.kept.place(self.policy())
        if place is None or place.namespace:
            return place
        return replace(place, namespace=self.home)

    async def load(self) -> None:
        """Tell the state what was written down, before the first cycle."""
        place, plugin = self.wanted(), self.kept.plugin
        if place is None:
            return
        try:
            text = await self._read(place)
            if not text:
                return
            tree = json.loads(text)
            if not isinstance(tree, dict):
                raise ValueError("not an object")
        except NotFound:
            return
        except (*LOST, ValueError) as error:
            log.warning(
                "%s: %s cannot be read, so usage begins at nothing: %s", plugin, place, error
            )
            return
        self.saved = _counted(tree)
        self.state.upsert_other(self.kept.saved, {**tree, "metadata": {"name": "usage"}})
        log.info("%s: usage is as %s has it of %s", plugin, place, tree.get("lastCycle"))

    async def save(self) -> None:
        """Write what changed since it was last written."""
        place, tree = self.wanted(), self.kept.written(self.state)
        if place is None or tree is None:
            return
        counted = _counted(tree)
        if counted == self.saved or not (tree[self.kept.counted] or self.saved):
            return
        try:
            await self._write(place, json.dumps(tree))
        except LOST as error:
            log.warning("%s: %s cannot be written: %s", self.kept.plugin, place, error)
            return
        self.saved = counted

    async def _read(self, place: Place) -> str:
        if place.file:
            path = Path(place.file)
            return path.read_text() if path.exists() else ""
        found = await self.client.get(core.CONFIG_MAP.untyped, place.config_map, place.namespace)
        return str((found.get("data") or {}).get(KEY, ""))

    async def _write(self, place: Place, text: str) -> None:
        if place.file:
            path = Path(place.file)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text)
            os.replace(fresh, path)
            return
        name, namespace = place.config_map, place.namespace
        try:
            await self.client.patch(core.CONFIG_MAP, name, {"data": {KEY: text}}, namespace)
        except NotFound:
            labels = {"app": APP, "component": self.kept.plugin}
            body: dict[str, Any] = {
                "metadata": {"name": name, "namespace": namespace, "labels": labels},
                "data": {KEY: text},
            }
            await self.client.create(core.CONFIG_MAP.untyped, body, namespace)


def _counted(tree: Json) -> Json:
    return {name: value for name, value in tree.items() if name != "lastCycle"}
