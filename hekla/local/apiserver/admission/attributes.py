"""What admission decides about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.objects.new_objects import random_suffix
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.store import Row

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.hook import Hook
    from hekla.local.apiserver.admission.in_process import Reviewer


TOKEN = "kube-api-access-"
"""What the name of a token's volume begins with."""


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


ANNOTATED = 64
"""Sets of annotations' names for which a `CachedCreate` remembers what webhooks' conditions say."""


class CachedCreate(NamedTuple):
    """What became of a spec."""

    pieces: tuple[bytes, ...]
    """The stored bytes behind metadata; between them stands the name of the token's volume, which
    is made up for each pod."""
    shape: int
    """Of the spec, as the book of owners knows it."""
    again: bool
    """Whether metadata was read once more behind the webhooks, which puts its fields in their
    order."""
    hooks: tuple[Hook, ...]
    """Which were asked."""
    notes: tuple[tuple[str, str], ...]
    """What they had noted for the audit log."""
    settled: set[Reviewer]
    """Those of the reviewers that found nothing wrong with it."""
    meant: BoundedCache[tuple[Hook, tuple[str, ...] | None], bool]
    """(webhook, names of annotations) -> whether its conditions hold, where they ask for nothing
    else."""
    annotations: dict[str, str]
    """What admission gave an object that came without annotations."""

    def rest(self) -> bytes:
        """The bytes behind metadata and its comma."""
        pieces = self.pieces
        return pieces[0] if len(pieces) == 1 else f"{TOKEN}{random_suffix()}".encode().join(pieces)


class Attributes:
    """What admission decides about."""

    __slots__ = (
        "call",
        "mould",
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
        """(object, version, how a conversion webhook shows it in that version)"""
        self.mould: CachedCreate | None = None
        """Where a new object comes from, if it does."""


Plugin = Callable[[Attributes], None]


async def in_task() -> None:
    """Goes on as a task of its own: a request begins in the step in which it was read (see
    `eager`), where no timeouts work."""
    if asyncio.current_task() is None:
        await asyncio.sleep(0)


class TreeCache(BoundedCache[str, tuple[Row, Json]]):
    """Trees of rows that are read again and again, each with the row that it was decoded from."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(5000)


def remembered(cache: TreeCache, key: str, row: Row) -> Json:
    """The tree of a row that is asked for again and again; not to be changed."""
    known = cache.get(key)
    if known is not None and known[0] is row:
        return known[1]
    tree = row.tree()
    cache[key] = (row, tree)
    return tree
