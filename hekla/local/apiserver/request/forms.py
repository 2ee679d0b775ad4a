"""The forms in which a client can get an object: the whole object, a row of a Table, or its
metadata."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from hekla.api.text.ages import age
from hekla.api.text.fielderrors import shown
from hekla.api.trees import Json
from hekla.local.apiserver.objects.kind import Column
from hekla.local.apiserver.objects.merging.topology import empty_object
from hekla.local.apiserver.objects.strategies import TEMPLATE_GENERATION
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal, bad_request
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Event, Row, encode

GIVEN = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
JSON_TYPES = ("application/json", "*/*")


class Form:
    """The plain form: stored bytes behind the kind's prefix."""

    name = "plain"
    versioned = True
    """Whether the form shows the object in the requested version."""

    @staticmethod
    def bytes_of(row: Row, prefix: bytes = b"{") -> bytes:
        """The stored object with a prefix instead of its opening brace."""
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
        if resource.kind.custom and "continue" not in metadata:
            metadata = {**metadata, "continue": ""}
        return b'%b%b,"items":[%b]}' % (resource.list_prefix, encode(metadata), items)

    def dry(self, resource: Resource, tree: Json) -> Json:
        """An object of a dry run."""
        return resource.typed(tree)

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        if resource.kind.present is not None:
            return b'{"type":"%b","object":%b}\n' % (type.encode(), self.object(resource, row))
        return b"%b}\n" % self.bytes_of(row, resource.event_prefix[type])

    def bookmark(self, resource: Resource, version: int, initial_end: bool) -> bytes:
        metadata: Json = {"resourceVersion": str(version)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return (
            encode({"type": "BOOKMARK", "object": self.wrap_bookmark(resource, metadata)}) + b"\n"
        )

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        """An object of the kind with the fields that Go writes for an empty one: some clients read
        the status of any pod, even of a bookmark's."""
        empty = {} if resource.kind.custom else empty_object(resource.node)
        return resource.typed({**empty, "metadata": metadata})


class LeanForm(Form):
    """The plain form without managedFields, for callers that ask for it; see `plain`."""

    name = "lean"

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        return resource.typed({"metadata": metadata})

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


def bare(metadata: Json) -> Json:
    """Metadata as a partial object shows it, without the template generation that a daemon set only
    keeps for an old version."""
    annotations = metadata.get("annotations")
    if annotations and TEMPLATE_GENERATION in annotations:
        left = {key: value for key, value in annotations.items() if key != TEMPLATE_GENERATION}
        metadata = {**metadata, "annotations": left}
        if not left:
            del metadata["annotations"]
    return metadata


class MetadataForm(Form):
    """PartialObjectMetadata."""

    name = "metadata"
    versioned = False

    def __init__(self, version: str) -> None:
        self.version = version

    def of_metadata(self, metadata: Json) -> Json:
        return {"kind": "PartialObjectMetadata", "apiVersion": self.version, "metadata": metadata}

    def partial(self, row: Row) -> Json:
        return self.of_metadata(bare(owned_tree(row)["metadata"]))

    def object(self, resource: Resource, row: Row) -> bytes:
        return encode(self.partial(row))

    def dry(self, resource: Resource, tree: Json) -> Json:
        return self.of_metadata(tree["metadata"])

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        shown = go_type(resource, "List")
        raise not_acceptable_as(
            f"you requested PartialObjectMetadata, but the requested object is a list ({shown})"
        )

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (type.encode(), self.object(resource, row))

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        return self.of_metadata(metadata)


class MetadataListForm(MetadataForm):
    """PartialObjectMetadataList."""

    name = "metadata list"

    def object(self, resource: Resource, row: Row) -> bytes:
        shown = go_type(resource)
        raise not_acceptable_as(
            f"you requested PartialObjectMetadataList, but the requested object is not a list ({shown})"
        )

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        items = [self.partial(row) for row in rows]
        return encode(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": self.version,
                "metadata": metadata,
                "items": items or None,
            }
        )


