"""The AdmissionReview exchange: bytes of a request in, bytes of an answer out.

Reference: api-and-admission 5.1.  Only the fields that rules read are decoded; objects stay trees.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from hekla.admission.registry import Admission, review
from hekla.admission.review import Lookup, Settings, Verdict

NULL_PATCH = base64.b64encode(b"null").decode()
# These answer with the JSON text `null` where there is nothing to change; the others leave the
# patch out.
NULL_WHEN_UNCHANGED = frozenset({"/jobs/mutate", "/queues/mutate", "/pods/mutate"})


class Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class Request(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource: Resource = Resource()
    name: str = ""
    namespace: str = ""
    operation: str = ""
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class AdmissionReview(msgspec.Struct):
    request: Request | None = None


class Status(msgspec.Struct):
    message: str
    metadata: dict[str, str] = {}


class Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    status: Status | None = None
    patch: str | None = None
    patch_type: str | None = None


class Answer(msgspec.Struct, rename={"api_version": "apiVersion"}):
    response: Response
    kind: str = "AdmissionReview"
    api_version: str = "admission.k8s.io/v1"


_decode = msgspec.json.Decoder(AdmissionReview).decode
_encode = msgspec.json.Encoder().encode


def answer(
    admission: Admission, body: bytes, lookup: Lookup, settings: Settings
) -> tuple[bytes, Request | None, Verdict]:
    """The body of the answer, the request as far as it could be decoded, and the verdict."""
    try:
        request = _decode(body).request
        if request is None:
            return _refused("", "request: missing")
    except (msgspec.DecodeError, RecursionError) as error:
        return _refused("", f"the review cannot be read: {error}")
    if (
        request.resource.group,
        request.resource.version,
        request.resource.resource,
    ) != admission.key:
        return _refused(request.uid, admission.expected_resource)
    verdict = review(
        admission.path,
        request.operation,
        request.object,
        request.old_object,
        lookup,
        settings,
        name=request.name,
        namespace=request.namespace,
    )
    return _encode(Answer(_response(admission, request.uid, verdict, settings))), request, verdict


def _refused(uid: str, message: str) -> tuple[bytes, None, Verdict]:
    return _encode(Answer(Response(uid, False, Status(message)))), None, Verdict(False, message)


def _response(admission: Admission, uid: str, verdict: Verdict, settings: Settings) -> Response:
    if not verdict.allowed:
        return Response(uid, False, Status(verdict.message))
    if verdict.patch is not None:
        return Response(
            uid,
            True,
            patch=base64.b64encode(_encode(verdict.patch)).decode(),
            patch_type="JSONPatch",
        )
    idle = admission.path == "/pods/mutate" and settings.resource_groups is None
    if admission.path in NULL_WHEN_UNCHANGED and not idle:
        return Response(uid, True, patch=NULL_PATCH, patch_type="JSONPatch")
    return Response(uid, True)
