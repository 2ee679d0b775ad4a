"""OpenAPI v2, converted on request from the v3 documents: the same schemas, reduced to what version
2 can express.

Patches are the only operations: clients of version 2 read definitions, and check whether a kind can
be patched (kubectl's server-side dry run), without using the operations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.api.trees import Json

KEYWORDS = frozenset(
    (
        "$ref",
        "description",
        "type",
        "format",
        "title",
        "default",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "maxProperties",
        "minProperties",
        "required",
        "enum",
    )
)
"""Keywords of both versions. `nullable` and the combinations of schemas exist in version 3 only."""
PRESERVE = "x-kubernetes-preserve-unknown-fields"
KIND = "x-kubernetes-group-version-kind"


def document(documents: Iterable[Json]) -> Json:
    """One document with the schemas of all v3 documents."""
    definitions: Json = {}
    paths: Json = {}
    for v3_document in documents:
        for path, operations in (v3_document.get("paths") or {}).items():
            if "patch" in operations:
                paths[path] = {"patch": _patch(operations["patch"])}
        for name, schema in v3_document["components"]["schemas"].items():
            if name not in definitions:
                definitions[name] = _definition(schema)
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "definitions": definitions,
    }


def _patch(operation: Json) -> Json:
    parameters = [
        {"name": given["name"], "in": given["in"], "type": "string", "uniqueItems": True}
        for given in operation["parameters"]
    ]
    extensions = {key: value for key, value in operation.items() if key.startswith("x-")}
    return {
        "consumes": list(operation["requestBody"]["content"]),
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        **extensions,
    }


def _definition(schema: Json) -> Json:
    """A definition. A custom kind that accepts anything gets no further details."""
    if schema.get(PRESERVE) and KIND in schema:
        return {"type": "object", KIND: schema[KIND]}
    converted = _converted(schema)
    assert isinstance(converted, dict)
    return converted


def _converted(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    converted: Json = {
        key: value
        for key, value in schema.items()
        if key in KEYWORDS or (key.startswith("x-") and key != "x-kubernetes-validations")
    }
    if "$ref" in converted:
        converted["$ref"] = _moved(converted["$ref"])
    alone = schema.get("allOf")
    if "type" not in schema and isinstance(alone, list) and len(alone) == 1 and "$ref" in alone[0]:
        # Version 3 needs the detour to say more beside a reference, version 2 does not.
        converted["$ref"] = _moved(alone[0]["$ref"])
    if schema.get("nullable"):
        converted.pop("type", None)  # a nullable value has no type in version 2
        return converted
    if schema.get(PRESERVE):
        if converted.get("type") in ("object", "array"):
            # Readers of version 2 refuse what an object of known properties does not name.
            del converted["type"]
        return converted
    properties = schema.get("properties")
    if isinstance(properties, dict):
        converted["properties"] = {name: _converted(inner) for name, inner in properties.items()}
        if (
            "required" in converted
            and (
                kept := [
                    name for name in converted["required"] if not _nullable(properties.get(name))
                ]
            )
            != converted["required"]
        ):
            converted["required"] = kept
    if isinstance(schema.get("items"), dict):
        converted["items"] = _converted(schema["items"])
    elif converted.get("type") == "array":
        del converted["type"]
    if "additionalProperties" in schema:
        converted["additionalProperties"] = _converted(schema["additionalProperties"])
    return converted


def _nullable(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.get("nullable"))


def _moved(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
