"""The agent of one node: its node and pods, the configuration in force, and the parts that follow
both (reference: agent 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from hekla.agent.cgroups import CgroupError, Cgroups, Version, Write
from hekla.agent.configuration import ColocationConfig, ConfigurationError, aggregate
from hekla.agent.features import SECTIONS, Feature, unsupported, wanted
from hekla.agent.handlers import cpu_qos_class, cpu_throttle, memory_protection
from hekla.agent.handlers.context import Context
from hekla.agent.handlers.memory_qos_v2 import AnnotationError
from hekla.agent.handlers.table import HANDLERS, PodSettings
from hekla.agent.machine import Machine
from hekla.agent.metrics import Metrics
from hekla.agent.originals import Originals
from hekla.agent.pods import NODE, POD, Node, Pod, is_active, is_ready, memory
from hekla.api import names
from hekla.api.meta import key
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.events import Recorder
from hekla.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

RESYNC = 900.0
"""Seconds after which every pod is looked at again."""
FIRST_RETRY, LONGEST_RETRY = 1.0, 100.0
MOST_DOUBLINGS = 10
"""Of the first retry's seconds: a float has no room for a thousand of them."""
KEEP = 10.0
"""Seconds after which what pods come to together is looked at again."""
PAUSE = 1.0
"""Seconds in which changes of pods gather before what they come to together is written."""
TOGETHER = ""
"""The key of that; no pod has it."""
TOLD_AFTER = 3
"""Failures in a row after which the pod has an event."""


class PartError(Exception):
    """A part could not do what it was asked to; the text says why.  It is asked again later."""


class Part(Protocol):
    """Something that follows the configuration.  A part that works on pods has `handle` too, one with
    work of its own `run`."""

    feature: Feature
    name: str

    async def refresh(self, config: ColocationConfig, active: bool) -> None:
        """Take over a configuration.  Raises ConfigurationError or PartError; it is in force for the
        others all the same."""


@runtime_checkable
class PodPart(Part, Protocol):
    async def handle(self, pod: Pod) -> None:
        """Apply the feature to a pod that is ready; only called while active.  Raises PartError, and
        is called again."""


