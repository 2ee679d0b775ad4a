"""OpenAPI v2, made of the v3 documents when somebody asks for it: the same schemas, cut down to
what version 2 can say.

Of the operations only patches are here: who still reads version 2 reads the definitions, and looks
whether a kind can be patched without doing it (kubectl's server-side dry run).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hekla.api.trees import Json

KEPT = frozenset(
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
"""Keywords that both versions have; `nullable` and the combinations of schemas are of version 3
alone."""
PRESERVE = "x-kubernetes-preserve-unknown-fields"
KIND = "x-kubernetes-group-version-kind"


def document(documents: Iterable[Json]) -> Json:
    """One document of the schemas of all v3 documents."""
    definitions: Json = {}
    paths: Json = {}
    for found in documents:
        for path, operations in (found.get("paths") or {}).items():
            if "patch" in operations:
                paths[path] = {"patch": _patch(operations["patch"])}
        for name, schema in found["components"]["schemas"].items():
            if name not in definitions:
                definitions[name] = _whole(schema)
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


def _whole(schema: Json) -> Json:
    """A definition; of a custom kind that takes anything there is nothing to say."""
    if schema.get(PRESERVE) and KIND in schema:
        return {"type": "object", KIND: schema[KIND]}
    cut = _cut(schema)
    assert isinstance(cut, dict)
    return cut


def _cut(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    cut: Json = {
        key: value
        for key, value in schema.items()
        if key in KEPT or (key.startswith("x-") and key != "x-kubernetes-validations")
    }
    if "$ref" in cut:
        cut["$ref"] = _moved(cut["$ref"])
    alone = schema.get("allOf")
    if "type" not in schema and isinstance(alone, list) and len(alone) == 1 and "$ref" in alone[0]:
        # Version 3 needs the detour to say more beside a reference, version 2 does not.
        cut["$ref"] = _moved(alone[0]["$ref"])
    if schema.get("nullable"):
        cut.pop("type", None)  # what may be null is of no type here
        return cut
    if schema.get(PRESERVE):
        if cut.get("type") in ("object", "array"):
            # Readers of version 2 refuse what an object of known properties does not name.
            del cut["type"]
        return cut
    properties = schema.get("properties")
    if isinstance(properties, dict):
        cut["properties"] = {name: _cut(inner) for name, inner in properties.items()}
        if (
            "required" in cut
            and (kept := [name for name in cut["required"] if not _nullable(properties.get(name))])
            != cut["required"]
        ):
            cut["required"] = kept
    if isinstance(schema.get("items"), dict):
        cut["items"] = _cut(schema["items"])
    elif cut.get("type") == "array":
        del cut["type"]
    if "additionalProperties" in schema:
        cut["additionalProperties"] = _cut(schema["additionalProperties"])
    return cut


def _nullable(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.get("nullable"))


def _moved(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
