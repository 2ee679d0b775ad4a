"""The status-patch cache: a patch of a status whose like was made before is not worked out again.

Thousands of pods begin to run with the same status but for times, addresses and names, and are told
so by patches that differ in no more.  Such texts are cut out of the stored status and of the patch.
What is left, with which of the texts are equal, decides what the patch makes of the status and of
its owners: this is the key of the cache.  The texts are put into the cached result.  A kind says by
its `PartialUpdates.texts` which fields hold texts that have no influence on the result.  All else (which
object it is, deletion, webhooks, policies) is looked at for each patch: that is the list
`REMAINING`.  Decision 0249.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging.ownership import Owner
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.managed_fields import Entry, Owners
from hekla.local.apiserver.storage.rows import Row, decode, encode, split
from hekla.local.apiserver.write import partial_update, updating
from hekla.local.apiserver.write.partial_update import PartialUpdate
from hekla.local.apiserver.write.stages import (
    Backend,
    NeedsFullPath,
    On,
    Step,
    remaining,
    run_steps,
)
from hekla.local.apiserver.write.updating import (
    STORE_AND_ANSWER,
    UPDATE,
    Update,
    accept,
    run_update,
    updater_of,
)

SIZE = 512
"""Cached results, and hashes of keys that were seen once."""
LARGEST = 16 * 1024
"""Bytes of a patch and of a status that can be cached."""
FIELDS = frozenset({"metadata", "status"})

Key = tuple[Any, ...]
Cut = tuple[Any, ...]
"""A status in pieces.  Every third is a text, of which the number stands there."""


class StatusResult(NamedTuple):
    """What a patch makes of a status."""

    status: Cut
    entries: tuple[tuple[Entry, int], ...]
    """The new entries of managedFields, each with the number of the old entry that has its time;
    -1 is now."""
    keys: tuple[int, ...]
    """Numbers of the texts that the entries name."""
    fields: tuple[Any, ...]
    """Of each selectable field: None if it stays, the number of a text, or the value."""
    counts: bool


class StatusPatch:
    """A patch of a status without its texts."""

    __slots__ = ("key", "pieces", "row", "texts")

    def __init__(
        self, row: Row, pieces: dict[str, msgspec.Raw], key: Key, texts: list[bytes]
    ) -> None:
        self.row = row
        self.pieces = pieces
        self.key = key
        self.texts = texts
        """All that were cut out, each once; a number is an index here.  First come the keys that
        the object's owners name."""


@dataclass(slots=True, eq=False)
class CachedStatusUpdate(Update):
    """An update whose result is cached."""

    patch: StatusPatch = field(init=False)
    cached: StatusResult = field(init=False)


