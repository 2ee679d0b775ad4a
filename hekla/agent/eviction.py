"""Evicts offline pods: which, in what order, through the eviction API, and never one twice.
Reference: agent 8.4."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from hekla.agent.oversubscription import Names
from hekla.agent.pods import Pod, is_active, is_offline
from hekla.agent.watermarks import Kind
from hekla.api import names
from hekla.api.kubernetes import core
from hekla.api.meta import key
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.evictions import eviction_version
from hekla.kube.http.client import TransportError
from hekla.podrules.usage import pod_resources

log = logging.getLogger(__name__)

TURNED_OFF = "Evict offline pod due to node overSubscription is turned off"
CRITICAL = 2_000_000_000
"""Priority from which a pod is critical to its node or cluster."""
PATIENCE = 5.0
"""Seconds for one eviction; who does not go now is tried again in the next round."""


def under_pressure(kind: Kind) -> str:
    return f"Evict offline pod due to {kind} resource pressure"


def is_critical(pod: Pod) -> bool:
    """Whether a node may not be without the pod: static ones, and those of the system."""
    marks = pod.metadata.annotations
    return (
        names.MIRROR_POD in marks
        or marks.get(names.CONFIG_SOURCE, "api") != "api"
        or (pod.spec.priority or 0) >= CRITICAL
    )


def requested(pod: Pod, resource: str) -> int:
    """Millicores of cpu, whole units of all else, over all containers of a pod."""
    amount = pod_resources(msgspec.to_builtins(pod.spec), "requests").get(resource)
    if amount is None:
        return 0
    return amount.milli() if resource == names.CPU else amount.whole()


def victims(pods: Iterable[Pod], kind: Kind, resources: Names) -> list[Pod]:
    """Offline pods in the order in which they go: who requests most of the kind first, be it of its
    own or of what is lent."""
    offline = [pod for pod in pods if is_active(pod) and is_offline(pod)]
    return sorted(
        offline,
        key=lambda pod: (
            -requested(pod, kind),
            -requested(pod, resources.of(kind)),
            pod.metadata.namespace,
            pod.metadata.name,
        ),
    )


def borrowers(pods: Iterable[Pod], resources: Names) -> list[Pod]:
    """Of the victims those that request what is lent."""
    return [
        pod
        for pod in victims(pods, Kind.CPU, resources)
        if any(requested(pod, resources.of(kind)) > 0 for kind in Kind)
    ]


class Evictor:
    """Evicts pods and says so on them."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        counted: Callable[[str], None],
    ) -> None:
        """`counted` hears what became of each eviction: evicted, refused or failed."""
        self._client = client
        self._recorder = recorder
        self._counted = counted
        self._version = ""
        self._evicted: set[str] = set()
        """Uids; the server's word may come here later than the next round."""

    async def evict_first(self, pods: Iterable[Pod], message: str) -> None:
        """Evict the first of them that goes."""
        for pod in pods:
            if await self.evict(pod, message):
                return

    def still_there(self, pods: Iterable[Pod]) -> list[Pod]:
        """Without those that were evicted and are only not known to be gone."""
        known = list(pods)
        self._evicted &= {pod.metadata.uid for pod in known}
        return [pod for pod in known if pod.metadata.uid not in self._evicted]

    async def evict(self, pod: Pod, message: str) -> bool:
        """Whether the API server has taken the eviction.  Budgets are kept; who is critical stays."""
        name = key(pod)
        if pod.metadata.uid in self._evicted:
            return False
        if is_critical(pod):
            self._counted("refused")
            log.warning("%s is critical to its node and not evicted", name)
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                was_there = await self._post(pod)
        except (ApiError, TransportError, TimeoutError) as error:
            why = str(error) or f"no answer within {PATIENCE:g} s"
            self._counted("failed")
            log.warning("%s is not evicted: %s", name, why)
            self._recorder.event(pod, "Warning", "EvictionFailed", f"{message}: {why}")
            return False
        self._evicted.add(pod.metadata.uid)
        if not was_there:
            log.info("%s is gone already", name)
            return False
        self._counted("evicted")
        log.info("%s: %s", name, message)
        self._recorder.event(pod, "Warning", "Evicted", message)
        return True

    async def _post(self, pod: Pod) -> bool:
        """Whether the pod was still there.  Raises ApiError and TransportError."""
        self._version = self._version or await eviction_version(self._client)
        if not self._version:
            raise ApiError(404, "NotFound", "the API server does not serve pods/eviction")
        name, namespace = pod.metadata.name, pod.metadata.namespace
        body = _body(pod, self._version)
        try:
            await self._client.post(core.POD, name, namespace, "eviction", body)
        except NotFound:
            return False
        return True


def _body(pod: Pod, version: str) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
        "deleteOptions": {
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": pod.metadata.uid},
        },
    }