def go_type(resource: Resource, suffix: str = "") -> str:
    """What Go calls objects of a kind inside of Kubernetes."""
    kind = resource.kind
    if kind.custom:
        return f"*unstructured.Unstructured{suffix}"
    package = "core" if kind.group in ("", "events.k8s.io") else kind.group.partition(".")[0]
    return f"*{package}.{kind.kind}{suffix}"


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

    def __init__(self, include: str, version: str) -> None:
        self.include = include
        """What comes with each row: Object, Metadata or None."""
        self.version = version

    def rows(self, resource: Resource, rows: list[Row]) -> list[Json]:
        now = time.time()
        columns = resource.kind.columns or GENERIC
        present = resource.kind.present
        found: list[Json] = []
        for row in rows:
            tree = row.tree() if self.include == "None" else owned_tree(row)
            if present is not None:
                tree = present(tree)
            found.append(self._line(columns, tree, now, resource.typed))
        return found

    def _line(
        self, columns: Sequence[Column], tree: Json, now: float, typed: Callable[[Json], Json]
    ) -> Json:
        shown: Json | None = None
        if self.include == "Object":
            shown = typed(tree)
        elif self.include != "None":
            shown = {
                "kind": "PartialObjectMetadata",
                "apiVersion": self.version,
                "metadata": bare(tree["metadata"]),
            }
        return {"cells": [column.cell(tree, now) for column in columns], "object": shown}

    def dry(self, resource: Resource, tree: Json) -> Json:
        return self.of_tree(resource.kind.columns or GENERIC, tree)

    def of_tree(self, columns: Sequence[Column], tree: Json) -> Json:
        """The table of an object that is not stored, such as a Scale."""
        line = self._line(columns, tree, time.time(), lambda tree: tree)
        return self._table(
            columns, [line], {"resourceVersion": tree["metadata"].get("resourceVersion", "")}
        )

    def table(
        self, resource: Resource, rows: list[Json], metadata: Json, definitions: bool = True
    ) -> Json:
        columns = resource.kind.columns or GENERIC
        # Kinds without columns of their own are shown by code that begins with no list at all.
        return self._table(
            columns,
            rows if rows or columns[-1].name != "Created At" else None,
            metadata,
            definitions,
        )

    def _table(
        self,
        columns: Sequence[Column],
        rows: list[Json] | None,
        metadata: Json,
        definitions: bool = True,
    ) -> Json:
        described = [
            {
                "name": c.name,
                "type": c.type,
                "format": c.format,
                "description": c.description,
                "priority": c.priority,
            }
            for c in columns
        ]
        return {
            "kind": "Table",
            "apiVersion": self.version,
            "metadata": metadata,
            "columnDefinitions": described if definitions else None,
            "rows": rows,
        }

    def object(self, resource: Resource, row: Row) -> bytes:
        return encode(
            self.table(resource, self.rows(resource, [row]), {"resourceVersion": str(row.version)})
        )

    def list(self, resource: Resource, rows: list[Row], metadata: Json) -> bytes:
        return encode(self.table(resource, self.rows(resource, rows), metadata))

    def event(self, resource: Resource, type: str, row: Row, first: bool = False) -> bytes:
        table = self.table(
            resource, self.rows(resource, [row]), {"resourceVersion": str(row.version)}, first
        )
        return encode({"type": type, "object": table}) + b"\n"

    def wrap_bookmark(self, resource: Resource, metadata: Json) -> Json:
        line = {
            "cells": [],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": self.version,
                "metadata": metadata,
            },
        }
        return self.table(resource, [line], {"resourceVersion": metadata["resourceVersion"]}, False)


PLAIN, LEAN = Form(), LeanForm()
VERSIONS = ("meta.k8s.io/v1", "meta.k8s.io/v1beta1")
PARTIAL: dict[tuple[str, str], Form] = {
    (form, version): made(version)
    for form, made in (
        ("PartialObjectMetadata", MetadataForm),
        ("PartialObjectMetadataList", MetadataListForm),
    )
    for version in VERSIONS
}
LEAN_HEADER = "x-hekla-managed-fields"
"""`omit` leaves managedFields out of the response.  Other servers ignore the header."""
TABLES = {
    (include, version): TableForm(include, version)
    for include in ("Object", "Metadata", "None")
    for version in VERSIONS
}


def negotiate(accept: str, include: str = "", route: Route | None = None) -> Form:
    """The first form in an Accept header that this server supports.  Raises a Refusal with code
    406."""
    if not accept or accept == "application/json":
        return PLAIN
    asked = False
    for clause in accept.split(","):
        media, *parameters = [part.strip() for part in clause.split(";")]
        if media not in JSON_TYPES:
            continue
        asked = True
        wanted = dict(parameter.partition("=")[::2] for parameter in parameters)
        kind, version = wanted.get("as", ""), f"{wanted.get('g')}/{wanted.get('v')}"
        if kind == "":
            return PLAIN
        if kind == "Table" and version in VERSIONS:
            if include not in ("", "Object", "Metadata", "None"):
                why = f"includeObject: Invalid value: {shown(include)}: must be 'Metadata', 'Object', 'None', or empty"
                raise bad_request(f"Unable to convert to Table as requested: {why}")
            return TABLES[include or "Metadata", version]
        if (kind, version) in PARTIAL:
            return PARTIAL[kind, version]
    if re.search(r"\bapplication/yaml\b", accept):
        return PLAIN
    if route is not None and not route.kind.custom and not asked:
        types = [*GIVEN, *STREAMS] if not route.name and "watch" in route.kind.verbs else GIVEN
        raise Refusal(
            406, f"406: Not Acceptable\n\nAvailable representations: {', '.join(types)}", details={}
        )
    raise not_acceptable()


def not_acceptable_as(why: str) -> Refusal:
    """The refusal of a form that is not possible for this request."""
    return Refusal(406, why)


def not_acceptable() -> Refusal:
    """The refusal of all media types in an Accept header."""
    return not_acceptable_as(f"only the following media types are accepted: {', '.join(GIVEN)}")


def plain(headers: Mapping[str, str]) -> Form:
    """The plain form, with or without managedFields."""
    return LEAN if headers.get(LEAN_HEADER) == "omit" else PLAIN


def wanted(headers: Mapping[str, str], include: str = "", route: Route | None = None) -> Form:
    """The form that a request's headers ask for.  Raises a Refusal with code 406."""
    form = negotiate(headers.get("accept", ""), include, route)
    return plain(headers) if form is PLAIN else form


def moved_version(row: Row, version: int) -> Row:
    """The same object with another resourceVersion, for the DELETED event of an object that leaves
    a watch's selection."""
    tree = row.tree()
    tree["metadata"]["resourceVersion"] = str(version)
    return Row(
        row.id,
        row.namespace,
        row.name,
        row.uid,
        version,
        encode(tree),
        row.labels,
        row.fields,
        row.held,
    )


def event_bytes(form: Form, resource: Resource, type: str, row: Row, event: Event) -> bytes:
    """The wire form of an event; encoded once for all watchers with the same form."""
    key = (resource.token, form, type)
    found = event.encoded.get(key)
    if found is None:
        found = event.encoded[key] = form.event(resource, type, row)
    return found
