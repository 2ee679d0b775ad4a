"""The node's condition ColocationReady, which says what the machine goes without.

A fresh node has no directory of pods yet, and what is mounted or installed may come later: the
agent looks again every minute, and writes when something is different.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from hekla.agent import doctor
from hekla.agent.agent import Agent
from hekla.agent.doctor import Finding
from hekla.agent.features import Feature
from hekla.agent.own_node import OwnNode
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

PERIOD = 60.0


class Condition:
    """Keeps it up to date."""

    def __init__(self, agent: Agent, state: Path) -> None:
        self._agent = agent
        self._own = OwnNode(agent.client, agent.settings.node_name)
        self._state = state
        self._traffic: Finding | None = None
        """Found out once: it is tried, with programs."""
        self._missing: set[Finding] = set()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(PERIOD)
            await self.look()

    async def look(self) -> None:
        """What is there now; what is newly missing is in the log too.  Features that this process
        does not support are none of its business."""
        agent = self._agent
        left_out = set(Feature) - agent.settings.supports
        if Feature.NETWORK_QOS in left_out:
            self._traffic = Finding(Feature.NETWORK_QOS, False, "not tried")
        elif self._traffic is None:
            self._traffic = await asyncio.to_thread(doctor.traffic)
        found = doctor.survey(agent.machine, agent.cgroups, self._state, self._traffic)
        findings = [one for one in found if one.name not in left_out]
        missing = {one for one in findings if not one.available}
        for one in findings:
            if one in missing - self._missing:
                log.warning("%s: %s: %s", one.name, one.how, one.cost)
        self._missing = missing
        await self._write(doctor.condition(findings))

    async def _write(self, wanted: dict[str, str]) -> None:
        node = self._agent.node
        if node is None:
            return
        try:
            await self._own.write_condition(node, wanted)
        except (ApiError, TransportError) as error:
            log.warning("the node's condition %s is not written: %s", wanted["type"], error)
