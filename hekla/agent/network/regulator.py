"""The loop of network QoS: measures what pods send, and sets the limit of the offline ones by it.

Each round is one read of the kernel's counters; programs run only when the limit or the pods change.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hekla.agent.network.interfaces import interfaces
from hekla.agent.network.limits import Limits
from hekla.agent.network.pod_network import NetworkError, call, enter
from hekla.agent.network.shaper import Counters, Sent, Shaper
from hekla.agent.network.state import StateFiles, Status

log = logging.getLogger(__name__)

MIN_INTERVAL = 0.1
"""Seconds.  The original looks every 10 ms, from within the kernel; from outside that would cost
more than it brings."""
IDLE_INTERVAL = 1.0
"""The same while there is nobody to limit."""
QUICK_TRIES = 5
"""Searches in the first rounds for the interfaces of new pods, of whom the kernel hears by the first."""
RETRY_SECONDS, RESYNC_SECONDS = 1.0, 30.0
"""Between two further ones, and two searches for all."""
STATUS_SECONDS = 1.0
"""Between two writes of the status."""


@dataclass(frozen=True, slots=True)
class NetworkPod:
    """A pod with a network of its own."""

    uid: str
    name: str
    addresses: tuple[str, ...]
    offline: bool
    limited: bool = False
    """It has a bandwidth of its own by annotation, and is not shaped beside that."""


@dataclass(slots=True)
class Meter:
    """Traffic since the last look, by the interfaces of the online pods."""

    last: Mapping[str, Sent] = field(default_factory=dict)
    shaped: Sent | None = None
    at: float = 0.0

    def take(self, counters: Counters, now: float) -> tuple[Sent, Sent, float]:
        """(sent by online pods, sent by shaped pods, seconds) since the last look.  What an
        interface had counted before it was looked at first is not traffic of now."""
        seconds, self.at = now - self.at, now
        count = packets = 0
        for name, sent in counters.interfaces.items():
            grown = since(sent, self.last.get(name, sent))
            count += grown.bytes
            packets += grown.packets
        shaped = since(counters.shaped, self.shaped or counters.shaped)
        self.last, self.shaped = counters.interfaces, counters.shaped
        return Sent(count, packets), shaped, seconds


def since(now: Sent, before: Sent) -> Sent:
    """What has been added to a counter; an interface of the same name that is new counts from 0."""
    if now.bytes < before.bytes:
        return now
    return Sent(now.bytes - before.bytes, now.packets - before.packets)


class Regulator:
    """Holds the offline pods of a node to the limits, from `start` until `stop`, in a thread of its
    own that is in the namespace of the pods' links."""

    def __init__(
        self,
        shaper: Shaper,
        place: str,
        files: StateFiles,
        find: Callable[[Collection[str]], dict[str, str]] = interfaces,
    ) -> None:
        """`place`: of that namespace, as `pod_network` has it."""
        self.shaper = shaper
        self.place = place
        self.files = files
        self._find = find
        self.status = Status()
        self.problem = ""
        """Why nothing is regulated at present."""
        self.refused: dict[str, str] = {}
        """Names of offline pods that are not limited -> why."""
        self._pods: dict[str, NetworkPod] = {}
        self._changed = False
        """Other pods have been set than those that are shaped."""
        self._interfaces: dict[str, str] = {}
        """By the uid of a pod."""
        self._shaped: list[str] = []
        """Those of offline pods that have no limit of their own."""
        self._meter = Meter()
        self._rate = 0
        """In force; 0: what is in the kernel is not known, or nothing."""
        self._namespace = 0
        self._tries = 0
        """Searches in vain for pods that are not found."""
        self._search_at = self._resync_at = self._written_at = 0.0
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._wake = threading.Event()
        """Pods have come or gone, or this ends."""

    @property
    def running(self) -> bool:
        return self._thread is not None

    def set_pods(self, pods: Iterable[NetworkPod]) -> None:
        """All pods of the node that have a network of their own."""
        found = {pod.uid: pod for pod in pods}
        if found != self._pods:
            self._pods, self._changed = found, True
            self._wake.set()

    def start(self) -> None:
        if self._thread is None:
            self._ending.clear()
            self._thread = threading.Thread(target=self._run, name="network-qos", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Release all pods, also those that an earlier agent has left.  Raises NetworkError if that
        cannot be."""
        self.pause()
        self._rate, self._shaped, self.refused, self.problem = 0, [], {}, ""
        call(self.place, self.shaper.remove)

    def pause(self) -> None:
        """Leave everything as it is."""
        if self._thread is not None:
            self._ending.set()
            self._wake.set()
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        namespace = 0
        while not self._ending.is_set():
            began = time.monotonic()
            self._wake.clear()
            try:
                namespace = enter(self.place, namespace)
                interval = self.look(began, namespace)
                if self.problem:
                    log.info("network QoS goes on")
                self.problem = ""
            except (NetworkError, OSError, ValueError) as error:
                if str(error) != self.problem:
                    log.warning("network QoS: %s", error)
                interval = self._again(str(error))
            except Exception as error:  # a bug of ours: the limit goes on following the traffic
                log.exception("network QoS: a round has failed")
                interval = self._again(repr(error))
            self._wake.wait(interval)
            # What is sent within a shorter time says nothing.
            self._ending.wait(began + MIN_INTERVAL - time.monotonic())

    def _again(self, problem: str) -> float:
        """After a round that failed: set everything anew in the next.  Gives the seconds until then."""
        self.problem, self._rate = problem, 0
        return RETRY_SECONDS

    def look(self, now: float, namespace: int = 0) -> float:
        """One round, in this namespace; gives the seconds until the next.  Raises NetworkError,
        OSError, ValueError."""
        limits = self.files.limits()
        if limits is None:
            raise ValueError(f"{self.files.limits_file} is not there: nobody has set limits")
        if namespace != self._namespace:  # with other links
            self._interfaces, self._namespace = {}, namespace
            self._rate = self._tries = 0
        if self._changed or not self._rate or now >= self._search_at:
            self._shape(self._rate or limits.offline(0), now)
        counters = self.shaper.counters(self._online())
        sent, shaped, seconds = self._meter.take(counters, now)
        bandwidth = round(sent.bytes / max(seconds, 0.001))
        rate = limits.offline(bandwidth)
        changed = rate != self._rate
        if changed:
            self.shaper.limit(rate)
            self._rate = rate
        self._count(limits, sent, shaped, bandwidth, seconds)
        if changed or now - self._written_at >= STATUS_SECONDS:
            self._written_at = now
            self.files.set_status(self.status)
        least = MIN_INTERVAL if self._shaped else IDLE_INTERVAL
        return min(max(limits.interval / 1e9, least), RESYNC_SECONDS)

    def _online(self) -> list[str]:
        """The interfaces of online pods."""
        pods = self._pods
        return [
            name for uid, name in self._interfaces.items() if uid in pods and not pods[uid].offline
        ]

    def _shape(self, rate: int, now: float) -> None:
        """Look up the interfaces, and shape those of the offline pods."""
        if self._changed:
            self._changed, self._tries = False, 0
        pods = self._pods
        known = {uid: name for uid, name in self._interfaces.items() if uid in pods}
        if now >= self._resync_at:
            self._resync_at = now + RESYNC_SECONDS
            wanted = list(pods.values())
        else:
            wanted = [pod for pod in pods.values() if pod.uid not in known]
        found = self._find([address for pod in wanted for address in pod.addresses])
        for pod in wanted:
            for address in pod.addresses:
                if address in found:
                    known[pod.uid] = found[address]
        self._interfaces = known
        limited = [pod for pod in pods.values() if pod.offline and not pod.limited]
        shaped = {known[pod.uid]: pod.name for pod in limited if pod.uid in known}
        self._shaped = sorted(shaped)
        refused = self.shaper.shape(self._shaped, rate)
        self._rate = rate
        lost = [pod.name for pod in limited if pod.uid not in known]
        self._search_at = self._resync_at
        if len(known) < len(pods):
            self._tries += 1
            again = now if self._tries < QUICK_TRIES else now + RETRY_SECONDS
            self._search_at = min(again, self._resync_at)
        self._tell(
            {shaped[name]: why for name, why in refused.items()}
            | dict.fromkeys(
                lost if self._tries >= QUICK_TRIES else (), "its interface is not found"
            )
        )

    def _tell(self, refused: dict[str, str]) -> None:
        for name, why in refused.items():
            if self.refused.get(name) != why:
                log.warning("pod %s sends without a limit: %s", name, why)
        self.refused = refused

    def _count(
        self, limits: Limits, sent: Sent, shaped: Sent, bandwidth: int, seconds: float
    ) -> None:
        status = self.status
        status.latest_check_time = time.time_ns()
        status.check_times += 1
        if self._rate == limits.offline(0):
            status.high_times += 1
        else:
            status.low_times += 1
        status.online_tx_bytes += sent.bytes
        status.online_tx_packages += sent.packets
        status.offline_tx_bytes += shaped.bytes
        status.offline_tx_packages += shaped.packets
        if shaped.packets:
            status.latest_offline_packet_send_time = status.latest_check_time
        status.offline_bandwidth_limit = self._rate
        status.latest_online_bandwidth = bandwidth
        status.latest_offline_bandwidth = round(shaped.bytes / max(seconds, 0.001))