class StatusPatchCache:
    """Results of status patches, by patch, stored status and owners."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._known: BoundedCache[Key, StatusResult] = BoundedCache(SIZE)
        self._seen: BoundedCache[int, bool] = BoundedCache(SIZE)
        """Hashes of keys that were seen once."""
        self._generation = -1
        self.hits = 0
        """Patches with a cached result."""

    async def patch(
        self, call: Call, media: str, update_of: Callable[[], PartialUpdate]
    ) -> Response:
        """Carry a patch out: what is left of it where its result is cached, else as an update of
        few fields, else with all of `UPDATE`.  `update_of` reads the patch."""
        patch = self.find(call, media)
        cached = None if patch is None else self._cached(call, patch)
        if cached is not None:
            try:
                await run_steps(REMAINING, cached)
            except NeedsFullPath:
                pass
            else:
                self.hits += 1
                return cached.response
        update = update_of()
        if not partial_update.prepare(update):
            await run_update(update)
        else:
            await run_steps(STORE_AND_ANSWER, update)
            if patch is not None:
                self._learn(update, patch)
        return update.response

    def _cached(self, call: Call, patch: StatusPatch) -> CachedStatusUpdate | None:
        """The update whose result is cached."""
        if self._generation != self.backend.registry.generation:
            self._generation = self.backend.registry.generation
            self._known.clear()  # a definition changed, and with it perhaps what a patch makes
            self._seen.clear()
        cached = self._known.get(patch.key)
        if cached is None:
            return None
        update = CachedStatusUpdate(
            self.backend,
            call,
            call.resource,
            call.route.key,
            None,
            retried=False,
            subresource=call.route.subresource,
        )
        update.patch, update.cached = patch, cached
        return update

    def find(self, call: Call, media: str) -> StatusPatch | None:
        """The patch without its texts; None where it is about more than a status, or unusual."""
        request, kind = call.request, call.route.kind
        rules = kind.strategy.partial_updates
        if (
            rules is None
            or request.query
            or len(request.body) > LARGEST
            or b'"status"' not in request.body
            or call.route.subresource not in ("", "status")
        ):
            return None
        texts, row = rules.texts(), call.resource.collection.newest(call.route.key)
        if texts is None or row is None or row.owners is None:
            return None
        try:
            body = documents.json_tree(request.body)
            if (
                type(body) is not dict
                or type(body.get("status")) is not dict
                or not body.keys() <= FIELDS
            ):
                return None
            # Written again, so that equal texts are found in both: a client may put blanks, and
            # escapes, where the store has none.
            status = encode(body["status"])
        except (BadBody, msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            return None
        if not (
            partial_update.names_object(body.get("metadata", {}), row)
            and partial_update.are_current(row.owners, kind)
        ):
            return None
        pieces = split(row.data)
        before = bytes(pieces.get("status", b"{}"))
        kept = [name for name in pieces if name not in FIELDS]
        if len(before) > LARGEST or not rules.may_stay(call.route.subresource, kept):
            return None
        numbers: dict[bytes, int] = {}
        for text in row.owners.values(row.stamps):
            numbers.setdefault(text.encode(), len(numbers))
        old, new = cut(texts, before, numbers), cut(texts, status, numbers)
        key = (
            call.resource,
            call.route.subresource,
            media,
            call.manager,
            row.owners,
            tuple(kept),
            old,
            new,
        )
        return StatusPatch(row, pieces, key, list(numbers))

    def _learn(self, update: PartialUpdate, patch: StatusPatch) -> None:
        """Cache the result of a patch whose key was seen before."""
        key = patch.key
        if update.result is patch.row or update.call.warnings or key in self._known:
            return
        if hash(key) not in self._seen:
            self._seen[hash(key)] = True
            return
        assert update.result is not None
        result = result_of(update, patch, update.result)
        if result is not None:
            self._known[key] = result


# --- what is left of a patch whose result is known ------------------------------------------------


def take_result(update: CachedStatusUpdate) -> None:
    """Put the patch's texts into the cached status."""
    patch, cached = update.patch, update.cached
    row, texts = patch.row, patch.texts
    update.row, update.new, update.old, update.stored = row, {}, {}, {}
    update.counts = cached.counts
    update.kept = {**patch.pieces, "status": msgspec.Raw(filled(cached.status, texts))}
    update.fields = tuple(
        [  # a list because that is faster than a generator
            before if value is None else texts[value].decode() if type(value) is int else value
            for value, before in zip(cached.fields, row.fields, strict=True)
        ]
    )


def keep_metadata(update: CachedStatusUpdate) -> None:
    """See that metadata can keep its bytes."""
    patch = update.patch
    if not partial_update.may_stay_bytes(bytes(patch.pieces["metadata"]), patch.row.version):
        raise NeedsFullPath


def own(update: CachedStatusUpdate) -> None:
    """Put the times and keys of this object into the cached owners."""
    row, cached, texts = update.row, update.cached, update.patch.texts
    assert row.owners is not None
    managed_fields = update.backend.store.managed_fields
    times = (*row.owners.times.unpack_from(row.stamps), managed_fields.now())
    update.ownership = managed_fields.packed(
        [(entry, times[source]) for entry, source in cached.entries],
        [texts[number].decode() for number in cached.keys],
    )


