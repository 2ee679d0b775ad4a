"""Keeps the node's usage between its watermarks: sends offline pods away while it is above, and lets
pods come again when it is below.  Reference: agent 8."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hekla.agent.agent import Agent
from hekla.agent.configuration import ColocationConfig
from hekla.agent.eviction import Evictor, under_pressure, victims
from hekla.agent.features import Feature
from hekla.agent.oversubscription import Names
from hekla.agent.own_node import OwnNode, is_cordoned, says_evicting
from hekla.agent.pods import Node, is_true, memory, milli_cpu
from hekla.agent.usage import Usage
from hekla.agent.watermarks import (
    DEFAULT,
    Counters,
    Kind,
    Marks,
    Sample,
    Watermarks,
    of_node,
    online_pressure,
    percent,
)
from hekla.api import names
from hekla.kube.events import Severity

log = logging.getLogger(__name__)

CALM, TURNED_OFF = "BelowWatermarks", "EvictionTurnedOff"


@dataclass(frozen=True, slots=True)
class Pressure:
    """Pressure stall information as a reason to evict; Hekla's own, off without limits."""

    pods: Path
    best_effort: Path
    proc: Path
    """Directories: of all pods, of those of class BestEffort, and the machine's."""
    limits: Mapping[Kind, float] = field(default_factory=dict)
    """Percent of the time in which online pods may wait."""

    def of(self, kind: Kind) -> tuple[float | None, float]:
        limit = self.limits.get(kind, 0.0)
        if limit <= 0:
            return None, 0.0
        return online_pressure(self.pods, self.best_effort, kind, self.proc), limit


def configured(config: ColocationConfig) -> Watermarks:
    """The watermarks of a configuration, which has been validated."""
    section = config.evicting_config
    if section is None:
        return DEFAULT

    def marks(kind: Kind, high: int | None, low: int | None) -> Marks:
        default = DEFAULT[kind]
        return Marks(
            default.high if high is None else high,
            default.low if low is None else low,
        )

    return {
        Kind.CPU: marks(
            Kind.CPU, section.evicting_cpu_high_watermark, section.evicting_cpu_low_watermark
        ),
        Kind.MEMORY: marks(
            Kind.MEMORY,
            section.evicting_memory_high_watermark,
            section.evicting_memory_low_watermark,
        ),
    }


class NodePressure:
    """The feature Eviction on this node."""

    feature = Feature.EVICTION
    name = "eviction"

    def __init__(self, agent: Agent, own: OwnNode, evictor: Evictor, pressure: Pressure) -> None:
        self._agent = agent
        self._own = own
        self._evictor = evictor
        self._pressure = pressure
        self._resources = Names(agent.settings.batch_cpu, agent.settings.batch_memory)
        self._watermarks = DEFAULT
        self._counters = Counters()
        self._active = False
        self._wrong = ""

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        self._watermarks = configured(config)
        self._active = active
        self._counters.clear()

    async def round(self, usage: Usage, node: Node) -> None:
        """Count, and act where it is time to.  Raises ApiError and TransportError."""
        if not self._active:
            await self._thaw(node, TURNED_OFF, "the agent does not evict on this node")
            return
        evicting = is_true(node.metadata.labels.get(names.OVERSUBSCRIPTION))
        decision = self._counters.decide(self.samples(usage, node), evicting=evicting)
        for why in decision.evict:
            await self._relieve(why)
        if decision.thaw:
            await self._thaw(node, CALM, "usage is below all low watermarks")

    def samples(self, usage: Usage, node: Node) -> list[Sample]:
        watermarks, wrong = of_node(node.metadata.annotations, self._watermarks)
        if wrong and wrong != self._wrong:
            log.warning("the configured watermarks hold, those of the node are wrong: %s", wrong)
        self._wrong = wrong
        system = self._agent.settings.include_system_usage
        allocatable = node.status.allocatable
        used = {
            Kind.CPU: percent(usage.cpu_of(system=system), milli_cpu(allocatable)),
            Kind.MEMORY: percent(usage.memory_of(system=system), memory(allocatable)),
        }
        found = []
        for kind, share in used.items():
            self._agent.metrics.uses(node.metadata.name, kind, share)
            found.append(Sample(kind, share, watermarks[kind], *self._pressure.of(kind)))
        return found

    async def _relieve(self, why: Sample) -> None:
        """Keep pods away, and evict one offline pod."""
        pods = victims(self._evictor.still_there(self._agent.pods()), why.kind, self._resources)
        if not pods:
            return
        if await self._own.cordon():
            log.warning("%s: offline pods are evicted, and no pods come meanwhile", why)
            self._tell("Warning", "OfflineJobEvicting", f"{why}: offline pods are evicted")
        await self._own.say(True, f"{why.kind.name.title()}Pressure", str(why))
        await self._evictor.evict_first(pods, under_pressure(why.kind))

    async def _thaw(self, node: Node, reason: str, message: str) -> None:
        if not (is_cordoned(node) or says_evicting(node)):
            return
        if await self._own.thaw():
            log.info("%s: pods may come again", message)
            self._tell("Normal", "OfflineJobEvictingStopped", f"{message}: pods may come again")
        await self._own.say(False, reason, message)

    def _tell(self, severity: Severity, reason: str, message: str) -> None:
        name = self._own.name
        about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}}
        self._agent.recorder.event(about, severity, reason, message)
