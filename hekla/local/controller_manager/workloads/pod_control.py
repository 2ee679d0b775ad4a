"""The pods of one kind of owner: finding, creating and deleting them.

ReplicaSets, DaemonSets, StatefulSets and Jobs decide differently how many pods they want, and do
the same to get them.  What was written and not yet seen is in `expectations`; the caches of pods
and owners are the controller's.  Reference: local-cluster 10.1, 10.5.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from hekla.api.kinds import Kind
from hekla.api.kubernetes import core
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from hekla.kube.events import Recorder
from hekla.kube.expectations import Expectations
from hekla.local.controller_manager.ownership import adopt, key_of, may_adopt, reference, release
from hekla.local.controller_manager.pods import (
    HOLDER,
    UNMANAGED,
    Pod,
    concerns,
    managed_by,
    matches,
)

NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
LONGEST_PREFIX = 58
"""Letters of a pod's name before the five generated ones."""

Selector = Callable[[Json], Json | None]


def selector_of(owner: Json) -> Json | None:
    """The LabelSelector of an owner's pods."""
    selector: Json | None = owner["spec"].get("selector")
    return selector


class PodControl:
    """Queues owners whose pods change (by `queue(key)`), and reads and writes an owner's pods."""

    def __init__(
        self,
        kind: Kind[Json],
        client: Client,
        owners: Cache[Json],
        pods: Cache[Pod],
        recorder: Recorder,
        queue: Callable[[str], None],
        *,
        selector: Selector = selector_of,
        finalizers: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.client = client
        self.owners = owners
        self.pods = pods
        self.recorder = recorder
        self.selector = selector
        self.queue = queue
        self.finalizers = tuple(finalizers)
        self.expectations = Expectations(self.key_of_owner)
        self._orphans: dict[str, set[str]] = {}
        """By owner, orphans that its selector matches and that have not been adopted yet.  Nearly
        always empty."""
        self._unsearched: set[str] = set()
        """Owners that are new, or whose selector is: matching orphans may exist already."""
        owners.on_change(self._owner_changed)
        pods.on_change_of(
            concerns, (managed_by(kind.api_version, kind.kind), UNMANAGED), self._pod_changed
        )

    # --- which pods are whose ---------------------------------------------------------------------

    def key_of_owner(self, pod: Pod) -> str | None:
        """The owner that manages a pod, if it is of this kind."""
        found = pod.controller()
        if (
            found is None
            or found.kind != self.kind.kind
            or found.api_version != self.kind.api_version
        ):
            return None
        return f"{pod.metadata.namespace}/{found.name}"

    def of(self, owner: Json) -> list[Pod]:
        """The pods that carry the owner's reference, whatever their labels say."""
        return self.pods.by(HOLDER, owner["metadata"]["uid"])

    async def claim(self, owner: Json) -> list[Pod]:
        """The pods that the owner manages.  Adopts orphans that its selector matches, and releases
        pods that it no longer matches."""
        key, selector = key_of(owner), self.selector(owner)
        leaving = owner["metadata"].get("deletionTimestamp") is not None
        mine = []
        for pod in self.of(owner):
            if matches(selector, pod.metadata.labels):
                mine.append(pod)
            elif not pod.deleting and not leaving:
                await self._release(pod, owner["metadata"]["uid"])
        if key in self._unsearched:
            found = self.pods.by("namespace", owner["metadata"]["namespace"])
            orphans = {
                pod.key
                for pod in found
                if pod.controller() is None and matches(selector, pod.metadata.labels)
            }
            self._orphans.setdefault(key, set()).update(orphans)
            self._unsearched.discard(key)
        if key in self._orphans:
            mine += await self._adopt_orphans(key, owner, selector, leaving)
        return mine

    async def _adopt_orphans(
        self, key: str, owner: Json, selector: Json | None, leaving: bool
    ) -> list[Pod]:
        adopted: list[Pod] = []
        found = (self.pods.get(name) for name in sorted(self._orphans[key]))
        free = [pod for pod in found if pod is not None and pod.controller() is None and pod.active]
        wanted = [pod for pod in free if matches(selector, pod.metadata.labels)]
        if wanted and not leaving and await may_adopt(self.client, self.kind, owner):
            for pod in wanted:
                meta = pod.metadata
                more = (
                    {"finalizers": sorted({*meta.finalizers, *self.finalizers})}
                    if self.finalizers
                    else {}
                )
                if await adopt(
                    self.client,
                    self.kind,
                    core.POD,
                    meta.name,
                    meta.namespace,
                    meta.uid,
                    owner,
                    **more,
                ):
                    adopted.append(pod)
        self._orphans.pop(key, None)
        return adopted

    async def _release(self, pod: Pod, uid: str) -> None:
        meta, more = pod.metadata, {}
        if self.finalizers and set(self.finalizers) & set(meta.finalizers):
            more = {"$deleteFromPrimitiveList/finalizers": list(self.finalizers)}
        await release(self.client, core.POD, meta.name, meta.namespace, meta.uid, uid, **more)

    # --- event handlers ---------------------------------------------------------------------------

    def _owner_changed(self, old: Json | None, new: Json | None) -> None:
        owner = new if new is not None else old
        if owner is None:
            return
        key = key_of(owner)
        if new is None:
            self._orphans.pop(key, None)
            self._unsearched.discard(key)
        elif old is None or self.selector(old) != self.selector(new):
            self._unsearched.add(key)

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Queue the owner of a pod; for an orphan, the owners whose selector matches it."""
        self.expectations.observe(old, new)
        for pod in (old, new):
            if pod is None:
                continue
            if pod.controller() is not None:
                if (owner := self.key_of_owner(pod)) is not None:
                    self.queue(owner)
            elif pod is new:
                for key in self.takers(pod):
                    self._orphans.setdefault(key, set()).add(pod.key)
                    self.queue(key)

    def takers(self, pod: Pod) -> list[str]:
        """The owners whose selector matches an orphan."""
        return [
            key_of(owner)
            for owner in self.owners.by("namespace", pod.metadata.namespace)
            if matches(self.selector(owner), pod.metadata.labels)
        ]

    # --- writes -----------------------------------------------------------------------------------

    async def create(self, key: str, owner: Json, bodies: Iterable[Json]) -> ApiError | None:
        """Create pods in a slow start: 1, 2, 4, ... at a time, so that a template that is refused
        costs one request, not hundreds.

        A body without a name gets one generated from its generateName.  Gives the first refusal,
        after which nothing more was tried.
        """
        left, batch = list(bodies), 1
        while left:
            now, left = left[:batch], left[batch:]
            results = await asyncio.gather(*(self.create_one(key, owner, body) for body in now))
            failed = next((error for error in results if error is not None), None)
            if failed is not None:
                return failed
            batch *= 2
        return None

    async def create_one(self, key: str, owner: Json, body: Json) -> ApiError | None:
        """Create one pod, under a name known before the answer.  Gives the error, if any.  A
        generated name that is taken is replaced by another; a fixed one that is taken is an error,
        and the cache will show the pod."""
        meta, namespace = body["metadata"], owner["metadata"]["namespace"]
        drawn = "name" not in meta
        while True:
            name = (
                meta["generateName"][:LONGEST_PREFIX] + "".join(random.choices(NAME_LETTERS, k=5))
                if drawn
                else meta["name"]
            )
            try:
                with self.expectations.creating(key, f"{namespace}/{name}"):
                    await self.client.create(
                        core.POD, {**body, "metadata": {**meta, "name": name}}, namespace
                    )
            except AlreadyExists as error:
                if drawn:
                    continue
                return error
            except ApiError as error:
                if not error.has_cause("NamespaceTerminating"):
                    self.recorder.event(
                        owner, "Warning", "FailedCreate", f"Error creating: {error.message}"
                    )
                return error
            self.recorder.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {name}")
            return None

    async def delete(self, key: str, owner: Json, pods: Iterable[Pod]) -> None:
        """Delete exactly these pods, all at once."""
        await asyncio.gather(*(self.delete_one(key, owner, pod) for pod in pods))

    async def delete_one(self, key: str, owner: Json, pod: Pod) -> bool:
        """Whether this request began the deletion."""
        meta = pod.metadata
        try:
            with self.expectations.deleting(key, meta.uid):
                await self.client.delete(core.POD, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return False
        self.recorder.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")
        return True

    def body(self, owner: Json, template: Json, **metadata: object) -> Json:
        """A pod of the template, managed by the owner; `metadata` completes or replaces the
        template's."""
        meta = template.get("metadata") or {}
        finalizers = [*meta.get("finalizers", ()), *self.finalizers]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "spec": template.get("spec", {}),
            "metadata": {
                **{name: meta[name] for name in ("labels", "annotations") if meta.get(name)},
                **({"finalizers": finalizers} if finalizers else {}),
                "generateName": f"{owner['metadata']['name']}-",
                "ownerReferences": [reference(self.kind, owner)],
                **metadata,
            },
        }
