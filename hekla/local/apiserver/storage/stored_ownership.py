"""managedFields as they are on the disk, read by layout.

On the disk every row says its managedFields in full.  The texts of objects of one template differ
in times and in a few keys (addresses, uids) only.  So of a text with a known layout these are cut
out, and the rest is compared with the text that the layout was taken from, which was decoded.
"""

from __future__ import annotations

import re
import struct
from itertools import pairwise

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.times import stamp
from hekla.local.apiserver.objects.merging import ownership
from hekla.local.apiserver.storage.managed_fields import NOBODY, ManagedFields, Owners, Ownership

MAX_LENGTHS = 4096
MAX_LAYOUTS = 16
"""The most layouts of one length that are known at a time."""
MAX_TIMES = 100_000
_VARIABLE = re.compile(rb'"time":"([0-9T:Z-]{20})"|k:\{\\"(?:ip|uid)\\":\\"([0-9A-Za-z.:-]+)\\"\}')
"""A time, or a key that differs from object to object."""
_is_key = re.compile(rb"[0-9A-Za-z.:-]+").fullmatch
_decode = msgspec.json.Decoder().decode


class Layout:
    """The text of one object's managedFields, and where the times and keys are in it."""

    __slots__ = ("cut", "literals", "order", "owners", "repeated", "times", "values")

    def __init__(self, text: bytes, owners: Owners) -> None:
        self.owners = owners
        found = list(_VARIABLE.finditer(text))
        lengths: list[int] = []
        end = 0
        for match in found:
            start, stop = match.span(match.lastindex or 0)
            lengths += (start - end, stop - start)
            end = stop
        self.cut = struct.Struct("".join(f"{length}s" for length in (*lengths, len(text) - end)))
        """Cuts a text into literals and, in between, what varies."""
        self.literals = self.cut.unpack(text)[::2]
        timed = iter([at for at, match in enumerate(found) if match.lastindex == 1])
        self.times = [next(timed, None) if "time" in entry else None for entry in _decode(text)]
        """For each entry which of what varies is its time; None for one without."""
        first: dict[bytes, int] = {}
        self.repeated: list[tuple[int, int]] = []
        """Pairs of keys that are the same."""
        for at, match in enumerate(found):
            if match.lastindex == 2 and first.setdefault(match[2], at) != at:
                self.repeated.append((first[match[2]], at))
        self.values = list(first.values())
        """The first of each key."""
        ranks = [
            (entry.owner.operation, (entry.owner.manager, entry.version, entry.owner.subresource))
            for entry in owners.entries
        ]
        self.order = [
            (number, earlier[1] <= later[1])
            for number, (earlier, later) in enumerate(pairwise(ranks))
            if earlier[0] == later[0]
        ]
        """The entries that stand before the next one because of their times, and whether they may
        also have the same time."""


class StoredOwnership:
    """Reads managedFields from the disk."""

    def __init__(self, managed_fields: ManagedFields) -> None:
        self._managed_fields = managed_fields
        self._layouts: BoundedCache[int, list[Layout]] = BoundedCache(MAX_LENGTHS)
        """By the length of the text, the one that was used last in front."""
        self._times: BoundedCache[bytes, int] = BoundedCache(MAX_TIMES)

    def read(self, text: bytes) -> Ownership:
        """Who owns an object's fields, by its managedFields as JSON."""
        layouts = self._layouts.get(len(text))
        if layouts is not None:
            for place, layout in enumerate(layouts):
                pieces = layout.cut.unpack(text)
                if pieces[::2] == layout.literals:
                    if place:
                        layouts.insert(0, layouts.pop(place))
                    return self._read_by(layout, pieces[1::2]) or self._read_plainly(text)
        return self._learn(text)

    def _read_by(self, layout: Layout, found: tuple[bytes, ...]) -> Ownership | None:
        """What a text of this layout says, by what varies in it; None unless it is written as the
        server does."""
        moments = [0 if at is None else self._moment(found[at]) for at in layout.times]
        if -1 in moments:
            return None
        for number, may_be_same in layout.order:
            earlier, later = moments[number], moments[number + 1]
            if earlier > later or (earlier == later and not may_be_same):
                return None
        stamps = layout.owners.times.pack(*moments)
        if layout.values:
            values = [found[at] for at in layout.values]
            if len(set(values)) < len(values) or not all(map(_is_key, values)):
                return None
            for one, other in layout.repeated:
                if found[one] != found[other]:
                    return None
            stamps += b"\0".join(values)
        return layout.owners, stamps

    def _read_plainly(self, text: bytes) -> Ownership:
        return self._managed_fields.read(_decode(text)) or NOBODY

    def _learn(self, text: bytes) -> Ownership:
        """Read a text of an unknown layout, and remember that if it is as the server writes it."""
        owners, stamps = self._read_plainly(text)
        if owners is not None and owners.render(stamps) == text:
            layout = Layout(text, owners)
            layouts = self._layouts.setdefault(len(text), [])
            layouts.insert(0, layout)
            del layouts[MAX_LAYOUTS:]
        return owners, stamps

    def _moment(self, text: bytes) -> int:
        """A time in seconds since the epoch; -1 if it is not written as the server does."""
        known = self._times.get(text)
        if known is None:
            known = ownership.seconds(text.decode("ascii", "replace"))
            if not known or stamp(known).encode() != text:
                known = -1
            self._times[text] = known
        return known
