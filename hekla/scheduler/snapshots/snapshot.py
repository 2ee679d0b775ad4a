"""A snapshot of what the scheduler knows, for questions of the kind "what if".

It is a recording without cycles (`hekla.engine.tape`): the settings of the state, the policy in force
with its plugin files, and every object that the engine reads.  The state itself keeps no objects, only
tables, so pods and the like are listed once more, in pages, and what the scheduler has decided and the
server does not show yet is written over them.  Of a pod no more is told than the engine reads: no
commands, no environment.

Between two slices the event loop is free, so that a cycle waits for one slice at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from hekla import __version__
from hekla.api.kinds import Kind
from hekla.api.kubernetes import core
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.engine.model.state import State
from hekla.engine.model.tasks import NOWHERE, Status
from hekla.engine.tape import MOMENT, OTHERS, UPDATES, Writer, header
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.objects import uid_of
from hekla.scheduler import partial_pods
from hekla.scheduler.informers import Source
from hekla.scheduler.memory.kept_usage import KEPT
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.recording import frame_of

PAGE = 500
"""Objects of a page, which is decoded at one go."""
SLICE = 100
"""Objects that are written at one go."""

SourcesOf = Callable[[State], Iterable[Source]]
"""The kinds that a scheduler reads, for whichever state takes their objects."""


class Overheard(State):
    """Takes the calls of the sources and writes them down; it stays empty."""

    def __init__(self, live: State, settings: dict[str, Any]) -> None:
        super().__init__(**settings)
        self.live = live
        self.writer = Writer()
        self.pieces: list[bytes] = []

    def write(self, *frame: Any) -> None:
        if piece := self.writer.frame(*frame):
            self.pieces.append(piece)

    def take(self) -> bytes:
        """What has become due."""
        taken = b"".join(self.pieces)
        self.pieces.clear()
        return taken


def _overheard(name: str) -> Any:
    def overheard(self: Overheard, *given: Any) -> None:
        if name == "upsert_pod":
            given = (as_decided(self.live, given[0]),)
        if name.startswith("upsert"):
            self.write(name, *given)

    return overheard


for _name in (*UPDATES, *OTHERS):
    setattr(Overheard, _name, _overheard(_name))


def as_decided(state: State, pod: Json) -> Json:
    """The pod as it will be once the server has taken what was decided about it."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    task = state.tasks.get(f"{meta.get('namespace', '')}/{meta['name']}")
    if task is None or task.uid != uid_of(pod):
        return pod
    if task.status is Status.BINDING and task.row != NOWHERE and not spec.get("nodeName"):
        return {**pod, "spec": {**spec, "nodeName": state.nodes.names[task.row]}}
    if task.status is Status.RELEASING and not meta.get("deletionTimestamp"):
        return {**pod, "metadata": {**meta, "deletionTimestamp": stamp(time.time())}}
    return pod


class Snapshots:
    """Makes snapshots of one scheduler."""

    def __init__(
        self,
        client: Client,
        state: State,
        settings: dict[str, Any],
        policy: PolicyFile,
        sources_of: SourcesOf,
    ) -> None:
        self.client = client
        self.state = state
        self.settings = settings
        self.policy = policy
        self.sources_of = sources_of

    async def pieces(self) -> AsyncIterator[bytes]:
        """The bytes of a snapshot.  A slice takes some milliseconds, and the loop runs after each.
        Raises ApiError and TransportError; what was given until then has no end."""
        told = Overheard(self.state, self.settings)
        told.write(*header(__version__, self.settings))
        told.write(*frame_of(self.policy))
        listed = set[str]()
        for source in self.sources_of(told):
            listed.add(source.kind.kind)
            async for items in self._slices(source):
                for item in items:
                    source.upsert(item)
                yield told.take()
                await asyncio.sleep(0)
        for kind, objects in list(self.state.others.items()):
            if kind not in listed and all(kind != one.saved for one in KEPT):
                for tree in list(objects.values()):
                    told.write("upsert_other", kind, tree)
        for one in KEPT:
            usage = one.written(self.state)
            if usage is not None:
                told.write("upsert_other", one.saved, {**usage, "metadata": {"name": "usage"}})
        told.write(MOMENT, time.time())
        yield told.take() + told.writer.end()

    async def _slices(self, source: Source) -> AsyncIterator[list[Json]]:
        kind: Kind[Any] = partial_pods.POD if source.kind is core.POD else source.kind.untyped
        fields = f"metadata.name={source.name}" if source.name else ""
        try:
            async for page in self.client.pages(kind, source.namespace, fields=fields, limit=PAGE):
                for at in range(0, len(page.items), SLICE):
                    yield page.items[at : at + SLICE]
        except NotFound:
            if source.needed:
                raise
        except ApiError as error:
            if source.needed or error.code != 403:
                raise  # what the scheduler may not read it schedules without
