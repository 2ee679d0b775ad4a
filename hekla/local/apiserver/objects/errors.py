"""How a body that cannot be decoded is reported."""

from __future__ import annotations


class BadBody(Exception):
    """A request body that is not an object of the kind it was sent to.  `code` is the HTTP status,
    `str()` the message."""

    def __init__(self, message: str, *, code: int = 400, reason: str = "BadRequest") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
