"""What an API server refuses, as exceptions that a caller can tell apart by type.

The server answers a failure with a Status object; clients test its `reason`, not the HTTP code
(local-cluster 2.11).  Each reason that a caller acts on has a class here; the others are plain
`ApiError`s.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Cause(NamedTuple):
    """One cause of a refusal, usually one field of the object."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """The API server's "no".  `str(error)` is its message, unchanged."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        status: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.details = details or {}
        self.retry_after = retry_after
        """Seconds after which the server wants a retry; None if it said nothing."""
        self.status = status or {}
        """The Status object as it was sent; {} if the body was none."""

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the server does not know who asks."""


class Forbidden(ApiError):
    """403: not allowed, by authorization or admission."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class MethodNotAllowed(ApiError):
    """405: the kind has no such verb."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Conflict(ApiError):
    """409: the object has changed since it was read, or a precondition failed."""


class Expired(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class RequestTooLarge(ApiError):
    """413: the body is over the server's limit."""


class UnsupportedMediaType(ApiError):
    """415: the server does not read that content type for this kind."""


class Invalid(ApiError):
    """422: validation failed; `causes` has one entry a field."""


class TooManyRequests(ApiError):
    """429: asked again later it may work (evictions that a disruption budget forbids, overload)."""


class ServerError(ApiError):
    """5xx: the server or something behind it failed."""


class ServerTimeout(ServerError):
    """504: not ready in time."""


_BY_REASON: dict[str, type[ApiError]] = {
    "BadRequest": BadRequest,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "NotFound": NotFound,
    "MethodNotAllowed": MethodNotAllowed,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Expired": Expired,
    "Gone": Expired,
    "RequestEntityTooLarge": RequestTooLarge,
    "UnsupportedMediaType": UnsupportedMediaType,
    "Invalid": Invalid,
    "TooManyRequests": TooManyRequests,
    "InternalError": ServerError,
    "ServiceUnavailable": ServerError,
    "Timeout": ServerTimeout,
    "ServerTimeout": ServerTimeout,
}
_REASON_OF_CODE = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 406: "NotAcceptable",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip
LONGEST_QUOTE = 300


def from_status(status: dict[str, Any], *, code: int = 0, retry_after: str = "") -> ApiError:
    """The exception of a Status object (`code` where the object has none)."""
    code = status.get("code") or code or 500
    reason = status.get("reason") or _REASON_OF_CODE.get(
        code, "InternalError" if code >= 500 else "Unknown"
    )
    details = status.get("details") or {}
    causes = tuple(
        Cause(cause.get("reason") or "", cause.get("message") or "", cause.get("field") or "")
        for cause in details.get("causes") or ()
    )
    seconds: float | None = None
    if retry_after.isdigit():
        seconds = float(retry_after)
    elif details.get("retryAfterSeconds"):
        seconds = float(details["retryAfterSeconds"])
    kind = _BY_REASON.get(reason) or _BY_REASON.get(
        _REASON_OF_CODE.get(code, ""), ServerError if code >= 500 else ApiError
    )
    message = status.get("message") or f"the server answered {code} {reason}"
    return kind(
        code, reason, message, causes=causes, details=details, retry_after=seconds, status=status
    )


def from_answer(code: int, body: bytes, *, retry_after: str = "") -> ApiError:
    """The exception of a failed HTTP answer, whether its body is a Status object or not."""
    try:
        status = msgspec.json.decode(body)
    except msgspec.DecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return from_status(status, code=code, retry_after=retry_after)
    text = body[:LONGEST_QUOTE].decode("utf-8", "replace").strip()
    message = text or f"the server answered {code} without a reason"
    return from_status({"message": message}, code=code, retry_after=retry_after)
