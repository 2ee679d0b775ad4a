"""The differences from Kubernetes that are intended.  Everything else that differs is a mistake of ours.

One row a difference: where it shows, and why it is wanted.  A row that no request meets any more must go.
"""

from __future__ import annotations

import re
from typing import NamedTuple

REVIEWS = r"POST \S+reviews"


class Intention(NamedTuple):
    """A difference that is wanted."""

    request: str
    """An expression that the request's line begins with."""
    place: str
    """An expression for the whole place."""
    why: str
    reference: str = ""
    """An expression that the reference server's side begins with."""
    ours: str = ""
    """The same of ours."""

    def covers(self, request: str, place: str, reference: str, ours: str) -> bool:
        return (
            re.match(self.request, request) is not None
            and re.fullmatch(self.place, place) is not None
            and re.match(self.reference, reference) is not None
            and re.match(self.ours, ours) is not None
        )


INTENDED: tuple[Intention, ...] = (
    Intention("", r".*\.?columnDefinitions\[.*\]\.description", "Descriptions are in words of our own."),
    Intention(
        "GET /version", r"\.(compiler|gitCommit|gitVersion|goVersion|buildDate|gitTreeState|platform)", "Hekla says that it is Hekla."
    ),
    Intention("", "status", "What the client did wrong is no failure of the server: 5xx here is 4xx with us.", r"500 ", r"4\d\d "),
    Intention("BREW", ".*", "The HTTP parser knows the methods of the protocol and refuses others before anything looks at them."),
    Intention(
        ".*accept application/vnd.kubernetes.protobuf", ".*", "Answers are JSON; every client that asks for protobuf takes JSON as well."
    ),
    Intention("", r"\.(resources|items)\[.*\]\.storageVersionHash", "It is opaque, and no client may compute it.", "", "(?!<absent>)"),
    Intention("", r"header x-content-type-options", "It speaks to browsers, which get nothing here that they could misread.", "nosniff"),
)
