"""Keeps what the plugin fairshare remembers beyond the scheduler's end: in a ConfigMap, or in a file.

The ConfigMap is Volcano's: its name, its key and its JSON.  It is written rarely, and once more when
the scheduler ends.  What cannot be read is left alone until there is something to write, and the
memory begins empty.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.engine.plugins.fairness.fairshare import SAVED, FairShareArguments, written
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

KEY = "state.json"
LABELS = {"app": "volcano-scheduler", "component": "fairshare"}
IDLE = 1.0
"""Seconds between two looks at the policy while it keeps nothing."""
LOST = (ApiError, TransportError, OSError)


class UsageStore:
    """Reads at the start, then writes as often as the policy says."""

    def __init__(self, client: Client, state: State, policy: Callable[[], Policy]) -> None:
        self.client = client
        self.state = state
        self.policy = policy
        self.saved: object = None
        """What was written last."""

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            wanted = self.wanted()
            if wanted is None:
                await asyncio.sleep(IDLE)
                continue
            await asyncio.sleep(float(wanted.flush_interval))
            await self.save()

    def wanted(self) -> FairShareArguments | None:
        """The arguments of the policy's plugin, if it is to be kept."""
        for one in self.policy().arguments_of("fairshare"):
            if isinstance(one, FairShareArguments) and (one.persist or one.state_file):
                return one
        return None

    async def load(self) -> None:
        """Tell the state what was written down, before the first cycle."""
        wanted = self.wanted()
        if wanted is None:
            return
        place = _place(wanted)
        try:
            text = await self._read(wanted)
            if not text:
                return
            tree = json.loads(text)
            if not isinstance(tree, dict):
                raise ValueError("not an object")
        except NotFound:
            return
        except (*LOST, ValueError) as error:
            log.warning(
                "fairshare: %s cannot be read, so usage begins at nothing: %s", place, error
            )
            return
        self.state.upsert_other(SAVED, {**tree, "metadata": {"name": "usage"}})
        log.info("fairshare: usage is as %s has it of %s", place, tree.get("lastCycle"))

    async def save(self) -> None:
        """Write what changed since it was last written."""
        wanted, usage = self.wanted(), self.state.job_table.usage
        if wanted is None or usage is None or not usage.at:
            return
        tree = written(usage)
        if tree["queues"] == self.saved or not (tree["queues"] or self.saved):
            return
        try:
            await self._write(wanted, json.dumps(tree))
        except LOST as error:
            log.warning("fairshare: %s cannot be written: %s", _place(wanted), error)
            return
        self.saved = tree["queues"]

    async def _read(self, wanted: FairShareArguments) -> str:
        if wanted.state_file:
            path = Path(wanted.state_file)
            return path.read_text() if path.exists() else ""
        found = await self.client.get(
            core.CONFIG_MAP.untyped, wanted.state_config_map, wanted.state_namespace
        )
        return str((found.get("data") or {}).get(KEY, ""))

    async def _write(self, wanted: FairShareArguments, text: str) -> None:
        if wanted.state_file:
            path = Path(wanted.state_file)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text)
            os.replace(fresh, path)
            return
        name, namespace = wanted.state_config_map, wanted.state_namespace
        try:
            await self.client.patch(core.CONFIG_MAP, name, {"data": {KEY: text}}, namespace)
        except NotFound:
            body: dict[str, Any] = {
                "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
                "data": {KEY: text},
            }
            await self.client.create(core.CONFIG_MAP.untyped, body, namespace)


def _place(wanted: FairShareArguments) -> str:
    return wanted.state_file or f"ConfigMap {wanted.state_namespace}/{wanted.state_config_map}"
