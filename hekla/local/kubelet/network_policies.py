"""Brings the network policies of the cluster to the pods' network; where nothing can enforce them,
an event on each says so.

The rules are compiled anew from all objects whenever a policy, a namespace's labels or a pod
changes, and sent as a whole, so that the network never has a mixture.  A pod is in them before it
is connected.  While there is no policy, nothing is compiled or sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.kubernetes.networking import NETWORK_POLICY, NetworkPolicy
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.local.kubelet.background_tasks import BackgroundTasks
from hekla.local.kubelet.network.network import Network, NetworkError
from hekla.local.kubelet.network.policies import Endpoint, compile_policies

log = logging.getLogger("kubelet.network")

GATHERING = 0.02
"""Seconds for which changes gather before the network is told."""
PATIENCE = 10.0
"""Seconds for which a kubelet waits for the policies before it takes up its pods."""
NOT_ENFORCED = "NotEnforced"
NAMES = ("kube-system", {"k8s-app": "kube-dns"}, {("dns", "UDP"): 53, ("dns-tcp", "TCP"): 53})
"""As which pod the server of names counts: namespace, labels and ports, so that policies written
for other clusters let it be asked."""


class NetworkPolicies:
    """Of one kubelet.  `pods` gives those that have an address now; `why_not` says why nothing can be
    enforced, if so."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        network: Network | None,
        pods: Callable[[], Iterable[Endpoint]],
        why_not: str,
    ) -> None:
        self._recorder = recorder
        self._network = network
        self._pods = pods
        self._why_not = why_not
        self.policies: Cache[NetworkPolicy] = Cache(client, NETWORK_POLICY)
        self.namespaces: Cache[core.Namespace] = Cache(client, core.NAMESPACE)
        self.caches: list[Cache[Any]] = (
            [self.policies] if why_not else [self.policies, self.namespaces]
        )
        self._told: list[Any] = []
        self._stale = False
        self._telling: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Follows what changes; the caches are filled, and the pods that were there are known."""
        self.policies.on_change(self._policy_changed)
        self.namespaces.on_change(self._namespace_changed)
        if self._network is not None:
            self._network.first = self._again
            # A kubelet before this one may have told it of policies that are gone.
            if self._network.up:
                self._told = [None]

    async def synced(self) -> None:
        """Returns when all are known; a kubelet that may not list them goes on without, and says so."""
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(cache.synced() for cache in self.caches))
        except TimeoutError:
            log.error("network policies cannot be listed: nothing enforces them")

    async def close(self) -> None:
        await self._tasks.cancel()

    def changed(self) -> None:
        """A pod has come, gone, or has other labels."""
        if (
            self._network is None
            or self._why_not
            or not (self._told or any(True for _ in self.policies.all()))
        ):
            return
        self._stale = True
        if self._telling is None or self._telling.done():
            self._telling = self._tasks.start(self._tell(), name="network policies")

    async def settled(self) -> None:
        """Returns when the network knows of all that has changed until now, or has refused it."""
        self.changed()
        while self._stale and self._telling is not None and not self._telling.done():
            await asyncio.shield(self._telling)

    async def _tell(self) -> None:
        await asyncio.sleep(GATHERING)
        await self._now()

    async def _now(self) -> None:
        network = self._network
        if network is None or not network.up:
            self._stale = False  # it is told when it is there, before the first pod is connected
            return
        while self._stale:
            self._stale = False
            groups = self._groups()
            if groups != self._told:
                try:
                    await network.ask({"do": "policies", "groups": groups})
                    self._told = groups
                except NetworkError as error:
                    self._refused(str(error))

    def _groups(self) -> list[Any]:
        namespace, labels, ports = NAMES
        assert self._network is not None
        names = Endpoint(namespace, self._network.gateway, labels, ports)
        known = {one.metadata.name: one.metadata.labels for one in self.namespaces.all()}
        return [
            group.tree()
            for group in compile_policies(self.policies.all(), known, self._pods(), [names])
        ]

    async def _again(self) -> None:
        """There is a network, which knows of no rules, or of those that a kubelet before this one
        told it."""
        self._told = [None]  # so that no rules are told too
        self._stale = True
        await self._now()

    # --- changes ----------------------------------------------------------------------------------

    def _policy_changed(self, old: NetworkPolicy | None, new: NetworkPolicy | None) -> None:
        if self._why_not:
            if new is not None and (old is None or old.spec != new.spec):
                self._complain(new, self._why_not)
            return
        self.changed()

    def _namespace_changed(self, old: core.Namespace | None, new: core.Namespace | None) -> None:
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self.changed()

    def _refused(self, why: str) -> None:
        log.error("network policies: %s", why)
        for policy in self.policies.all():
            self._complain(policy, why)

    def _complain(self, policy: NetworkPolicy, why: str) -> None:
        message = f"Nothing enforces this policy on the pods of this machine: {why}"
        self._recorder.event(policy, "Warning", NOT_ENFORCED, message)
