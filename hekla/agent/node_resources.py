"""Lends what is idle on the node: samples, writes offers to its status, and takes them back where
oversubscription is turned off.  Reference: agent 7."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from hekla.agent.agent import Agent, PartError
from hekla.agent.configuration import ColocationConfig
from hekla.agent.eviction import TURNED_OFF, Evictor, borrowers, requested
from hekla.agent.features import Feature
from hekla.agent.oversubscription import (
    NO_POLICY,
    Names,
    Offer,
    Pace,
    Samples,
    idle,
    stated_by,
    status_patch,
    types,
    written,
)
from hekla.agent.own_node import OwnNode
from hekla.agent.pods import (
    GUARANTEED,
    Node,
    Pod,
    is_active,
    is_offline,
    is_true,
    memory,
    milli_cpu,
)
from hekla.agent.usage import Usage
from hekla.agent.watermarks import Kind
from hekla.api import names
from hekla.api.trees import Json
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError

log = logging.getLogger(__name__)

TYPES = "volcano.sh/oversubscription-types"
"""Node annotation: what is lent, as in `cpu,memory`."""
TURNED_OFF_BY = "hekla.io/oversubscription-turned-off-by"
"""Node annotation, Hekla's own: who reset the label.  A configuration that turns lending on again sets
the label of the nodes that it had turned off, and of no other."""
CONFIGURATION = "configuration"
CHECKPOINT = "cpu_manager_state"


def cpu_manager_policy(kubelet_root: Path) -> str:
    """The policy of the kubelet's CPU manager; "" where its checkpoint does not tell."""
    try:
        return str(json.loads((kubelet_root / CHECKPOINT).read_text())["policyName"])
    except (OSError, ValueError, LookupError, TypeError):
        return ""


def own_processors(pods: Iterable[Pod], policy: str) -> int:
    """Millicores that pods have for themselves, so that they are no one's to lend."""
    if policy in NO_POLICY:
        return 0
    return sum(
        requested(pod, names.CPU)
        for pod in pods
        if pod.status.qos_class == GUARANTEED and is_active(pod) and not is_offline(pod)
    )


def idle_of(
    node: Node, pods: Iterable[Pod], usage: Usage, policy: str, *, ratio: int, system: bool
) -> dict[Kind, int]:
    """What could be lent by one sample; a kind that was not measured is absent."""
    allocatable = node.status.allocatable
    found = {}
    cpu = usage.cpu_of(guaranteed=policy in NO_POLICY, system=system)
    if cpu is not None:
        lendable = milli_cpu(allocatable) - own_processors(pods, policy)
        found[Kind.CPU] = idle(lendable, cpu, ratio)
    used = usage.memory_of(system=system)
    if used is not None:
        found[Kind.MEMORY] = idle(memory(allocatable), used, ratio)
    return found


class NodeResources:
    """The feature OverSubscription on this node."""

    feature = Feature.OVERSUBSCRIPTION
    name = "oversubscription"

    def __init__(self, agent: Agent, own: OwnNode, evictor: Evictor) -> None:
        self._agent = agent
        self._own = own
        self._evictor = evictor
        self._resources = Names(agent.settings.batch_cpu, agent.settings.batch_memory)
        self._samples = Samples()
        self._pace = Pace()
        self._types = ""
        self._lending = False
        self._taking_back = False
        self._lock = asyncio.Lock()
        """What is lent is not written while it is taken back."""

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        """Follow the configuration and the node's label."""
        async with self._lock:
            section = config.over_subscription_config
            self._types = (section and section.over_subscription_types) or ""
            if active:
                self._lending, self._taking_back = True, False
                return
            node = self._agent.node
            if node is None:
                return
            try:
                await self._turn_off(node, by_configuration=not (section and section.enable))
            except (ApiError, TransportError) as error:
                raise PartError(f"oversubscription is not turned off: {error}") from None

    async def _turn_off(self, node: Node, *, by_configuration: bool) -> None:
        label = node.metadata.labels.get(names.OVERSUBSCRIPTION)
        ours = node.metadata.annotations.get(TURNED_OFF_BY) == CONFIGURATION
        if ours and not by_configuration:
            log.info("oversubscription is turned on again by the configuration")
            await self._own.annotate({names.OVERSUBSCRIPTION: "true"}, {TURNED_OFF_BY: None})
        elif self._lending or is_true(label) or any(self._stated(node).values()):
            await self._take_back(label, by_configuration=by_configuration and is_true(label))
        elif label is not None:
            self._taking_back = True  # an agent before this one may have left borrowers

    async def round(self, usage: Usage, node: Node) -> None:
        """One sample, and an offer where it is time for one.  Raises ApiError and TransportError."""
        async with self._lock:
            if self._taking_back:
                await self._evict_borrowers()
            elif self._lending:
                self._sample(usage, node)
                selected = types(node.metadata.annotations.get(TYPES, ""), self._types)
                offer = self._samples.offer(selected)
                if offer is not None and self._pace.due(offer, self._stated(node)):
                    await self._publish(offer)

    def _sample(self, usage: Usage, node: Node) -> None:
        settings = self._agent.settings
        sample = idle_of(
            node,
            self._agent.pods(),
            usage,
            cpu_manager_policy(self._agent.machine.kubelet_root),
            ratio=settings.oversubscription_ratio,
            system=settings.include_system_usage,
        )
        for kind, amount in sample.items():
            self._samples.add(kind, amount)

    async def _publish(self, offer: Offer) -> None:
        amounts = written(offer, self._resources)
        try:
            await self._write(amounts)
        except (ApiError, TransportError) as error:
            log.warning("what is lent could not be written: %s", error)
            return
        log.debug("lent are %s", amounts)
        self._agent.metrics.lends(self._agent.settings.node_name, offer)

    async def _write(self, amounts: Mapping[str, str | None]) -> None:
        def change(node: Node) -> Json | None:
            status = {"capacity": node.status.capacity, "allocatable": node.status.allocatable}
            return status_patch(status, amounts)

        await self._own.write_status(change)

    async def _take_back(self, label: str | None, *, by_configuration: bool) -> None:
        log.info("oversubscription is turned off: nothing is lent any more")
        self._lending, self._taking_back = False, True
        self._samples.clear()
        self._agent.metrics.lends(self._agent.settings.node_name, dict.fromkeys(Kind, 0))
        if label is not None:
            note = {TURNED_OFF_BY: CONFIGURATION} if by_configuration else {}
            await self._own.annotate({names.OVERSUBSCRIPTION: "false"}, note)
        await self._write({self._resources.cpu: None, self._resources.memory: None})
        await self._evict_borrowers()

    async def _evict_borrowers(self) -> None:
        """Evict the offline pods that use what is lent no more; who does not go is asked each round."""
        there = self._evictor.still_there(self._agent.pods())
        for pod in borrowers(there, self._resources):
            await self._evictor.evict(pod, TURNED_OFF)

    def _stated(self, node: Node) -> Offer:
        return stated_by(node.status.capacity, self._resources)
