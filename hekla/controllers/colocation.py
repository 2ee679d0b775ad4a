"""Writes the colocation configuration of each pod into its annotations, for the agent of its node
(reference: controllers 12).

Few clusters have such configurations, and every cluster has pods, so pods are watched only once
there is a configuration.  What an earlier configuration has left on pods while this process was
away is looked for once, at the start.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hekla.api import config, names
from hekla.api.kinds import read_as
from hekla.api.kubernetes import core
from hekla.api.meta import Struct, split_key
from hekla.api.selectors import of_object
from hekla.controllers.records import NodeMeta
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound

PAUSE = 1.0
"""Seconds in which changes gather before pods are written."""
NOTHING = "{}"
NO_HIGH = 100
LEFTOVERS = "*"


class PodMarks(msgspec.Struct, omit_defaults=True, frozen=True):
    name: str | None = msgspec.field(name=names.COLOCATION_CONFIG_NAME, default=None)
    config: str | None = msgspec.field(name=names.COLOCATION_CONFIG, default=None)


class PodMeta(NodeMeta):
    annotations: PodMarks = PodMarks()


class Pod(Struct):
    """A pod, with the fields that selectors and the two annotations need."""

    metadata: PodMeta = msgspec.field(default_factory=PodMeta)


POD = read_as(core.POD, Pod)


def wanted(
    pod: Pod, configurations: Iterable[config.ColocationConfiguration]
) -> dict[str, str | None] | None:
    """The annotations to write, with None for one to remove.  None when all annotations are right."""
    marks = pod.metadata.annotations
    newest = sorted(
        configurations,
        key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name),
        reverse=True,
    )
    chosen = next((each for each in newest if selects(each, pod.metadata.labels)), None)
    if chosen is None:
        if marks.name is None and marks.config in (None, NOTHING):
            return None
        return {names.COLOCATION_CONFIG_NAME: None, names.COLOCATION_CONFIG: NOTHING}
    value = configuration_of(chosen)
    if marks.name == chosen.metadata.name and _parsed(marks.config) == value:
        return None
    return {
        names.COLOCATION_CONFIG_NAME: chosen.metadata.name,
        names.COLOCATION_CONFIG: json.dumps(value, separators=(",", ":")),
    }


def selects(each: config.ColocationConfiguration, labels: Mapping[str, str]) -> bool:
    """No selector selects nothing, and neither does one that cannot be read."""
    if each.spec.selector is None:
        return False
    try:
        return of_object(each.spec.selector).matches(labels)
    except ValueError:
        return False


def configuration_of(each: config.ColocationConfiguration) -> dict[str, Any]:
    """The part of the spec that a node's agent reads.  A highRatio of 0, which is none, is said as
    100: there are agents that would stop the pod at its first byte."""
    tree: dict[str, Any] = msgspec.to_builtins(each.spec)
    tree.pop("selector", None)
    ratios = tree.get("memoryQos")
    if ratios is not None and ratios.get("highRatio") == 0:
        ratios["highRatio"] = NO_HIGH
    return tree


def _parsed(text: str | None) -> Any:
    try:
        return json.loads(text) if text is not None else None
    except ValueError:
        return None


class ColocationController(Controller):
    """Reconciles the annotations of one pod."""

    name = "colocation-config-controller"

    def __init__(self, client: Client) -> None:
        self._configurations = Cache(client, config.COLOCATION_CONFIGURATION)
        super().__init__(self._configurations)
        self._client = client
        self._pods: Cache[Pod] = Cache(client, POD)
        self._watching = False
        self._configurations.on_change(self._configuration_changed)
        self._pods.on_change(self._pod_changed)

    async def start(self) -> None:
        self.queue.add(LEFTOVERS)

    async def _sweep(self) -> None:
        """Remove what deleted configurations have left on pods."""
        if self._configurations.keys():
            return  # the pods are watched now, and each of them is reconciled
        for pod in (await self._client.list(POD)).items:
            change = wanted(pod, ())
            if change is not None:
                await self._write(pod.metadata.namespace, pod.metadata.name, change)

    async def _watch(self) -> None:
        if not self._watching:
            self._watching = True
            await self._pods.start()

    def _configuration_changed(
        self, old: config.ColocationConfiguration | None, new: config.ColocationConfiguration | None
    ) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            return
        changed = new if new is not None else old
        assert changed is not None
        self.queue.add_after(changed.metadata.namespace, PAUSE)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and (old is None or old.metadata.labels != new.metadata.labels):
            self.queue.add_after(f"{new.metadata.namespace}/{new.metadata.name}", PAUSE)

    async def reconcile(self, key: str) -> float | None:
        if key == LEFTOVERS:
            await self._sweep()
            return None
        if "/" not in key:  # a namespace, in which a configuration has changed
            await self._watch()
            await self._pods.synced()
            for pod in self._pods:
                if pod.metadata.namespace == key:
                    self.queue.add(f"{key}/{pod.metadata.name}")
            return None
        namespace, name = split_key(key)
        found = self._pods.get(key)
        if found is not None:
            here = [each for each in self._configurations if each.metadata.namespace == namespace]
            change = wanted(found, here)
            if change is not None:
                await self._write(namespace, name, change)
        return None

    async def _write(self, namespace: str, name: str, change: Mapping[str, str | None]) -> None:
        try:
            await self._client.patch(
                core.POD.untyped, name, {"metadata": {"annotations": dict(change)}}, namespace
            )
        except NotFound:
            pass
