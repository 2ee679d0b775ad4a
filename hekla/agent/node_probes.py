"""Every ten seconds: what is used, and what follows from it for lending, eviction and the quota of
best-effort pods.

One round does what the original does in five loops of their own, so that all of it is decided by the
same sample.  Reference: agent 7.1, 7.2, 8.3 and 8.5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from hekla.agent import throttle
from hekla.agent.agent import Agent
from hekla.agent.cgroups import PROCESSES, CgroupError
from hekla.agent.configuration import ColocationConfig, CpuThrottlingConfig
from hekla.agent.eviction import Evictor
from hekla.agent.features import Feature
from hekla.agent.node_pressure import NodePressure, Pressure
from hekla.agent.node_resources import NodeResources
from hekla.agent.own_node import OwnNode
from hekla.agent.pods import BEST_EFFORT, Node, milli_cpu
from hekla.agent.throttle import Parameters
from hekla.agent.usage import Usage, UsageCollector
from hekla.agent.watermarks import Kind
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

INTERVAL = 10.0
FIRST = 1.0
"""Seconds from the first reading of the counters to the first sample."""
EXPECTED = (ApiError, TransportError, CgroupError)
"""What fails without anybody's fault here."""


class NodeThrottle:
    """The feature CPUThrottle: how much best-effort pods may have follows what the others use."""

    feature = Feature.CPU_THROTTLE
    name = "throttling"

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._parameters = Parameters()
        self._last = throttle.UNSENT

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        section = config.cpu_throttling_config or CpuThrottlingConfig()
        parameters = Parameters.of(
            active,
            section.cpu_throttling_threshold,
            section.cpu_jitter_limit_percent,
            section.cpu_recover_limit_percent,
        )
        if parameters != self._parameters:
            self._parameters, self._last = parameters, throttle.UNSENT

    async def round(self, usage: Usage, node: Node) -> None:
        """Raises CgroupError."""
        used = usage.cpu_of(offline=False)
        if used is None:
            return
        allocatable = milli_cpu(node.status.allocatable)
        quota = throttle.quota(self._parameters, allocatable, used, self._last)
        if quota is not None:
            self._agent.throttle(quota)
            self._last = quota


class Follower(Protocol):
    """Something that acts on what is used."""

    name: str

    async def round(self, usage: Usage, node: Node) -> None: ...


class NodeProbes:
    """Measures the node and tells its followers, one after the other."""

    def __init__(
        self, agent: Agent, collector: UsageCollector, followers: Sequence[Follower]
    ) -> None:
        self._agent = agent
        self._collector = collector
        self._followers = followers
        self._problems: dict[str, str] = {}

    async def run(self, interval: float = INTERVAL) -> None:
        """Rounds for ever."""
        self._collector.measure()
        await asyncio.sleep(min(FIRST, interval))
        while True:
            await self.round()
            await asyncio.sleep(interval)

    async def round(self) -> None:
        """One sample, and what follows from it.  What fails is said, and the next round tries again."""
        usage, node = self._collector.measure(), self._agent.node
        if node is None or self._agent.config is None:
            return
        for follower in self._followers:
            try:
                await follower.round(usage, node)
            except Exception as error:
                self._failed(follower.name, error)
            else:
                self._problems.pop(follower.name, None)

    def _failed(self, name: str, error: Exception) -> None:
        """Say it, once while it stays the same.  What is not expected is a bug of ours, which must not
        end the others' work; its traceback is in the log."""
        text = str(error) or type(error).__name__
        if self._problems.get(name) != text:
            self._problems[name] = text
            bug = None if isinstance(error, EXPECTED) else error
            log.warning("%s: %s; the next round tries again", name, text, exc_info=bug)


def node_probes(
    agent: Agent, collector: UsageCollector, limits: Mapping[Kind, float]
) -> NodeProbes:
    """The probes of an agent's node; those that the agent supports become its parts.  `limits`: of
    the time in percent for which online pods may wait."""
    cgroups, settings = agent.cgroups, agent.settings
    own = OwnNode(agent.client, settings.node_name)
    evictor = Evictor(agent.client, agent.recorder, agent.metrics.eviction)
    pods, best_effort = (
        cgroups.path(cgroups.qos_root(qos_class), PROCESSES).parent
        for qos_class in ("", BEST_EFFORT)
    )
    pressure = Pressure(pods, best_effort, agent.machine.pressure, limits)
    # Throttling comes first: it needs no API server.
    parts: list[NodeThrottle | NodeResources | NodePressure] = [
        NodeThrottle(agent),
        NodeResources(agent, own, evictor),
        NodePressure(agent, own, evictor, pressure),
    ]
    agent.parts += [part for part in parts if part.feature in settings.supports]
    return NodeProbes(agent, collector, parts)
