"""Which address each pod of this machine has."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

HOST_ADDRESS = "127.0.0.1"


class Addresses:
    """Addresses of pods: of the pods' network, or on the machine's loopback where they have none.

    The loopback's second byte comes from the directory, so that two clusters on one machine do not
    give out the same ones.
    """

    def __init__(self, root: Path, private: bool) -> None:
        self.private = private
        digest = hashlib.sha256(os.fsencode(root.absolute())).digest()
        self.base = (127 << 24) | ((16 + digest[0] % 224) << 16)
        self.first, self.size = 1, 65534
        self.taken: dict[str, str] = {}
        self._used: set[int] = set()
        self._next = 0

    def within(self, base: str, prefix: int) -> None:
        """Use this network from now on.  Its first two addresses belong to the network daemon and
        to the machine."""
        number = int.from_bytes(bytes(int(part) for part in base.split(".")), "big")
        if number == self.base:
            return
        self.private, self.base, self.first, self.size = True, number, 3, (1 << (32 - prefix)) - 1
        self.taken.clear()
        self._used.clear()
        self._next = self.first - 1

    def take(self, uid: str, wanted: str = "") -> str:
        """An address for a pod: the one that it had, or a free one."""
        if not self.private:
            return HOST_ADDRESS
        if uid in self.taken:
            return self.taken[uid]
        number = self._number(wanted)
        if number is None or number in self._used:
            span = self.size - self.first
            for _ in range(span):
                self._next = (
                    self._next + 1 if self.first <= self._next + 1 < self.size else self.first
                )
                if self._next not in self._used:
                    break
            number = self._next
        self._used.add(number)
        address = ".".join(str(byte) for byte in (self.base + number).to_bytes(4, "big"))
        self.taken[uid] = address
        return address

    def give_back(self, uid: str) -> None:
        address = self.taken.pop(uid, None)
        if address is not None and (number := self._number(address)) is not None:
            self._used.discard(number)

    def _number(self, address: str) -> int | None:
        parts = address.split(".")
        if len(parts) != 4 or not all(part.isdigit() for part in parts):
            return None
        number = int.from_bytes(bytes(int(part) for part in parts), "big") - self.base
        return number if self.first <= number < self.size else None
