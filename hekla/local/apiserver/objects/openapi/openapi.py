"""OpenAPI v3 documents, one for each group and version: kubectl needs them to apply, create and
explain (local-cluster 1.9).

Schemas of built-in kinds come from the field tables, those of custom kinds from their definitions.
Strategic merge patches are not offered here: kubectl would compute them from merge keys in the
schemas; without them it falls back to its own types, which is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.encoding.shapes import is_object
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.objects.merging.topology import UNION, rules

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)

_SCALARS: dict[str, Json] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "Duration": {"type": "string"},
    "FieldsV1": {"type": "object"},
    "RawExtension": {"type": "object"},
    "JSON": {"x-kubernetes-preserve-unknown-fields": True},
    "ExtraValue": {"type": "array", "items": {"type": "string"}},
    "Verbs": {"type": "array", "items": {"type": "string"}},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
}
PATCH_STRATEGIES = {
    **dict.fromkeys(
        (
            ("PodSpec", "volumes"),
            ("PodSpec", "resourceClaims"),
            ("PodStatus", "resourceClaimStatuses"),
        ),
        "merge,retainKeys",
    ),
    ("DeploymentSpec", "strategy"): "retainKeys",
    ("PodDisruptionBudgetSpec", "selector"): "replace",
}
"""The patch strategy of fields that are not simply merged; for unions also `retainKeys`."""
_SCHEMA_FORMS = ("JSONSchemaPropsOrBool", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrStringArray")


def document(kinds: Iterable[Kind]) -> Json:
    """The document of the kinds of one group and version."""
    paths: Json = {}
    schemas: Json = {}
    for kind in kinds:
        _add_paths(paths, kind)
        if kind.schema is not None:
            _add_custom(schemas, kind)
        else:
            described = fields.root(kind.group, kind.version, kind.kind)
            if described is not None:
                schemas[_add(schemas, described)]["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _gvk(kind: Kind) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


# --- paths ----------------------------------------------------------------------------------------


def _add_paths(paths: Json, kind: Kind) -> None:
    prefix = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if kind.namespaced:
        prefix += "/namespaces/{namespace}"
    collection, item = f"{prefix}/{kind.plural}", f"{prefix}/{kind.plural}/{{name}}"
    reference = _reference(_kind_name(kind))
    verbs = {"get": ("get",), "put": ("update",), "patch": ("patch",), "delete": ("delete",)}
    for path, allowed in (
        (collection, {"get": ("list",), "post": ("create",), "delete": ("deletecollection",)}),
        (item, verbs),
    ):
        operations = {
            method: _operation(kind, method, reference)
            for method, needed in allowed.items()
            if any(verb in kind.verbs for verb in needed)
        }
        if operations:
            named = [] if path is collection else [_parameter("name", "path")]
            placed = [_parameter("namespace", "path")] if kind.namespaced else []
            paths[path] = {**operations, "parameters": [*named, *placed]}


def _parameter(name: str, where: str) -> Json:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "schema": {"type": "string", "uniqueItems": True},
    }


def _operation(kind: Kind, method: str, reference: Json) -> Json:
    operation: Json = {
        "tags": [f"{kind.group.replace('.', '_') or 'core'}_{kind.version}"],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": reference}}}
        },
        "x-kubernetes-group-version-kind": _gvk(kind),
    }
    if method in ("post", "put", "patch"):
        operation["parameters"] = [
            _parameter(name, "query") for name in ("dryRun", "fieldManager", "fieldValidation")
        ]
        types = _PATCHES if method == "patch" else ("*/*",)
        body = {"type": "object"} if method == "patch" else reference
        operation["requestBody"] = {
            "content": {media: {"schema": body} for media in types},
            "required": True,
        }
    if method == "patch":
        operation["parameters"].append(_parameter("force", "query"))
        operation["x-kubernetes-action"] = "patch"
    return operation


# --- schemas --------------------------------------------------------------------------------------


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _kind_name(kind: Kind) -> str:
    if kind.schema is not None:
        return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
    described = fields.root(kind.group, kind.version, kind.kind)
    return _name(described) if described is not None else f"io.k8s.api.{kind.version}.{kind.kind}"


def _name(described: fields.Message) -> str:
    if described.section == "meta.v1":
        return f"{_META}.{described.name}"
    if described.section == "apiextensions.v1":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.{described.section}.{described.name}"
    return f"io.k8s.api.{described.section}.{described.name}"


def _add(schemas: Json, described: fields.Message) -> str:
    """Add a message and all messages that it refers to; returns its name."""
    name = _name(described)
    if name in schemas:
        return name
    properties: Json = {}
    schemas[name] = {
        "description": _described(described.name),
        "type": "object",
        "properties": properties,
    }
    if is_object(described):
        properties["apiVersion"] = {"description": _described("", "apiVersion"), "type": "string"}
        properties["kind"] = {"description": _described("", "kind"), "type": "string"}
    for field, owner in fields.flat(described):
        properties[field.name] = _property(schemas, field, owner)
    return name


def _property(schemas: Json, field: fields.Field, owner: fields.Message) -> Json:
    description = _described(
        owner.name.replace("EphemeralContainerCommon", "Container"), field.name
    )
    one = _schema_of(schemas, field.type, owner)
    patched = _patched(field, owner)
    if field.many == "list":
        return {"description": description, "type": "array", "items": one, **patched}
    if field.many == "map":
        return {"description": description, "type": "object", "additionalProperties": one}
    if "$ref" in one:
        return {"description": description, "allOf": [one], **patched}
    return {"description": description, **one}


def _patched(field: fields.Field, owner: fields.Message) -> Json:
    """The patch strategy and merge key of a field: old clients compute their patches from them."""
    rule = rules(owner.section, owner.name).get(field.name)
    strategy = PATCH_STRATEGIES.get(
        (owner.name, field.name), "merge" if rule is not None and rule.patch else ""
    )
    if not strategy:
        return {}
    extensions: Json = {"x-kubernetes-patch-strategy": strategy}
    if rule is not None and rule.patch and rule.patch != UNION:
        extensions["x-kubernetes-patch-merge-key"] = rule.patch
    return extensions


def _schema_of(schemas: Json, kind: str, owner: fields.Message) -> Json:
    if kind in _SCALARS:
        return dict(_SCALARS[kind])
    if kind == "Quantity":
        schemas.setdefault(
            _QUANTITY,
            {
                "description": "An amount, such as 500m or 2Gi.",
                "oneOf": [{"type": "string"}, {"type": "number"}],
            },
        )
        return _reference(_QUANTITY)
    if kind == "IntOrString":
        described = {
            "description": "A number or a text.",
            "format": "int-or-string",
            "oneOf": [{"type": "integer"}, {"type": "string"}],
        }
        schemas.setdefault(_INT_OR_STRING, described)
        return _reference(_INT_OR_STRING)
    if kind in _SCHEMA_FORMS:
        return {"x-kubernetes-preserve-unknown-fields": True}
    inner = fields.message(owner.section, kind)
    return _reference(_add(schemas, inner)) if inner is not None else {"type": "object"}


def _add_custom(schemas: Json, kind: Kind) -> None:
    assert kind.schema is not None
    meta = fields.message("meta.v1", "ObjectMeta")
    assert meta is not None
    shown = dict(kind.schema)
    shown["properties"] = {
        "apiVersion": {"description": _described("", "apiVersion"), "type": "string"},
        "kind": {"description": _described("", "kind"), "type": "string"},
        **(kind.schema.get("properties") or {}),
        "metadata": {
            "description": _described("", "metadata"),
            "allOf": [_reference(_add(schemas, meta))],
        },
    }
    shown["x-kubernetes-group-version-kind"] = [_gvk(kind)]
    schemas[_kind_name(kind)] = shown


@cache
def _descriptions() -> dict[str, str]:
    text = (Path(__file__).parents[1] / "tables" / "descriptions.txt").read_text(encoding="utf-8")
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def _described(message: str, field: str = "") -> str:
    """A short description of our own, or none."""
    known: dict[str, Any] = _descriptions()
    if not field:
        return str(known.get(message, ""))
    return str(known.get(f"{message}.{field}") or known.get(f".{field}", ""))
