"""ControllerRevisions: the earlier templates of a StatefulSet or DaemonSet, so that each pod's
template is known and users can roll back.

A revision holds the template as the patch that `kubectl rollout undo` applies.  Reference:
local-cluster 10.6.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.kubernetes.apps import CONTROLLER_REVISION
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.local.controller_manager.ownership import claim, deleting, manager, reference
from hekla.local.controller_manager.pods import matches
from hekla.local.controller_manager.workloads.rollout import template_hash
from hekla.local.controller_manager.workloads.status import write_status

HASH_LABEL = "controller-revision-hash"
LONGEST_PREFIX = 223
REVISIONS: Kind[Json] = CONTROLLER_REVISION.untyped


class Collision(Exception):
    """A revision of that name holds another template: another hash has to be drawn."""


def data_of(template: Json) -> Json:
    """The patch that brings a template back.  Other programs compare its bytes, which have their
    keys in order."""
    data: Json = in_order_of_keys({"spec": {"template": {**template, "$patch": "replace"}}})
    return data


def in_order_of_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: in_order_of_keys(value[key]) for key in sorted(value)}
    return [in_order_of_keys(item) for item in value] if isinstance(value, list) else value


def template_of(revision: Json) -> Json:
    """The pod template that a revision holds."""
    template: Json = (revision.get("data") or {}).get("spec", {}).get("template", {})
    return {name: value for name, value in template.items() if name != "$patch"}


def number(revision: Json) -> int:
    return int(revision.get("revision", 0))


def name_of(revision: Json) -> str:
    return str(revision["metadata"]["name"])


def in_order(revisions: list[Json]) -> list[Json]:
    """Oldest first."""
    return sorted(
        revisions, key=lambda r: (number(r), r["metadata"].get("creationTimestamp", ""), name_of(r))
    )


class History:
    """The revisions of all owners of one kind."""

    def __init__(self, kind: Kind[Json], client: Client, revisions: Cache[Json]) -> None:
        self.kind = kind
        self.client = client
        self.revisions = revisions

    async def of(self, owner: Json) -> list[Json]:
        """The owner's revisions, oldest first, orphans of its selector adopted."""
        selector = owner["spec"].get("selector")
        found = self.revisions.by("namespace", owner["metadata"]["namespace"])
        return in_order(
            await claim(
                self.client,
                self.kind,
                REVISIONS,
                owner,
                found,
                lambda labels: matches(selector, labels),
            )
        )

    async def count_collision(self, owner: Json) -> None:
        """Have another hash drawn for the owner's next revision."""
        status = owner.get("status", {})
        count = status.get("collisionCount", 0) + 1
        await write_status(self.client, self.kind, owner, {**status, "collisionCount": count})

    async def present(self, owner: Json, revisions: list[Json], labels: dict[str, str]) -> Json:
        """The revision of the template as it is now, made or brought to the front where needed.
        Raises Collision.

        A new one gets the labels of the template and `labels`, in which "{hash}" stands for its
        hash.
        """
        template = owner["spec"]["template"]
        newest = number(revisions[-1]) if revisions else 0
        equal = [revision for revision in revisions if template_of(revision) == template]
        if equal:
            found = equal[-1]
            if number(found) == newest:
                return found
            meta = found["metadata"]
            patch = {"metadata": {"uid": meta["uid"]}, "revision": newest + 1}
            return await self.client.patch(REVISIONS, meta["name"], patch, meta["namespace"])
        return await self._make(owner, template, newest + 1, labels)

    async def _make(
        self, owner: Json, template: Json, revision: int, labels: dict[str, str]
    ) -> Json:
        meta = owner["metadata"]
        digest = template_hash(template, owner.get("status", {}).get("collisionCount", 0))
        own = {key: value.format(hash=digest) for key, value in labels.items()}
        body: Json = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "revision": revision,
            "data": data_of(template),
            "metadata": {
                "name": f"{meta['name'][:LONGEST_PREFIX]}-{digest}",
                "namespace": meta["namespace"],
                "labels": {**((template.get("metadata") or {}).get("labels") or {}), **own},
                "annotations": dict(meta.get("annotations") or {}),
                "ownerReferences": [reference(self.kind, owner)],
            },
        }
        try:
            return await self.client.create(REVISIONS, body, meta["namespace"])
        except AlreadyExists:
            there = await self.client.get(REVISIONS, name_of(body), meta["namespace"])
            known = manager(there)
            if known is not None and known["uid"] == meta["uid"] and template_of(there) == template:
                return there  # the cache is only late
            raise Collision from None

    async def trim(self, revisions: list[Json], live: Collection[str], limit: int | None) -> None:
        """Delete the oldest unused revisions beyond the limit of the history."""
        idle = [
            revision
            for revision in revisions
            if name_of(revision) not in live and not deleting(revision)
        ]
        for revision in idle[: max(0, len(idle) - (10 if limit is None else limit))]:
            meta = revision["metadata"]
            try:
                await self.client.delete(
                    REVISIONS, meta["name"], meta["namespace"], uid=meta["uid"]
                )
            except (NotFound, Conflict):
                continue


def queue_keys(kind: Kind[Json], owners: Cache[Json], revision: Json) -> list[str]:
    """The keys of the owners that a change of a revision concerns."""
    owner, meta = manager(revision), revision["metadata"]
    if owner is not None:
        return [f"{meta['namespace']}/{owner['name']}"] if owner["kind"] == kind.kind else []
    return [
        f"{meta['namespace']}/{name_of(found)}"
        for found in owners.by("namespace", meta["namespace"])
        if matches(found["spec"].get("selector"), meta.get("labels") or {})
    ]
