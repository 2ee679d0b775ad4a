"""The differences from Kubernetes that are intended.  Everything else that differs is a mistake of ours.

One row a difference: where it shows, and why it is wanted.  A row that no request meets any more must go.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Intention(NamedTuple):
    """A difference that is wanted."""

    request: str
    """An expression that the request's line begins with."""
    place: str
    """An expression for the whole place."""
    why: str

    def covers(self, request: str, place: str) -> bool:
        return re.match(self.request, request) is not None and re.fullmatch(self.place, place) is not None


INTENDED: tuple[Intention, ...] = ()
