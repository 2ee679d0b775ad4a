"""The controller reference of a child: how children are found, adopted and released.

The same rules hold for the pods of a ReplicaSet, the ReplicaSets of a Deployment and the revisions
of a StatefulSet.  Reference: local-cluster 10.1.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import Invalid, NotFound
from hekla.kube.objects import controller_reference


def reference(kind: Kind[Any], owner: Json) -> Json:
    """The controller reference to `owner`, as a child carries it."""
    return controller_reference(kind, owner["metadata"]["name"], owner["metadata"]["uid"])


def manager(child: Json) -> Json | None:
    """The controller reference of a child that is a JSON tree, if it has one."""
    owners: list[Json] = child["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def manager_uid(child: Json) -> list[str]:
    """The uid of the managing owner; the index function of caches that are asked for an owner's
    children."""
    found = manager(child)
    return [found["uid"]] if found is not None else []


def key_of(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def deleting(obj: Json) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


async def may_adopt(client: Client, kind: Kind[Json], owner: Json) -> bool:
    """Ask the API server whether the owner still exists and is not being deleted: by a late cache
    it would adopt what was just released."""
    meta = owner["metadata"]
    try:
        fresh = await client.get(kind, meta["name"], meta["namespace"])
    except NotFound:
        return False
    return bool(fresh["metadata"]["uid"] == meta["uid"]) and not deleting(fresh)


async def adopt(
    client: Client,
    kind: Kind[Any],
    child: Kind[Any],
    name: str,
    namespace: str,
    uid: str,
    owner: Json,
    **more: Any,
) -> bool:
    """Add the controller reference to an orphan; `more` goes into its metadata.  False where the
    orphan is gone or was adopted by another."""
    # A strategic patch merges references by uid, so that another owner written meanwhile is not
    # lost.
    patch = {"metadata": {"uid": uid, "ownerReferences": [reference(kind, owner)], **more}}
    try:
        await client.patch(child, name, patch, namespace, type="strategic")
    except (NotFound, Invalid):  # gone, or another owner was faster
        return False
    return True


async def release(
    client: Client,
    child: Kind[Any],
    name: str,
    namespace: str,
    uid: str,
    owner_uid: str,
    **more: Any,
) -> None:
    """Remove the reference to an owner from a child; `more` goes into its metadata."""
    gone = {"$patch": "delete", "uid": owner_uid}
    with suppress(NotFound, Invalid):  # it went, or the reference did, which is what was wanted
        await client.patch(
            child,
            name,
            {"metadata": {"uid": uid, "ownerReferences": [gone], **more}},
            namespace,
            type="strategic",
        )


async def claim(
    client: Client,
    kind: Kind[Json],
    child: Kind[Json],
    owner: Json,
    children: list[Json],
    takes: Callable[[dict[str, str]], bool],
) -> list[Json]:
    """The children in the owner's namespace that it manages, including orphans that it adopts now.
    `takes(labels)` says whether the owner's selector matches a child."""
    uid, mine, asked = owner["metadata"]["uid"], [], None
    for tree in children:
        meta = tree["metadata"]
        known, wanted = manager(tree), takes(meta.get("labels") or {})
        where = (meta["name"], meta["namespace"], meta["uid"])
        if known is not None:
            if known["uid"] != uid:
                continue
            if wanted:
                mine.append(tree)
            elif not deleting(owner):
                await release(client, child, *where, uid)
        elif wanted and not deleting(owner) and not deleting(tree):
            if asked is None:
                asked = await may_adopt(client, kind, owner)
            if asked and await adopt(client, kind, child, *where, owner):
                mine.append(tree)
    return mine
