"""Asks every node what it uses, each interval, and keeps its answers of the last fifteen seconds.

What works is seen at the next answer but one, and is told as the mean of those seconds, so that
readers who ask rarely (an autoscaler) do not take a moment for the whole.

Real nodes are asked through the API server, as `kubectl get --raw` would; a node that does not answer
keeps its last numbers for as long as they are not older than three windows.  Pods on fake nodes use
what their annotations say.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

from hekla.api.text import quantity
from hekla.api.text.times import instant
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.metrics_server.objects import NODE, POD, Node, Pod
from hekla.local.metrics_server.points import Measured, Scrape, Usage, between, pods_of, read

log = logging.getLogger("metrics-server")

AT_ONCE = 16
PATIENCE = 10.0
"""Seconds for one answer."""
FIRST = 3.0
"""Seconds between the first two questions."""
WINDOW = 15.0
"""Seconds that usage is averaged over, where answers come more often."""
SLACK = 1.0
"""By which an answer may be older, since none comes at an exact moment."""
STALE = 3
"""Windows after which a node's last answer says nothing any more."""
MOMENT = 1.0
"""Seconds that a fake node's usage is of: what its pods say now."""
FAKE_CPU, FAKE_MEMORY = "1m", "1Mi"
"""What each container on a fake node uses that says nothing, as with KWOK."""


@dataclass(slots=True)
class Answers:
    """The answers of a node within the window, and the last one before."""

    earlier: deque[Scrape] = field(default_factory=deque)
    now: Scrape = field(default_factory=Scrape)
    failing: str = ""

    def take(self, scrape: Scrape) -> None:
        if scrape.node is None or scrape.node.at <= self.at:
            return
        if self.now.node is not None:
            self.earlier.append(self.now)
        self.now = scrape
        oldest = scrape.node.at - WINDOW - SLACK
        while len(self.earlier) > 1 and moment(self.earlier[0]) < oldest:
            self.earlier.popleft()

    @property
    def at(self) -> float:
        return moment(self.now)

    @property
    def before(self) -> Scrape:
        """The first that is known, in the window, of the node and of each container as it runs now."""
        first = Scrape(self.earlier[0].node if self.earlier else None)
        for key, now in self.now.containers.items():
            for scrape in self.earlier:
                point = scrape.containers.get(key)
                if point is not None and point.at >= now.started and point.cpu <= now.cpu:
                    first.containers[key] = point
                    break
        return first


def moment(scrape: Scrape) -> float:
    return scrape.node.at if scrape.node is not None else 0.0


class Collector:
    """The usage of all nodes and pods."""

    def __init__(
        self, client: Client, interval: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._client = client
        self._interval = interval
        self._clock = clock
        self.nodes: Cache[Node] = Cache(client, NODE)
        self.pods: Cache[Pod] = Cache(client, POD)
        self._answers: dict[str, Answers] = {}

    async def start(self) -> None:
        """Know the nodes and pods."""
        await asyncio.gather(self.nodes.start(), self.pods.start())
        await asyncio.gather(self.nodes.synced(), self.pods.synced())

    async def stop(self) -> None:
        await asyncio.gather(self.nodes.stop(), self.pods.stop())

    async def run(self) -> None:
        """Ask for ever, twice soon, because one answer says nothing of processors."""
        interval = min(FIRST, self._interval)
        while True:
            began = time.monotonic()
            await self.ask_all()
            await asyncio.sleep(max(interval - (time.monotonic() - began), 0.0))
            interval = self._interval

    async def ask_all(self) -> None:
        """Ask every real node once."""
        names = {node.metadata.name for node in self.nodes.all() if not node.fake}
        self._answers = {name: one for name, one in self._answers.items() if name in names}
        turns = asyncio.Semaphore(AT_ONCE)

        async def ask(name: str) -> None:
            async with turns:
                await self._ask(name, self._answers.setdefault(name, Answers()))

        await asyncio.gather(*map(ask, sorted(names)))

    async def _ask(self, name: str, answers: Answers) -> None:
        path = f"/api/v1/nodes/{quote(name)}/proxy/metrics/resource"
        try:
            answer = await self._client.request("GET", path, timeout=PATIENCE)
            answers.take(read(answer.body.decode()))
            failing = ""
        except (ApiError, TransportError, OSError, ValueError, KeyError) as error:
            failing = str(error) or type(error).__name__
        if failing and failing != answers.failing:
            log.warning("node %s does not say what it uses: %s", name, failing)
        answers.failing = failing

    # --- what is known ----------------------------------------------------------------------------

    def of_nodes(self) -> Iterator[tuple[Node, Measured]]:
        """Each node whose usage is known, by name."""
        fake: dict[str, list[Usage]] = {}
        for pod, containers in self._fake_pods():
            usages = fake.setdefault(pod.spec.node_name, [])
            usages.extend(one.usage for one in containers.values())
        for node in sorted(self.nodes.all(), key=lambda node: node.metadata.name):
            name = node.metadata.name
            if node.fake:
                usages = fake.get(name, [])
                total = Usage(sum(one.cpu for one in usages), sum(one.memory for one in usages))
                yield node, Measured(self._clock(), MOMENT, total)
                continue
            answers = self._fresh(name)
            if answers is not None and answers.now.node is not None:
                measured = between(answers.before.node, answers.now.node)
                if measured is not None:
                    yield node, measured

    def of_pods(self) -> Iterator[tuple[Pod, dict[str, Measured]]]:
        """Each running pod whose usage is known, with its containers'."""
        for name in self._answers:
            answers = self._fresh(name)
            if answers is None:
                continue
            for (namespace, pod_name), containers in pods_of(answers.before, answers.now).items():
                pod = self.pods.get(f"{namespace}/{pod_name}")
                if pod is not None and pod.spec.node_name == name:
                    yield pod, containers
        yield from self._fake_pods()

    def _fresh(self, name: str) -> Answers | None:
        answers = self._answers.get(name)
        if answers is None or self._clock() - answers.at > STALE * max(self._interval, WINDOW):
            return None
        return answers

    def _fake_pods(self) -> Iterator[tuple[Pod, dict[str, Measured]]]:
        fake = {node.metadata.name for node in self.nodes.all() if node.fake}
        if not fake:
            return
        now = self._clock()
        for pod in self.pods.all():
            if pod.spec.node_name in fake and pod.status.phase == "Running":
                marks = pod.metadata.annotations
                usage = Usage(_amount(marks.cpu, FAKE_CPU), _amount(marks.memory, FAKE_MEMORY))
                window = min(WINDOW, max(now - instant(pod.status.start_time), 0.0))
                measured = Measured(now, window, usage)
                yield pod, {one.name: measured for one in pod.spec.containers}


def _amount(text: str, default: str) -> float:
    """An annotation as a number; one that is no quantity counts as absent."""
    try:
        return quantity.milli(text or default) / 1000
    except quantity.QuantityError:
        return quantity.milli(default) / 1000
