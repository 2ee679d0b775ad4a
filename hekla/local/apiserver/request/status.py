"""How the server says no: Kubernetes' Status, with the reasons that clients test and the wording
that users search for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.encoding.go_text import quoted
from hekla.local.apiserver.objects.kind import FieldError, Kind

REASONS = {
    400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 406: "NotAcceptable",
    409: "Conflict", 410: "Expired", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid",
    429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip

Cause = dict[str, str]
MOST_CAUSES = 1000
"""What is wrong with an object, as far as an answer says it."""
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
"""On what may show a client its own words again: no browser should take it for a page."""


class Refusal(Exception):
    """An answer that is not the one asked for."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = REASONS.get(code, "") if reason is None else reason
        self.details = details
        self.retry_after = retry_after
        self.metadata = metadata or {}
        self.headers: dict[str, str] = {}

    def tree(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": str(self),
        }
        if self.reason:
            status["reason"] = self.reason
        details = dict(self.details) if self.details else {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self.details is not None:
            status["details"] = details
        status["code"] = self.code
        return status

    def response(self) -> Response:
        headers = {"Cache-Control": "no-cache, private"}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
        headers |= self.headers
        return Response(self.code, msgspec.json.encode(self.tree()), headers=headers)


def qualified(kind: Kind) -> str:
    """`pods`, `deployments.apps`."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def details(
    kind: Kind, name: str = "", *, by_kind: bool = False, causes: Sequence[Cause] = ()
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name:
        found["name"] = name
    if kind.group:
        found["group"] = kind.group
    found["kind"] = kind.kind if by_kind else kind.plural
    if causes:
        found["causes"] = list(causes)
    return found


def unsniffed(refusal: Refusal) -> Refusal:
    refusal.headers = NOSNIFF
    return refusal


def bad_request(message: str) -> Refusal:
    return Refusal(400, message)


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, f'{qualified(kind)} "{name}" not found', details=details(kind, name))


def no_such_resource() -> Refusal:
    return Refusal(404, "the server could not find the requested resource", details={})


def method_not_allowed() -> Refusal:
    return Refusal(
        405, "the server does not allow this method on the requested resource", details={}
    )


def already_exists(kind: Kind, name: str, going: bool = False) -> Refusal:
    prefix = "object is being deleted: " if going else ""
    return Refusal(
        409,
        f'{prefix}{qualified(kind)} "{name}" already exists',
        reason="AlreadyExists",
        details=details(kind, name),
    )


def conflict(kind: Kind, name: str, why: str = "", resource: str = "") -> Refusal:
    text = (
        why
        or "the object has been modified; please apply your changes to the latest version and try again"
    )
    about = details(kind, name)
    shown = qualified(kind)
    if resource:
        about["kind"] = resource
        shown = f"{resource}.{kind.group}" if kind.group else resource
    return Refusal(409, f'Operation cannot be fulfilled on {shown} "{name}": {text}', details=about)


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> Refusal:
    what = f'{qualified(kind)} "{name}"' if name else qualified(kind)
    return Refusal(403, f"{what} is forbidden: {why}", details=details(kind, name, causes=causes))


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> Refusal:
    more, errors = len(errors) - MOST_CAUSES, errors[:MOST_CAUSES]
    texts = list(dict.fromkeys(f"{error.field}: {error.text}" for error in errors))
    if more > 0:
        texts.append(f"and {more} more")
    what = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    message = f"{what} {quoted(name)} is invalid: " + (
        texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    )
    causes = [
        {"reason": error.reason, "message": error.text, "field": error.field} for error in errors
    ]
    return Refusal(422, message, details=details(kind, name, by_kind=True, causes=causes))


def invalid_option(kind: str, errors: Sequence[FieldError], group: str = "meta.k8s.io") -> Refusal:
    """A query option or an options body that is wrong: named after the options' own kind."""
    return invalid(Kind(group, "v1", kind, kind.lower(), False), "", errors)


def internal(message: str) -> Refusal:
    return Refusal(
        500, f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def too_large_version(version: int, current: int) -> Refusal:
    return Refusal(
        504,
        f"Timeout: Too large resource version: {version}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ]
        },
        retry_after=1,
    )


def expired(message: str, continuation: str = "") -> Refusal:
    return Refusal(410, message, metadata={"continue": continuation} if continuation else None)


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {**details(kind, name), "uid": uid},
    }


CREATED = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}'
SUCCESS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}'
