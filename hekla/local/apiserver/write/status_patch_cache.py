"""Statuses that are said again and again: of a patch whose like was seen a moment ago, what it
makes is known.

Thousands of pods begin to run with the same status but for times, addresses and names, and are told
so by patches that differ in no more.  Such texts are cut out of the stored status and of the patch.
What is left, with which of the texts are equal, decides what the patch makes of the status, and who
owns what then; it is remembered by that, and the texts are put in.  A kind says by its
`Parts.texts` which fields hold texts that decide about nothing.  All else (whose status it is,
deletion, webhooks, policies, who may) is looked at for each patch, as ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.objects.merging.ownership import Owner
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.managed_fields import Head, Owners
from hekla.local.apiserver.storage.store import Row, Write, decode, encode, split
from hekla.local.apiserver.write import partial_update as parts
from hekla.local.apiserver.write.scopes import scope_of

if TYPE_CHECKING:
    from hekla.local.apiserver.write.writing import Writer

KNOWN = 512
"""Patches that are remembered, and those of which is known that they were made."""
LARGEST = 16 * 1024
"""Bytes of a patch and of a status that go this way."""
SAID = frozenset({"metadata", "status"})

Key = tuple[Any, ...]
Cut = tuple[Any, ...]
"""A status in pieces; every third is a text, of which the number stands there."""


class Outcome(NamedTuple):
    """What a patch makes."""

    status: Cut
    heads: tuple[tuple[Head, int], ...]
    """The entries of managedFields, and from which one of before each has its time; -1 is now."""
    keys: tuple[int, ...]
    """Numbers of the texts that the entries name."""
    fields: tuple[Any, ...]
    """Of the selectable fields: as it was (None), a text by its number, or the value."""
    counts: bool


class CachedStatusPatch:
    """A patch of a status, cut."""

    __slots__ = ("key", "pieces", "row", "texts")

    def __init__(
        self, row: Row, pieces: dict[str, msgspec.Raw], key: Key, texts: list[bytes]
    ) -> None:
        self.row = row
        self.pieces = pieces
        self.key = key
        self.texts = texts
        """All that were cut out, each once; a number is a place here.  First come the keys that the
        object's owners name."""


