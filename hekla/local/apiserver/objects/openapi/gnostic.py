"""OpenAPI v2 in protobuf, which older clients of discovery request (kubectl up to 1.26, helm,
client-go's OpenAPISchema).

The document is encoded along a table of the messages of gnostic's OpenAPIv2.proto; it holds only
the messages that our documents need. What has no message of its own there (defaults, enum values,
extensions) is encoded as YAML, of which JSON is a subset.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding.protobuf import chunk, varint

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
RESPONSE_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""The content type of a response: a media type may not contain `@`."""

TEXT, BOOL, INT, DOUBLE, ANY, NAMED = "text", "bool", "int", "double", "any", "named"


class Part(NamedTuple):
    """A field of a message; `form` is one of the constants above, or the name of the message that
    it holds."""

    number: int
    form: str
    many: bool = False


class Message(NamedTuple):
    """A message of the proto file: document key -> field."""

    parts: Mapping[str, Part]
    extensions: int = 0
    """The field for keys that begin with x-."""
    rest: Part | None = None
    """The field for all other keys, each with its name."""
    wrappers: tuple[int, ...] = ()
    """Numbers of the messages that enclose this one, outermost first."""


_SCALAR = {
    "title": Part(3, TEXT),
    "description": Part(4, TEXT),
    "pattern": Part(13, TEXT),
    "format": Part(2, TEXT),
}
MESSAGES: Mapping[str, Message] = {
    "Document": Message({
        "swagger": Part(1, TEXT), "info": Part(2, "Info"), "paths": Part(8, "Paths"), "definitions": Part(9, "Definitions"),
    }),
    "Info": Message({"title": Part(1, TEXT), "version": Part(2, TEXT)}),
    "Paths": Message({}, rest=Part(2, "PathItem")),
    "PathItem": Message({"patch": Part(8, "Operation")}, 10),
    "Operation": Message({
        "operationId": Part(5, TEXT), "consumes": Part(7, TEXT, True), "parameters": Part(8, "Parameter", True),
        "responses": Part(9, "Responses"),
    }, 13),
    # A query parameter is wrapped three times: as an item, a parameter, a non-body parameter.
    "Parameter": Message({
        "required": Part(1, BOOL), "in": Part(2, TEXT), "name": Part(4, TEXT), "type": Part(6, TEXT), "uniqueItems": Part(20, BOOL),
    }, wrappers=(1, 2, 3)),
    "Responses": Message({}, 2, Part(1, "Response")),
    "Response": Message({"description": Part(1, TEXT)}, wrappers=(1,)),
    "Definitions": Message({}, rest=Part(1, "Schema")),
    "Properties": Message({}, rest=Part(1, "Schema")),
    "Schema": Message({
        **_SCALAR,
        "$ref": Part(1, TEXT), "default": Part(5, ANY), "multipleOf": Part(6, DOUBLE), "maximum": Part(7, DOUBLE),
        "exclusiveMaximum": Part(8, BOOL), "minimum": Part(9, DOUBLE), "exclusiveMinimum": Part(10, BOOL), "maxLength": Part(11, INT),
        "minLength": Part(12, INT), "maxItems": Part(14, INT), "minItems": Part(15, INT), "uniqueItems": Part(16, BOOL),
        "maxProperties": Part(17, INT), "minProperties": Part(18, INT), "required": Part(19, TEXT, True), "enum": Part(20, ANY, True),
        "additionalProperties": Part(21, "Additional"), "type": Part(22, "Type"), "items": Part(23, "Items"),
        "properties": Part(25, "Properties"),
    }, 31),
}  # fmt: skip


def encoded(document: Json) -> bytes:
    """A Swagger document in protobuf."""
    return _message(document, "Document")


def _message(tree: Json, name: str) -> bytes:
    message = MESSAGES[name]
    pieces: list[bytes] = []
    for key, value in tree.items():
        part = message.parts.get(key)
        if part is not None:
            pieces += [_field(part, one) for one in (value if part.many else (value,))]
        elif key.startswith("x-") and message.extensions:
            pieces.append(chunk(message.extensions, _named(key, _any(value))))
        elif message.rest is not None:
            pieces.append(
                chunk(message.rest.number, _named(key, _message(value, message.rest.form)))
            )
    body = b"".join(pieces)
    for number in reversed(message.wrappers):
        body = chunk(number, body)
    return body


def _field(part: Part, value: Any) -> bytes:
    match part.form:
        case "text":
            return chunk(part.number, str(value).encode())
        case "bool":
            return varint(part.number << 3) + (b"\1" if value else b"\0")
        case "int":
            return varint(part.number << 3) + varint(int(value) & 0xFFFFFFFFFFFFFFFF)
        case "double":
            return varint(part.number << 3 | 1) + struct.pack("<d", value)
        case "any":
            return chunk(part.number, _any(value))
        case "Additional":
            inner = (
                varint(2 << 3) + (b"\1" if value else b"\0")
                if isinstance(value, bool)
                else chunk(1, _message(value, "Schema"))
            )
            return chunk(part.number, inner)
        case "Type":
            return chunk(part.number, chunk(1, value.encode()))
        case "Items":
            return chunk(part.number, chunk(1, _message(value, "Schema")))
        case message:
            return chunk(part.number, _message(value, message))


def _any(value: Any) -> bytes:
    return chunk(2, json.dumps(value, ensure_ascii=False).encode())


def _named(name: str, value: bytes) -> bytes:
    return chunk(1, name.encode()) + chunk(2, value)
