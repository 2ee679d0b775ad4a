"""The measure of fragmentation: how much of what is free a pod of the mix is not expected to use.

For one shape and one node it has two parts for each resource.  The first is what the *next* pod of
the shape cannot use: everything that is free where it does not fit; where it fits, what is free on
cards that are too full for it (Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, section 3).  The second is what
would stay free if the node were filled up with pods of the shape: it also sees the card that has no
cpu left beside it for the pods after the next one.  Both are weighted by the popularity of the
shape; a shape that asks for none of a resource says nothing about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.resources import Floats

WHOLE = 100


class Need(NamedTuple):
    """What a pod of a shape asks for."""

    cpu: float = 0.0
    """Millicores."""
    memory: float = 0.0
    """Bytes."""
    number: int = 0
    """Cards."""
    share: int = 0
    """Of the memory of each card, in the units of the cards; 0: `percent` of it."""
    percent: int = WHOLE
    shared: bool = False
    """Whether the cards are such as pods may share."""


class Shapes:
    """The shapes of a mix as arrays, `[shapes]`."""

    def __init__(self, needs: list[Need], popularity: list[float]) -> None:
        self.needs = needs
        self.popularity: Floats = np.array(popularity)
        self.cpu: Floats = np.array([one.cpu for one in needs])
        self.memory: Floats = np.array([one.memory for one in needs])
        self.number: Floats = np.array([float(one.number) for one in needs])
        sizes = [(one.share, 0 if one.share else one.percent) for one in needs]
        known = sorted(set(sizes))
        self.sizes = known
        """What is asked of one card: many shapes ask the same."""
        self.size: Rows = np.array([known.index(one) for one in sizes], dtype=np.intp)
        """`[shapes]`: which of them each asks."""
        self.of_cards: Bools = self.number > 0

    @cached_property
    def by_resource(self) -> Floats:
        """`[3, shapes]`: the popularity of those that ask for cpu, memory, cards; 0 for others."""
        asked = np.array([self.cpu > 0, self.memory > 0, self.of_cards])
        return np.where(asked, self.popularity, 0.0)


@dataclass(slots=True)
class Places:
    """Nodes as they are, or as they would be.  `[places]`, cards `[cards, places]`."""

    cpu: Floats
    """Free."""
    memory: Floats
    cards: Floats
    """Memory free on each card that takes more pods; less than 0 where there is no such card."""
    card: Floats
    """Memory of one card; 1 where there are none."""
    closed: Floats
    """Memory free on cards that take no more pods."""

    def __len__(self) -> int:
        return len(self.cpu)

    def taken(self, which: Rows) -> Places:
        """Some of them, each as often as it is named."""
        return Places(
            self.cpu[which],
            self.memory[which],
            self.cards[:, which],
            self.card[which],
            self.closed[which],
        )


def unusable(
    shapes: Shapes, places: Places, access: Bools | None = None, *, filled: bool = False
) -> Floats:
    """`[3, shapes, places]`: of the free cpu (millicores), memory (bytes) and cards what a shape
    cannot use.

    `access`: `[shapes, places]`, whether pods of the shape may go there.  `filled`: only what stays
    free where as many whole pods of the shape come as find room; without, that and what the next
    pod cannot use together, where pods that come are counted in fractions.
    """
    open_memory = np.maximum(places.cards, 0.0)
    free = open_memory.sum(axis=0) + places.closed
    asked = np.array(
        [
            np.full(len(places), float(share)) if share else places.card * percent // WHOLE
            for share, percent in shapes.sizes
        ]
    ).reshape(len(shapes.sizes), len(places))
    wide = places.cards[None] >= np.maximum(asked, 1.0)[:, None, :]
    count = wide.sum(axis=1)
    narrow = free - np.where(wide, open_memory[None], 0.0).sum(axis=1)
    pieces = np.floor(open_memory[None] / np.maximum(asked, 1.0)[:, None, :]).sum(axis=1)

    wants = shapes.of_cards[:, None]
    number = np.maximum(shapes.number, 1.0)[:, None]
    cpu, memory = shapes.cpu[:, None], shapes.memory[:, None]
    fits = (places.cpu >= cpu) & (places.memory >= memory)
    fits &= ~wants | (count[shapes.size] >= shapes.number[:, None])
    if access is not None:
        fits &= access
    most = np.where(wants, np.floor(pieces[shapes.size] / number), np.inf)
    for size, room in ((cpu, places.cpu), (memory, places.memory)):
        most = np.minimum(
            most, np.divide(room, size, out=np.full(most.shape, np.inf), where=size > 0)
        )
    most = np.where(np.isfinite(most), np.maximum(most, 0.0), 0.0)
    if filled:
        most = np.where(fits, np.floor(most), 0.0)
    elif access is not None:
        most = np.where(access, most, 0.0)
    used = most * shapes.number[:, None] * asked[shapes.size]
    parts = np.array(
        [places.cpu - most * cpu, places.memory - most * memory, (free - used) / places.card]
    )
    if not filled:
        parts[0] += np.where(fits, 0.0, places.cpu)
        parts[1] += np.where(fits, 0.0, places.memory)
        parts[2] += np.where(fits, narrow[shapes.size], free) / places.card
    return parts


def expected(shapes: Shapes, places: Places, scale: Floats, access: Bools | None = None) -> Floats:
    """`[places]`: expected fragmentation of each, over the mix and the resources; `scale` `[3]` is
    what one unit of each resource counts."""
    parts = unusable(shapes, places, access)
    weighed: Floats = np.einsum("rs,rsp->p", shapes.by_resource * scale[:, None], parts)
    return weighed


def fitting(places: Places, need: Need) -> Bools:
    """`[cards, places]`: cards that have what a pod asks of one."""
    wanted = float(need.share) if need.share else places.card * need.percent // WHOLE
    wide: Bools = places.cards >= np.maximum(wanted, 1.0)
    return wide


def after(places: Places, need: Need, chosen: Bools) -> Places:
    """The places with one more pod, on the chosen cards, `[cards, places]`."""
    wanted = float(need.share) if need.share else places.card * need.percent // WHOLE
    return Places(
        places.cpu - need.cpu,
        places.memory - need.memory,
        np.where(chosen, places.cards - wanted, places.cards),
        places.card,
        places.closed,
    )


def fullest(places: Places, need: Need) -> Bools:
    """`[cards, places]`: the fullest cards that take a pod of several."""
    wide = fitting(places, need)
    order = np.argsort(np.where(wide, places.cards, np.inf), axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    return wide & (rank < need.number)


def gradient(
    shapes: Shapes, places: Places, need: Need, scale: Floats, access: Bools | None = None
) -> Floats:
    """`[places]`: by how much expected fragmentation rises where a pod comes, on the card where it
    rises least.  Where the pod finds no card it is inf.
    """
    before = expected(shapes, places, scale, access)
    if not need.number:
        nowhere = np.zeros(places.cards.shape, dtype=np.bool_)
        return expected(shapes, after(places, need, nowhere), scale, access) - before
    wide = fitting(places, need)
    if need.number > 1 or (not need.share and need.percent == WHOLE):
        chosen = fullest(places, need)
        rises = expected(shapes, after(places, need, chosen), scale, access) - before
        return np.where(wide.sum(axis=0) >= need.number, rises, np.inf)
    card, which = np.nonzero(wide)
    one = np.zeros((len(places.cards), len(card)), dtype=np.bool_)
    one[card, np.arange(len(card))] = True
    seen = None if access is None else access[:, which]
    then = expected(shapes, after(places.taken(which), need, one), scale, seen)
    best = np.full(len(places), np.inf)
    np.minimum.at(best, which, then - before[which])
    return best
