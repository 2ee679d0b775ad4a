"""How invalid requests are reported: an exception for a body that cannot be decoded, and the
functions that make the causes of an Invalid status."""

from __future__ import annotations

from hekla.api.text.fielderrors import (
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    shown,
    too_long,
    too_many,
    type_invalid,
)

__all__ = [
    "BadBody",
    "duplicate",
    "forbidden",
    "invalid",
    "not_found",
    "not_supported",
    "required",
    "shown",
    "too_long",
    "too_many",
    "type_invalid",
]


class BadBody(Exception):
    """A request body that is not an object of the kind it was sent to.  `code` is the HTTP status,
    `str()` the message."""

    def __init__(self, message: str, *, code: int = 400, reason: str = "BadRequest") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
