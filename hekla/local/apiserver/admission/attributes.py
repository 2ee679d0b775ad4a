"""The attributes of a write, as admission plugins, policies and webhooks see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.objects.new_objects import random_suffix
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.hook import Hook
    from hekla.local.apiserver.admission.in_process import Reviewer


TOKEN_VOLUME_PREFIX = "kube-api-access-"
"""How the name of a service account token's volume begins."""


class Changer(Protocol):
    """Writes what the server itself changes in an object: statuses of quotas and policies."""

    async def change(
        self,
        call: Call,
        resource: Resource,
        key: str,
        change: Callable[[Json], Json],
        *,
        retry: bool,
        subresource: str = "",
        admit: bool = True,
    ) -> tuple[Row | None, Json]:
        """Applies a change to the newest state, again when another write came between.  Raises
        Refusal."""


CACHED_CONDITIONS = 64
"""Results of match conditions that a cached create holds."""


class CachedCreate(NamedTuple):
    """The results of a create that depend on the object's spec and not on its metadata."""

    pieces: tuple[bytes, ...]
    """The stored bytes after metadata.  They are split where the name of the token volume stands,
    because that name is generated for each pod."""
    shape: int
    """The number of the spec's shape in `ManagedFields`."""
    reordered: bool
    """Whether a webhook's patch made the server read metadata again, which puts its fields in the
    order of the schema."""
    hooks: tuple[Hook, ...]
    """The mutating webhooks that were called."""
    audit_annotations: tuple[tuple[str, str], ...]
    """What those webhooks added to the audit log."""
    allowed_by: set[Reviewer]
    """The in-process validating webhooks that allowed the object."""
    conditions: BoundedCache[tuple[Hook, tuple[str, ...] | None], bool]
    """(webhook, names of annotations) -> whether the webhook's match conditions hold.  Only for
    conditions that read nothing else."""
    annotations: dict[str, str]
    """The annotations that admission added to an object without annotations."""

    def rest(self) -> bytes:
        """The stored bytes after metadata and its comma, with a new token volume name."""
        pieces = self.pieces
        return (
            pieces[0]
            if len(pieces) == 1
            else f"{TOKEN_VOLUME_PREFIX}{random_suffix()}".encode().join(pieces)
        )


class Attributes:
    """One write as admission sees it: who does what to which object."""

    __slots__ = (
        "cached",
        "call",
        "name",
        "namespace",
        "object",
        "old",
        "operation",
        "options",
        "resource",
        "subresource",
        "views",
    )

    def __init__(
        self,
        call: Call,
        resource: Resource,
        operation: str,
        namespace: str,
        name: str,
        object: Json | None,
        old: Json | None,
        subresource: str = "",
        options: Json | None = None,
    ) -> None:
        self.call = call
        self.resource = resource
        self.operation = operation
        self.namespace = namespace
        self.name = name
        self.object = object
        self.old = old
        self.subresource = subresource
        self.options = options
        self.views: list[tuple[Json, str, Json]] = []
        """(object, version, the object as a conversion webhook converted it to that version)"""
        self.cached: CachedCreate | None = None
        """The cached results for the object's spec, where the create cache has them."""


Plugin = Callable[[Attributes], None]


async def in_task() -> None:
    """Continue in a task of its own.  A request starts in the callback that read it (see `run_eagerly`),
    where timeouts do not work."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


class TreeCache(BoundedCache[str, tuple[Row, Json]]):
    """Decoded objects by key, each with the row that it was decoded from."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(5000)


def remembered(cache: TreeCache, key: str, row: Row) -> Json:
    """The decoded object of a row that is read often.  Callers must not change it."""
    known = cache.get(key)
    if known is not None and known[0] is row:
        return known[1]
    tree = row.tree()
    cache[key] = (row, tree)
    return tree
