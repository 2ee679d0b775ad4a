"""The forms in which an object goes out: as it is, as a row of a Table, or as its metadata only."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from hekla.local.apiserver.kind import Column, Json
from hekla.local.apiserver.registry import Resource
from hekla.local.apiserver.status import Refusal
from hekla.local.apiserver.store import Event, Row, encode

JSON_TYPES = ("application/json", "*/*", "application/*")


class Form:
    """The plain form.  Stored bytes go out as they are, behind the kind's prefix."""

    name = "plain"
    list_kind = ""

    @staticmethod
    def bytes_of(row: Row, prefix: bytes = b"{") -> bytes:
        """The stored object behind a prefix."""
        return row.whole(prefix)

    def tree_of(self, resource: Resource, row: Row) -> Json:
        tree = owned_tree(row)
        return resource.kind.present(tree) if resource.kind.present is not None else tree

    def object(self, resource: Resource, row: Row) -> bytes:
        if resource.kind.present is not None:
            return encode(resource.typed(self.tree_of(resource, row)))
        return self.bytes_of(row, resource.prefix)

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        if resource.kind.present is not None:
            whole = resource.typed if resource.kind.custom else dict
            items = b",".join([encode(whole(self.tree_of(resource, row))) for row in rows])
        else:
            prefix, piece = resource.item_prefix, self.bytes_of
            items = b",".join([piece(row, prefix) for row in rows])
        return b'%b%b,"items":[%b]}' % (resource.list_prefix, encode(metadata), items)

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        if resource.kind.present is not None:
            return b'{"type":"%b","object":%b}\n' % (type.encode(), self.object(resource, row))
        return b"%b}\n" % self.bytes_of(row, resource.event_prefix[type])

    def bookmark(self, resource: Resource, version: int, initial_end: bool) -> bytes:
        metadata: Json = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return encode({"type": "BOOKMARK", "object": self.wrap_bookmark(resource, metadata)}) + b"\n"

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        return {"kind": resource.kind.kind, "apiVersion": resource.kind.api_version, "metadata": metadata}


class LeanForm(Form):
    """The plain form without managedFields, for callers that ask for it; see `plain`."""

    name = "lean"

    @staticmethod
    def bytes_of(row: Row, prefix: bytes = b"{") -> bytes:
        return prefix + row.data[1:]

    def tree_of(self, resource: Resource, row: Row) -> Json:
        tree = row.tree()
        return resource.kind.present(tree) if resource.kind.present is not None else tree


def owned_tree(row: Row) -> Json:
    """The object with its managedFields."""
    tree = row.tree()
    if row.owners is not None:
        tree["metadata"]["managedFields"] = row.managed()
    return tree


class MetadataForm(Form):
    """PartialObjectMetadata."""

    name = "metadata"

    @staticmethod
    def partial(row: Row) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": owned_tree(row)["metadata"]}

    def object(self, resource: Resource, row: Row) -> bytes:
        return encode(self.partial(row))

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        return encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": [self.partial(row) for row in rows],
            }
        )

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type.encode(), self.object(resource, row))

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}


def age(stamp: Any, now: float) -> str:
    """How long ago a timestamp was, in the short form of kubectl."""
    try:
        then = time.mktime(time.strptime(str(stamp)[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    except ValueError:
        return "<unknown>"
    seconds = int(now - then)
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    if seconds < 120:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d" if days % 365 and days < 2920 else f"{days // 365}y"


GENERIC = (
    Column("Name", "string", "name", "Name must be unique within a namespace.", 0, lambda tree, now: tree["metadata"]["name"]),
    Column(
        "Age", "string", "", "CreationTimestamp is a timestamp representing the server time when this object was created.", 0,
        lambda tree, now: age(tree["metadata"].get("creationTimestamp"), now),
    ),
)  # fmt: skip


class TableForm(Form):
    """Rows of cells, as kubectl prints them."""

    name = "table"

    def __init__(self, include: str) -> None:
        self.include = include
        """Object, Metadata or None: what goes with each row."""

    def rows(self, resource: Resource, rows: list[Row]) -> list[Json]:
        now = time.time()
        columns = resource.kind.columns or GENERIC
        present = resource.kind.present
        found: list[Json] = []
        for row in rows:
            tree = row.tree() if self.include == "None" else owned_tree(row)
            if present is not None:
                tree = present(tree)
            line: Json = {"cells": [column.cell(tree, now) for column in columns]}
            if self.include == "Object":
                line["object"] = resource.typed(tree)
            elif self.include != "None":
                line["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": tree["metadata"]}
            found.append(line)
        return found

    def table(self, resource: Resource, rows: list[Json], metadata: Json, definitions: bool = True) -> Json:
        columns = [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in resource.kind.columns or GENERIC
        ]
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns if definitions else None,
            "rows": rows,
        }

    def object(self, resource: Resource, row: Row) -> bytes:
        return encode(self.table(resource, self.rows(resource, [row]), {"resourceVersion": str(row.version)}))

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        return encode(self.table(resource, self.rows(resource, rows), metadata))

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        table = self.table(resource, self.rows(resource, [row]), {"resourceVersion": str(row.version)}, first)
        return encode({"type": type, "object": table}) + b"\n"

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        line = {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}}
        return self.table(resource, [line], {"resourceVersion": metadata["resourceVersion"]}, False)


PLAIN, LEAN, METADATA = Form(), LeanForm(), MetadataForm()
LEAN_HEADER = "x-hekla-managed-fields"
"""`omit` leaves managedFields out of an answer.  Other servers do not know the header, and then they are there."""
TABLES = {include: TableForm(include) for include in ("Object", "Metadata", "None")}


def negotiate(accept: str, include: str = "") -> Form:
    """The first form of an Accept header that this server gives; raises 406."""
    if not accept or accept == "application/json":
        return PLAIN
    asked = False
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        if media not in JSON_TYPES:
            continue
        asked = True
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        match wanted.get("as", ""):
            case "":
                return PLAIN
            case "Table" if wanted.get("v") in ("v1", "v1beta1") and wanted.get("g") == "meta.k8s.io":
                return TABLES.get(include or "Metadata", TABLES["Metadata"])
            case "PartialObjectMetadata" | "PartialObjectMetadataList" if wanted.get("v") in ("v1", "v1beta1"):
                return METADATA
    if re.search(r"\bapplication/yaml\b", accept):
        return PLAIN
    raise not_acceptable(None if asked else {})


def not_acceptable(details: Json | None = None) -> Refusal:
    """Names the media types that would have been."""
    types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    return Refusal(406, f"only the following media types are accepted: {types}", details=details)


def plain(headers: Mapping[str, str]) -> Form:
    """The plain form as a caller wants it."""
    return LEAN if headers.get(LEAN_HEADER) == "omit" else PLAIN


def wanted(headers: Mapping[str, str], include: str = "") -> Form:
    """The form that a request's headers ask for; raises 406."""
    form = negotiate(headers.get("accept", ""), include)
    return plain(headers) if form is PLAIN else form


def moved_version(row: Row, version: int) -> Row:
    """The same object with another resourceVersion: what a watcher is told when an object leaves its selection."""
    tree = row.tree()
    tree["metadata"]["resourceVersion"] = str(version)
    return Row(row.id, row.namespace, row.name, row.uid, version, encode(tree), row.labels, row.fields, row.held)


def event_bytes(form: Form, resource: Resource, type: str, row: Row, event: Event) -> bytes:
    """The wire form of an event, encoded once for all watchers that want the same."""
    key = (resource.token, form, type)
    found = event.encoded.get(key)
    if found is None:
        found = event.encoded[key] = form.event(resource, type, row)
    return found