def refuse_watched(update: CachedStatusUpdate) -> None:
    """Give up where admission wants to see such updates."""
    admission, attributes = update.backend.admission, updating.attributes_of(update)
    if admission.needs_plugins(attributes) or admission.matches_rules(attributes):
        raise NeedsFullPath


INSTEAD: Mapping[Any, Step[CachedStatusUpdate] | None] = {
    updating.read: None,  # `find` has read the newest state, and nothing has waited since
    updating.change: take_result,
    updating.keep_identity: keep_metadata,
    updating.own: own,
    updating.run_mutating_plugins: refuse_watched,
    updating.call_mutating_webhooks: None,  # `refuse_watched` has seen that none is to be asked
    updating.validate: None,  # the status is valid, and metadata stays
    updating.call_validating_webhooks: None,
    updating.admit: None,
    updating.convert: None,
    updating.store: accept,  # a cached result is a change
}
REMAINING: tuple[Step[CachedStatusUpdate], ...] = remaining(
    UPDATE, On.CONTENT | On.OWNERS | On.REQUEST, INSTEAD
)
"""The steps of a patch whose content, and all that it meets in the status, is the key of a result."""


# --- learning -------------------------------------------------------------------------------------


def result_of(update: Update, patch: StatusPatch, new: Row) -> StatusResult | None:
    """The result without the patch's texts; None where it does not follow from the key alone."""
    rules, resource, old = update.resource.kind.strategy.partial_updates, update.resource, patch.row
    texts = rules.texts() if rules is not None else None
    if rules is None or texts is None or old.owners is None or new.owners is None:
        return None
    numbers = {text: number for number, text in enumerate(patch.texts)}
    status = cut(texts, bytes(split(new.data).get("status", b"{}")), numbers)
    keys = [numbers.get(text.encode(), -1) for text in new.owners.values(new.stamps)]
    entries = entry_times(old.owners, old.stamps, new.owners, new.stamps, updater_of(update))
    if len(numbers) != len(patch.texts) or entries is None or -1 in keys:
        return None  # some of it the server has made up
    # The same with the numbers in the place of the texts shows which of them are selectable.
    marks = [f"\\u0001{number}\\u0001".encode() for number in range(len(numbers))]
    before, after = ({"status": decode(filled(part, marks))} for part in (patch.key[-2], status))
    marked = {decode(b'"%b"' % mark): number for number, mark in enumerate(marks)}
    shown = resource.collection.fields_of(after, patch.pieces, old.fields)
    fields = tuple(
        None if path[0] != "status" else marked.get(value, value)
        for value, path in zip(shown, resource.collection.selectable.values(), strict=True)
    )
    return StatusResult(status, entries, tuple(keys), fields, rules.counts(after, before))


def cut(texts: re.Pattern[bytes], status: bytes, numbers: dict[bytes, int]) -> Cut:
    """Take the texts out; `numbers` gets those that it has not."""
    pieces: list[Any] = texts.split(status)
    pieces[2::3] = [numbers.setdefault(text, len(numbers)) for text in pieces[2::3]]
    return tuple(pieces)


def filled(status: Cut, texts: Sequence[bytes]) -> bytes:
    """Put texts in."""
    pieces = list(status)
    pieces[2::3] = [texts[number] for number in pieces[2::3]]
    return b"".join(pieces)


def entry_times(
    old: Owners, before: bytes, new: Owners, after: bytes, owner: Owner
) -> tuple[tuple[Entry, int], ...] | None:
    """The new entries, each with the number of the old entry that has its time; None where that
    cannot be told."""
    known = {entry.owner: number for number, entry in enumerate(old.entries)}
    times = old.times.unpack_from(before)
    found = []
    for entry, moment in zip(new.entries, new.times.unpack_from(after), strict=True):
        source = known.get(entry.owner, -1)
        if entry.owner == owner and source >= 0:
            if times[source] == moment:
                return None  # either did not change what it has, or did so twice in a second
            source = -1
        elif entry.owner != owner and source < 0:
            return None
        found.append((entry, source))
    return tuple(found)
