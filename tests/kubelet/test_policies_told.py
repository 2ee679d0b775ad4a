"""Every change comes to the pods' network, also one that comes just as the network is told."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from hekla.api.kubernetes.networking import NetworkPolicy
from hekla.api.trees import Json
from hekla.local.kubelet.network.policies import Endpoint
from hekla.local.kubelet.network_policies import NetworkPolicies

PATIENCE = 5.0
POLICY = {"metadata": {"name": "all", "namespace": "n"}, "spec": {"podSelector": {}}}


class Network:
    """Knows what it was told, and calls back once its first answer has been given."""

    up, gateway = True, "10.0.0.254"
    first: Any = None

    def __init__(self) -> None:
        self.groups: list[Json] = []
        self.answered: Any = None

    async def ask(self, message: Json) -> None:
        self.groups = message["groups"]
        if (answered := self.answered) is not None:
            self.answered = None
            # The task that asked ends in this step; who waits for it is woken in the next.
            asyncio.get_running_loop().call_soon(answered)


def addresses(network: Network) -> set[str]:
    """Those that some group isolates."""
    return {address for group in network.groups for address in group["pods"]}


async def test_a_pod_that_comes_while_the_network_is_updated_is_sent_too() -> None:
    pods = [Endpoint("n", "10.0.0.1", {}, {})]
    network, client, recorder = Network(), None, None
    policies = NetworkPolicies(client, recorder, network, lambda: pods, "")  # type: ignore[arg-type]
    policies.policies._put("n/all", msgspec.convert(POLICY, NetworkPolicy))
    policies.start()
    late: list[asyncio.Future[None]] = []

    def another() -> None:
        pods.append(Endpoint("n", "10.0.0.2", {}, {}))
        settled = policies.settled()
        settled.send(None)  # as a task's first step, which must not be its last
        settled.close()
        late.append(asyncio.ensure_future(policies.settled()))

    network.answered = another
    async with asyncio.timeout(PATIENCE):
        await policies.settled()
        while not late:
            await asyncio.sleep(0)
        await late[0]
    assert addresses(network) == {"10.0.0.1", "10.0.0.2"}
    await policies.close()
