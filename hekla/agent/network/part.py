"""Network QoS as a part of the agent: follows the configuration, and tells the regulator of the pods.

Reference: agent 6.7 and 9.1.  The node says by an annotation what it can send; the limits are
percentages of that.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from hekla.agent.agent import Agent, PartError
from hekla.agent.configuration import ColocationConfig, ConfigurationError, NetworkQosConfig
from hekla.agent.features import Feature
from hekla.agent.network import cni
from hekla.agent.network.pod_network import NetworkError, place_of_pods, unavailable
from hekla.agent.network.regulator import NetworkPod, Regulator
from hekla.agent.network.state import StateFiles
from hekla.agent.network.traffic_control import TrafficControl
from hekla.agent.pods import Node, Pod, has_own_bandwidth, is_offline
from hekla.api import names
from hekla.api.meta import key

log = logging.getLogger(__name__)

SKIPPED = (
    "Colocation Network QoS is not set, because it already has an Ingress-Bandwidth/Egress-Bandwidth network rate "
    f"limit(with annotation key {names.INGRESS_BANDWIDTH} or {names.EGRESS_BANDWIDTH} )"
)
UNKNOWN = "unknown"


class NetworkQos:
    """The feature on one node."""

    feature = Feature.NETWORK_QOS
    name = "network QoS"

    def __init__(self, agent: Agent, files: StateFiles) -> None:
        self.agent = agent
        self.files = files
        self.regulator = Regulator(TrafficControl(), place_of_pods(), files)
        agent.metrics.network.regulator = self.regulator
        agent.pod_cache.on_change(self._pod_changed)

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        if not active:
            await self._disable()
            return
        section, node = config.network_qos_config, self.agent.node
        if section is None or node is None:
            raise ConfigurationError("nil network qos config")
        texts = limit_texts(section, node)
        if why := await asyncio.to_thread(unavailable, self.regulator.shaper):
            raise PartError(
                f"unsupported feature: os({os_of(self.agent.machine.os_release)}) does not support network qos: {why}"
            )
        try:
            cni.prepare(self.files, self.agent.machine.cni_conf, texts)
        except (OSError, ValueError) as error:
            raise PartError(f"failed to set network qos:{error}") from None
        self._tell_pods()
        self.regulator.start()

    async def _disable(self) -> None:
        """Also what an agent before this one has left."""
        worked = self.regulator.running
        try:
            cni.unprepare(self.files, self.agent.machine.cni_conf)
            await asyncio.to_thread(self.regulator.stop)
        except NetworkError as error:
            if worked:
                raise PartError(f"failed to reset network qos:{error}") from None
            log.debug("nothing is shaped: %s", error)
        except (OSError, ValueError) as error:
            raise PartError(f"failed to reset network qos:{error}") from None

    async def handle(self, pod: Pod) -> None:
        if has_own_bandwidth(pod):
            self.agent.recorder.event(pod, "Warning", "NetworkQoSSkipped", SKIPPED)

    async def run(self) -> None:
        """Nothing is left in the kernel when the agent ends."""
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await asyncio.to_thread(self.regulator.stop)
            except NetworkError as error:
                log.debug("nothing is shaped: %s", error)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if self.regulator.running:
            self._tell_pods()

    def _tell_pods(self) -> None:
        self.regulator.set_pods(
            NetworkPod(
                pod.metadata.uid,
                key(pod),
                (pod.status.pod_ip,),
                is_offline(pod),
                has_own_bandwidth(pod),
            )
            for pod in self.agent.pods()
            if pod.status.pod_ip and not pod.spec.host_network
        )


def limit_texts(section: NetworkQosConfig, node: Node) -> dict[str, str]:
    """The limits of a node as `network-qos` takes them.  Raises ConfigurationError."""
    about = f"annotation {names.NETWORK_BANDWIDTH_RATE}"
    rate = node.metadata.annotations.get(names.NETWORK_BANDWIDTH_RATE, "")
    if not rate:
        raise ConfigurationError(
            f"node {node.metadata.name} network bandwidth rate not exists, {about}"
        )
    if not rate.isdecimal() or int(rate) == 0:
        raise ConfigurationError(
            f"node {node.metadata.name}: {about} is {rate!r}, expected a whole number of Mbps above 0"
        )

    def share(percent: int | None) -> str:
        return f"{max(int(rate) * (percent or 0) // 100, 1)}Mbps"

    return {
        "online_bandwidth_watermark": share(section.online_bandwidth_watermark_percent),
        "interval": str(section.qos_check_interval),
        "offline_low_bandwidth": share(section.offline_low_bandwidth_percent),
        "offline_high_bandwidth": share(section.offline_high_bandwidth_percent),
    }


def os_of(release: Path) -> str:
    """Name and version of the node's operating system, from its os-release."""
    try:
        lines = release.read_text().splitlines()
    except OSError:
        return f"{UNKNOWN}:{UNKNOWN}"
    values = dict(line.partition("=")[::2] for line in lines)
    name, version = (values.get(key, UNKNOWN).strip("\"'") for key in ("NAME", "VERSION"))
    return f"{name}:{version}"