class StatusPatchCache:
    """The results of status patches, by patch, stored status and owners."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self._known: BoundedCache[Key, Outcome] = BoundedCache(KNOWN)
        self._seen: BoundedCache[int, bool] = BoundedCache(KNOWN)
        """Hashes of keys that came once."""
        self._generation = -1

    def read(self, call: Call, media: str) -> CachedStatusPatch | None:
        """A patch that says a status and no more; None where the short way is not for it."""
        request, kind = call.request, call.route.kind
        described = kind.strategy.parts
        if (
            described is None
            or request.query
            or len(request.body) > LARGEST
            or call.route.subresource not in ("", "status")
        ):
            return None
        texts, row = described.texts(), call.resource.collection.newest(call.route.key)
        if texts is None or row is None or row.owners is None:
            return None
        try:
            said = documents.json_tree(request.body)
            if (
                type(said) is not dict
                or type(said.get("status")) is not dict
                or not said.keys() <= SAID
            ):
                return None
            # Written again, so that equal texts are found in both: a client may put blanks, and
            # escapes, where the store has none.
            status = encode(said["status"])
        except (BadBody, msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            return None
        if not (parts.says_whose(said.get("metadata", {}), row) and parts.known(row.owners, kind)):
            return None
        pieces = split(row.data)
        before = bytes(pieces.get("status", b"{}"))
        kept = [name for name in pieces if name not in SAID]
        if len(before) > LARGEST or not described.may_stay(call.route.subresource, kept):
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
        return CachedStatusPatch(row, pieces, key, list(numbers))

    def write(self, call: Call, patch: CachedStatusPatch) -> Write | None:
        """Accepts what a known patch makes; None where the way of all patches must be gone."""
        if self._generation != self.writer.registry.generation:
            self._generation = self.writer.registry.generation
            self._known.clear()  # what was served otherwise was perhaps read otherwise
            self._seen.clear()
        outcome = self._known.get(patch.key)
        row, pieces, texts = patch.row, patch.pieces, patch.texts
        if outcome is None or not parts.may_stand(bytes(pieces["metadata"]), row.version):
            return None
        operation = Attributes(
            call, call.resource, "UPDATE", row.namespace, row.name, {}, {}, call.route.subresource
        )
        admission = self.writer.admission
        if admission.concerned(operation) or admission.asked(operation):
            return None
        assert row.owners is not None
        managed_fields = self.writer.store.managed_fields
        times = (*row.owners.times.unpack_from(row.stamps), managed_fields.now())
        held = managed_fields.packed(
            [(head, times[source]) for head, source in outcome.heads],
            [texts[number].decode() for number in outcome.keys],
        )
        fields = [
            before if said is None else texts[said].decode() if type(said) is int else said
            for said, before in zip(outcome.fields, row.fields, strict=True)
        ]
        kept = {**pieces, "status": msgspec.Raw(filled(outcome.status, texts))}
        return call.resource.collection.update(
            {}, row, held, kept=kept, fields=tuple(fields), counts=outcome.counts
        )

    def learn(self, call: Call, patch: CachedStatusPatch, new: Row) -> None:
        """Remembers what came of a patch that comes the second time."""
        key, old = patch.key, patch.row
        if new is old or call.warnings or key in self._known:
            return
        if hash(key) not in self._seen:
            self._seen[hash(key)] = True
            return
        outcome = self._outcome(call, patch, new)
        if outcome is not None:
            self._known[key] = outcome

    def _outcome(self, call: Call, patch: CachedStatusPatch, new: Row) -> Outcome | None:
        """None where it cannot be told from this one what would come of others."""
        described, resource, old = call.route.kind.strategy.parts, call.resource, patch.row
        texts = described.texts() if described is not None else None
        if described is None or texts is None or old.owners is None or new.owners is None:
            return None
        numbers = {text: number for number, text in enumerate(patch.texts)}
        status = cut(texts, bytes(split(new.data).get("status", b"{}")), numbers)
        keys = [numbers.get(text.encode(), -1) for text in new.owners.values(new.stamps)]
        heads = entry_times(old.owners, old.stamps, new.owners, new.stamps, self._owner(call))
        if len(numbers) != len(patch.texts) or heads is None or -1 in keys:
            return None  # something of it is the server's own word
        # The same with the numbers in the place of the texts shows which of them can be selected
        # by.
        marks = [f"\\u0001{number}\\u0001".encode() for number in range(len(numbers))]
        before, after = (
            {"status": decode(filled(part, marks))} for part in (patch.key[-2], status)
        )
        marked = {decode(b'"%b"' % mark): number for number, mark in enumerate(marks)}
        shown = resource.collection.fields_of(after, patch.pieces, old.fields)
        fields = tuple(
            None if path[0] != "status" else marked.get(value, value)
            for value, path in zip(shown, resource.collection.selectable.values(), strict=True)
        )
        return Outcome(status, heads, tuple(keys), fields, described.counts(after, before))

    def _owner(self, call: Call) -> Owner:
        scope = scope_of(self.writer.registry, call.resource, call.route.subresource)
        return Owner(call.manager, ownership.UPDATE, call.route.subresource, scope.version)


def cut(texts: re.Pattern[bytes], status: bytes, numbers: dict[bytes, int]) -> Cut:
    """Takes the texts out; `numbers` gets those that it has not."""
    pieces: list[Any] = texts.split(status)
    pieces[2::3] = [numbers.setdefault(text, len(numbers)) for text in pieces[2::3]]
    return tuple(pieces)


def filled(status: Cut, texts: Sequence[bytes]) -> bytes:
    pieces = list(status)
    pieces[2::3] = [texts[number] for number in pieces[2::3]]
    return b"".join(pieces)


def entry_times(
    old: Owners, before: bytes, new: Owners, after: bytes, owner: Owner
) -> tuple[tuple[Head, int], ...] | None:
    """The new entries, and from which of the old ones each has its time; None where that cannot be
    told."""
    known = {head.owner: number for number, head in enumerate(old.heads)}
    times = old.times.unpack_from(before)
    found = []
    for head, moment in zip(new.heads, new.times.unpack_from(after), strict=True):
        source = known.get(head.owner, -1)
        if head.owner == owner and source >= 0:
            if times[source] == moment:
                return None  # either did not change what it has, or did so twice in a second
            source = -1
        elif head.owner != owner and source < 0:
            return None
        found.append((head, source))
    return tuple(found)
