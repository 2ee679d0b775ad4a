"""OpenAPI: an index, and a document for each group and version (local-cluster 1.9)."""

from __future__ import annotations

import hashlib
from email.utils import formatdate
from time import time

from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.openapi import gnostic, openapi, swagger
from hekla.local.apiserver.request.status import Refusal, no_such_resource
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import encode

YEAR = 365 * 24 * 3600
JSON = "application/json"


def swagger_form(accept: str) -> str | None:
    """The content type of OpenAPI v2 that an Accept header prefers; None if it accepts neither."""
    for clause in accept.split(",") if accept else ("*/*",):
        media = clause.partition(";")[0].strip()
        if media in (JSON, "*/*", "application/*"):
            return JSON
        if media in (gnostic.MEDIA_TYPE, gnostic.RESPONSE_TYPE):
            return gnostic.RESPONSE_TYPE
    return None


class Schemas:
    """Builds documents when they are first requested, and again after the registry changed."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._generation = -1
        self._documents: dict[str, tuple[bytes, str]] = {}
        self._kinds: dict[str, list[Kind]] = {}
        self._swagger: dict[str, tuple[bytes, str]] = {}
        """Content type -> document."""

    def answer(self, request: Request, path: str) -> Response:
        """Answer a request for an OpenAPI document or the index."""
        if self._generation != self.registry.generation:
            self._generation = self.registry.generation
            self._forget_changed()
        if path == "/openapi/v2":
            return self._version_two(request)
        if path == "/openapi/v3":
            return Response(
                200,
                encode(
                    {"paths": {key: {"serverRelativeURL": self._url(key)} for key in self._keys()}}
                ),
            )
        key = path.removeprefix("/openapi/v3/")
        if key not in self._keys():
            raise no_such_resource()
        body, tag = self._document(key)
        asked = request.option("hash")
        if asked and asked != tag:
            return Response(301, b"", headers={"Location": self._url(key)})
        headers = {"ETag": f'"{tag}"', "Vary": "Accept"}
        if asked:
            headers["Cache-Control"] = "public, immutable"
            headers["Expires"] = formatdate(time() + YEAR, usegmt=True)
        if request.headers.get("if-none-match", "").strip('"') == tag:
            return Response(304, headers=headers)
        return Response(200, body, headers=headers)

    def _version_two(self, request: Request) -> Response:
        form = swagger_form(request.headers.get("accept", ""))
        if form is None:
            raise Refusal(
                406,
                f"only the following media types are accepted: {JSON}, {gnostic.MEDIA_TYPE}",
                details={},
            )
        known = self._swagger.get(form)
        if known is None:
            document = swagger.document(openapi.document(self._kinds[key]) for key in self._keys())
            body = encode(document) if form == JSON else gnostic.encoded(document)
            known = self._swagger[form] = (body, hashlib.sha256(body).hexdigest().upper())
        body, tag = known
        headers = {"ETag": f'"{tag}"', "Vary": "Accept"}
        if request.headers.get("if-none-match", "").strip('"') == tag:
            return Response(304, headers=headers)
        return Response(200, body, form, headers=headers)

    def _forget_changed(self) -> None:
        """Drop the documents of groups that changed, and keep all others."""
        now = {
            key: [resource.kind for resource in self.registry.of(*group_version)]
            for key, group_version in self._keys().items()
        }
        self._documents = {
            key: known
            for key, known in self._documents.items()
            if self._kinds.get(key) == now.get(key)
        }
        self._kinds = now
        self._swagger = {}

    def _keys(self) -> dict[str, tuple[str, str]]:
        return {
            f"apis/{group}/{version}" if group else f"api/{version}": (group, version)
            for group, versions in self.registry.versions().items()
            for version in versions
        }

    def _url(self, key: str) -> str:
        return f"/openapi/v3/{key}?hash={self._document(key)[1]}"

    def _document(self, key: str) -> tuple[bytes, str]:
        known = self._documents.get(key)
        if known is None:
            body = encode(openapi.document(self._kinds[key]))
            known = self._documents[key] = (body, hashlib.sha256(body).hexdigest().upper())
        return known