@runtime_checkable
class LoopPart(Part, Protocol):
    async def run(self) -> None:
        """Work until cancelled, whether active or not; what has to be undone then is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    node_name: str
    supports: frozenset[Feature]
    batch_cpu: str = names.BATCH_CPU
    batch_memory: str = names.BATCH_MEMORY
    oversubscription_policy: str = "extend"
    oversubscription_ratio: int = 60
    include_system_usage: bool = False
    idle_best_effort: bool = True
    """Whether the directory of best-effort pods may be idle."""


@dataclass
class Agent:
    """What the parts share.  Features hear of a configuration one after the other, in the order of
    `Feature`: each its parts, and where it is off what its handler has written is taken back."""

    client: Client
    recorder: Recorder
    metrics: Metrics
    machine: Machine
    cgroups: Cgroups
    settings: Settings
    originals: Originals = field(default_factory=Originals)
    parts: list[Part] = field(default_factory=list)
    config: ColocationConfig | None = None
    """In force; None before the first."""

    def __post_init__(self) -> None:
        name = self.settings.node_name
        self.nodes: Cache[Node] = Cache(self.client, NODE, fields=f"metadata.name={name}")
        self.pod_cache: Cache[Pod] = Cache(self.client, POD, fields=f"spec.nodeName={name}")
        self.queue = WorkQueue("pods")
        self._failures: dict[str, int] = {}
        self._active: dict[Feature, bool] = {}
        """Of each feature that some configuration was applied to."""
        self.pod_cache.on_change(self._pod_changed)

    # what the parts ask

    @property
    def node(self) -> Node | None:
        return self.nodes.get(self.settings.node_name)

    def pods(self) -> list[Pod]:
        """The node's pods that neither end nor have ended."""
        return [pod for pod in self.pod_cache if is_active(pod)]

    def is_active(self, feature: Feature) -> bool:
        return self._active.get(feature, False)

    @property
    def context(self) -> Context:
        node = self.node
        return Context(
            self.cgroups,
            self.settings.batch_cpu,
            self.settings.batch_memory,
            memory(node.status.capacity) if node is not None else 0,
            self.machine.proc,
            frozenset(feature for feature, on in self._active.items() if on),
            self.originals,
        )

    def apply(self, writes: Iterable[Write]) -> None:
        """Write what differs.  Raises CgroupError."""
        listed = list(writes)
        self.originals.save()  # before what it remembers is changed
        self.metrics.writes.inc(self.cgroups.apply(listed))
        for one in listed:
            if one.restores:
                self.originals.forget(one.path)

    def throttle(self, milli: int) -> None:
        """Let all best-effort pods together use so much CPU; -1 for as much as there is.  Raises
        CgroupError."""
        self.apply(cpu_throttle.writes(milli, self.context))
        if self.cgroups.version is Version.V1:
            self.sync_pods()  # limits below had to make room

    def sync_pods(self) -> None:
        """Have every pod looked at again, and what they come to together."""
        for pod in self.pod_cache:
            self._sync(pod)
        self.queue.add(TOGETHER)

    # running

    async def start(self) -> None:
        """Know the node and its pods."""
        for cache in (self.nodes, self.pod_cache):
            await cache.start()
        for cache in (self.nodes, self.pod_cache):
            await cache.synced()

    async def run(self) -> None:
        """Apply what is active to every pod until cancelled, beside the parts' own work."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(), name="pods")
                group.create_task(self._resync(), name="resync")
                group.create_task(self._keep(), name="classes")
                for part in self.parts:
                    if isinstance(part, LoopPart):
                        group.create_task(part.run(), name=part.name)
        finally:
            await self.close()

    async def close(self) -> None:
        """A limit that follows what others use is lifted, because nobody follows it any more; the
        others are sane by themselves and stay, so that an upgrade of the agent does not show."""
        self.queue.close()
        if self._active.get(Feature.CPU_THROTTLE):
            self._lift()
        if self._active.get(Feature.CPU_QOS):
            self._apply_to_class(cpu_qos_class.undo(self.context))
        for cache in (self.nodes, self.pod_cache):
            await cache.stop()

    async def refresh(self, config: ColocationConfig) -> list[str]:
        """Put a configuration in force; returns what of it is ignored.  Raises ConfigurationError with
        what some part did not take; the others have it all the same, and that part works on as it
        did."""
        self.config = config
        problems: list[str] = []
        ignored = []
        for feature in Feature:
            try:
                is_wanted = wanted(feature, config)
                supported = feature in self.settings.supports
                if is_wanted and not supported and feature in SECTIONS:
                    ignored.append(unsupported(feature))
                await self._switch(feature, config, is_wanted and supported)
            except (ConfigurationError, PartError) as error:
                problems.append(str(error))
        self.metrics.active.values = {
            (("feature", feature),): float(self.is_active(feature)) for feature in Feature
        }
        self._rank_class()
        self.sync_pods()
        if problems:
            raise ConfigurationError(aggregate(problems))
        return ignored

    async def _switch(self, feature: Feature, config: ColocationConfig, now: bool) -> None:
        """Turn a feature on or off.  One that is off and was not, or may have been in a process before
        this one, is taken back.  Raises what its part does, and it stays as it was."""
        for part in self.parts:
            if part.feature is feature:
                await part.refresh(config, now)
        before = self._active.get(feature)
        self._active[feature] = now
        if now or before is False:
            return
        if feature is Feature.CPU_THROTTLE:
            self._lift()
        if feature is Feature.CPU_QOS:
            self._apply_to_class(cpu_qos_class.undo(self.context))
        for settings in HANDLERS:
            if settings.feature is feature:
                self._take_back(settings)

    def _take_back(self, settings: PodSettings) -> None:
        for pod in self.pods():
            try:
                self.apply(settings.undo(pod, self.context))
            except (CgroupError, AnnotationError) as error:
                log.warning(
                    "%s is off, and not taken back of pod %s: %s",
                    settings.feature,
                    key(pod),
                    error,
                )
        self.originals.save()

    def _lift(self) -> None:
        self._apply_to_class(cpu_throttle.writes(cpu_throttle.UNLIMITED_MILLI, self.context))

    def _rank_class(self) -> None:
        if not self.is_active(Feature.CPU_QOS):
            return
        if self.settings.idle_best_effort:
            self._apply_to_class(cpu_qos_class.writes(self.pod_cache, self.context))
        else:
            self._apply_to_class(cpu_qos_class.undo(self.context))

    def _apply_to_class(self, writes: Iterable[Write]) -> None:
        try:
            self.apply(writes)
        except CgroupError as error:
            log.debug("the directory of best-effort pods: %s", error)

    # pods

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        self._rank_class()
        if new is not None:
            self._sync(new)
        elif old is not None:
            self._failures.pop(key(old), None)
        self.queue.add_after(TOGETHER, PAUSE)

    def _sync(self, pod: Pod) -> None:
        if not pod.metadata.deletion_timestamp and is_ready(pod):
            self.queue.add(key(pod))

    async def _keep(self) -> None:
        """What others write again and again, as a kubelet does to the directories of classes, is
        written again as well."""
        while True:
            await asyncio.sleep(KEEP)
            self.queue.add(TOGETHER)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC)
            self.originals.prune()
            self.sync_pods()

    async def _work(self) -> None:
        while True:
            name = await self.queue.get()
            try:
                await self._reconcile(name)
            except Exception as error:  # a bug of ours, or a pod that nobody could store
                log.exception("pod %s cannot be looked at", name)
                self._failed(name, [f"{type(error).__name__}: {error}"])
            finally:
                self.queue.done(name)

    async def _reconcile(self, name: str) -> None:
        if name == TOGETHER:
            self._rank_class()
            self._protect()
            self._failures.pop(name, None)
            return
        pod = self.pod_cache.get(name)
        if pod is None or not is_active(pod):
            self._failures.pop(name, None)
            return
        if self.config is None:
            return
        problems = [text async for text in self._apply_to(pod)]
        if problems:
            self._failed(name, problems)
        else:
            self._failures.pop(name, None)

    def _protect(self) -> None:
        try:
            self.apply(memory_protection.writes(self.pods(), self.context))
        except CgroupError as error:
            log.warning("memory of pods is not protected: %s", error)
        self.originals.save()

    def _failed(self, name: str, problems: list[str]) -> None:
        """Look at the pod again later; who keeps failing has it in an event."""
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        text = "; ".join(problems)
        log.log(logging.WARNING if failures == 1 else logging.DEBUG, "pod %s: %s", name, text)
        pod = self.pod_cache.get(name)
        if failures == TOLD_AFTER and pod is not None:
            self.recorder.event(pod, "Warning", "ColocationFailed", text)
        doublings = min(failures - 1, MOST_DOUBLINGS)
        self.queue.add_after(name, min(FIRST_RETRY * 2.0**doublings, LONGEST_RETRY))

    async def _apply_to(self, pod: Pod) -> AsyncIterator[str]:
        """Run every active handler; yields what went wrong, and is worth another try."""
        for settings in HANDLERS:
            if self.is_active(settings.feature):
                try:
                    self.apply(settings.writes(pod, self.context))
                except AnnotationError as error:
                    self.recorder.event(pod, "Warning", "ColocationConfigParseFailed", str(error))
                except CgroupError as error:
                    self.metrics.failures.labels(settings.feature).inc()
                    yield f"{settings.feature}: {error}"
        for part in self.parts:
            if isinstance(part, PodPart) and self.is_active(part.feature):
                try:
                    await part.handle(pod)
                except PartError as error:
                    self.metrics.failures.labels(part.feature).inc()
                    yield f"{part.feature}: {error}"
