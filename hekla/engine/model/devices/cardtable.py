"""All shared cards of the cluster as a table, so that one question is answered for every node at
once.

Row by row it holds what `vgpu.Cards` says of a node; a placement writes one row anew.  What arrays
cannot hold (MIG instances, who else of a group is on a card) is left to `vgpu.VirtualGpu.fit`, node
by node; both give the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.model.arrays import Bools, Rows, Whole
from hekla.engine.model.devices import BINPACK
from hekla.engine.model.resources import Floats

if TYPE_CHECKING:
    from hekla.engine.model.devices.vgpu import Cards, Need

ALL_CORES = 100


class CardTable:
    """`[cards, rows]` each; cards that a node does not have take no pod."""

    def __init__(self) -> None:
        self.there: Bools = np.zeros(0, dtype=np.bool_)
        """`[rows]`: the node has such cards at all."""
        self.counted: Bools = np.zeros(0, dtype=np.bool_)
        """`[rows]`: what is in the table is all that there is to know."""
        self.number: Whole = np.zeros(0, dtype=np.int64)
        self.modes: Whole = np.zeros(0, dtype=np.int64)
        self.types: Whole = np.zeros((0, 0), dtype=np.int64)
        self.shares: Whole = np.zeros((0, 0), dtype=np.int64)
        """What is left of them."""
        self.memory: Whole = np.zeros((0, 0), dtype=np.int64)
        self.used: Whole = np.zeros((0, 0), dtype=np.int64)
        self.used_memory: Whole = np.zeros((0, 0), dtype=np.int64)
        self.used_cores: Whole = np.zeros((0, 0), dtype=np.int64)
        self.type_codes: dict[str, int] = {"": 0}
        self.mode_codes: dict[str, int] = {}

    def write(self, row: int, cards: Cards | None) -> None:
        """What a node has now; None for nothing of this kind."""
        width = 0 if cards is None else len(cards.cards)
        self._grow(row + 1, width)
        self.there[row] = cards is not None
        self.counted[row] = cards is None or all(card.geometry is None for card in cards.cards)
        self.number[row] = width
        self.shares[:, row] = 0
        self.types[:, row] = 0
        if cards is None:
            return
        self.modes[row] = self.mode_codes.setdefault(cards.mode, len(self.mode_codes))
        for at, card in enumerate(cards.cards):
            self.types[at, row] = self.type_codes.setdefault(card.type, len(self.type_codes))
            self.shares[at, row] = card.shares - card.used
            self.memory[at, row] = card.memory
            self.used[at, row] = card.used
            self.used_memory[at, row] = card.used_memory
            self.used_cores[at, row] = card.used_cores

    def _grow(self, rows: int, width: int) -> None:
        size, cards = len(self.there), len(self.types)
        if rows > size:
            more = max(rows, 2 * size) - size
            for name in ("there", "counted", "number", "modes"):
                column = getattr(self, name)
                setattr(self, name, np.append(column, np.zeros(more, dtype=column.dtype)))
        if rows > size or width > cards:
            for name in ("types", "shares", "memory", "used", "used_memory", "used_cores"):
                table = getattr(self, name)
                grown = np.zeros((max(width, cards), len(self.there)), dtype=np.int64)
                grown[:cards, :size] = table
                setattr(self, name, grown)

    def ask(
        self, rows: Rows, need: Need, types: Bools, mode: str, policy: str
    ) -> tuple[Bools, Floats]:
        """`[rows]` twice: whether one container finds its cards, and what the policy thinks of
        them.

        `types`: for each code of a card type whether the pod may use it.
        """
        memory = self.memory[:, rows]
        used_memory = self.used_memory[:, rows]
        used_cores = self.used_cores[:, rows]
        wanted = np.full_like(memory, need.memory) if need.memory else memory * need.percent // 100
        open_cards = (
            (self.shares[:, rows] > 0)
            & types[self.types[:, rows]]
            & (memory - used_memory >= wanted)
        )
        open_cards &= used_cores + need.cores <= ALL_CORES
        if need.cores == ALL_CORES:
            open_cards &= self.used[:, rows] == 0
        if not need.cores:
            open_cards &= used_cores != ALL_CORES
        fits = open_cards.sum(axis=0) >= need.number
        if mode:
            fits &= self.modes[rows] == self.mode_codes.get(mode, -1)
        scores = np.zeros(len(rows))
        if policy == BINPACK and fits.any():
            scores = _packed(open_cards, memory, used_memory, wanted, need.number)
        there = self.there[rows]
        return fits | ~there, np.where(fits & there, scores, 0.0)


def _packed(open_cards: Bools, memory: Whole, used: Whole, wanted: Whole, number: int) -> Floats:
    """`[rows]`: how full the fullest cards that take the pod will be, added up."""
    columns = np.arange(memory.shape[1])
    left = np.where(open_cards, used, -1)
    total = np.zeros(memory.shape[1])
    for _ in range(min(number, len(left))):
        card = left.argmax(axis=0)
        own = memory[card, columns]
        total += np.divide(
            100.0 * (used[card, columns] + wanted[card, columns]),
            own,
            out=np.zeros(len(own)),
            where=own > 0,
        )
        left[card, columns] = -2
    return total
