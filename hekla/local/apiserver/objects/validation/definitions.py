"""The rules of CustomResourceDefinitions: names, versions and structural schemas (local-cluster
4.1)."""

from __future__ import annotations

import re
from typing import Any

from hekla.api.text.fielderrors import invalid, required
from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names
from hekla.local.apiserver.objects.custom import rules, schema_errors
from hekla.local.apiserver.objects.custom.schema import compiled_pattern
from hekla.local.apiserver.objects.validation.metadata import immutable, metadata

API_APPROVED = "api-approved.kubernetes.io"
is_protected_group = re.compile(r"(.*\.)?(k8s|kubernetes)\.io").fullmatch
TYPES = ("array", "boolean", "integer", "number", "object", "string")
_PRESERVING = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_NOT_STRUCTURAL = (
    "$ref",
    "definitions",
    "dependencies",
    "patternProperties",
    "additionalItems",
    "deprecated",
    "discriminator",
)


def create(tree: Json) -> Errors:
    errors = metadata(tree, bare_finalizers=True)
    spec = tree.get("spec") or {}
    group, given = spec.get("group") or "", spec.get("names") or {}
    name = (tree.get("metadata") or {}).get("name") or ""
    if name != f"{given.get('plural') or ''}.{group}":
        errors.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        errors.required("spec.group")
    elif "." not in group:
        errors.invalid("spec.group", group, "should be a domain with at least one dot")
    else:
        errors.malformed("spec.group", group, names.dns_subdomain(group))
    scope = spec.get("scope") or ""
    if not scope:
        errors.required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        errors.not_supported("spec.scope", scope, ("Cluster", "Namespaced"))
    _names(given, errors)
    if spec.get("preserveUnknownFields"):
        errors.invalid("spec.preserveUnknownFields", True, _PRESERVING)
    strategy = (spec.get("conversion") or {}).get("strategy", "None")
    if strategy not in ("None", "Webhook"):
        errors.not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))
    if strategy == "Webhook":
        _conversion((spec.get("conversion") or {}).get("webhook"), errors)
    elif (spec.get("conversion") or {}).get("webhook") is not None:
        errors.forbidden(
            "spec.conversion.webhook", "should not be set when strategy is not set to Webhook"
        )
    _versions(spec.get("versions") or (), errors)
    stored = (tree.get("status") or {}).get("storedVersions")
    if not stored:
        errors.invalid("status.storedVersions", None, "must have at least one stored version")
    else:
        left = set(stored)
        for version in spec.get("versions") or ():
            if version.get("storage") and version.get("name") not in left:
                why = f"must have the storage version {version.get('name')}"
                errors.invalid("status.storedVersions", stored, why)
            left.discard(version.get("name"))
    if is_protected_group(group):
        _approved(
            ((tree.get("metadata") or {}).get("annotations") or {}).get(API_APPROVED) or "", errors
        )
    return errors


def _approved(annotation: str, errors: Errors) -> None:
    """A group of the Kubernetes project needs an annotation with a link to its API review, or one
    that begins with "unapproved"."""
    place = f"metadata.annotations[{API_APPROVED}]"
    where = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not annotation:
        errors.required(
            place, f'protected groups must have approval annotation "{API_APPROVED}", {where}'
        )
    elif not annotation.startswith("unapproved") and not re.match(
        r"[A-Za-z][A-Za-z0-9+.-]*://[^/]", annotation
    ):
        why = f'protected groups must have approval annotation "{API_APPROVED}" with either a URL or a reason starting with "unapproved"'
        errors.invalid(place, annotation, f"{why}, {where}")


def _conversion(webhook: Json | None, errors: Errors) -> None:
    path = "spec.conversion"
    if webhook is None:
        webhook = {}
    config = webhook.get("clientConfig")
    if config is None:
        errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    elif bool(config.get("url")) == (config.get("service") is not None):
        errors.required(f"{path}.webhookClientConfig", "exactly one of url or service is required")
    versions = webhook.get("conversionReviewVersions") or ()
    if not versions:
        errors.required(f"{path}.conversionReviewVersions")
    elif not {"v1", "v1beta1"} & set(versions):
        why = "must include at least one of v1, v1beta1"
        errors.invalid(f"{path}.conversionReviewVersions", list(versions), why)


def _names(given: Json, errors: Errors) -> None:
    for name in ("plural", "singular", "kind", "listKind"):
        value = given.get(name) or ""
        if not value:
            errors.required(f"spec.names.{name}")
            continue
        cased = name.endswith(("kind", "Kind"))
        lower = value.lower() if cased else value
        mixed = "may have mixed case, but should otherwise match: " if cased else ""
        errors += [
            invalid(f"spec.names.{name}", value, mixed + reason)
            for reason in names.dns_1035_label(lower)
        ]
    for position, short in enumerate(given.get("shortNames") or ()):
        errors.malformed(f"spec.names.shortNames[{position}]", short, names.dns_1035_label(short))
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        errors.invalid(
            "spec.names.listKind", given["listKind"], "kind and listKind may not be the same"
        )


def _versions(versions: Any, errors: Errors) -> None:
    if not versions:
        errors.invalid(
            "spec.versions", [], "must have exactly one version marked as storage version"
        )
        return
    seen: set[str] = set()
    storage = 0
    # Where all versions have one schema it is one schema for Kubernetes, and its errors are named
    # by where that stood in v1beta1.
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    first = schemas[0]
    alike = first is not None and all(schema == first for schema in schemas)
    if alike and first is not None:
        structural(first, "spec.validation.openAPIV3Schema", errors)
    for position, version in enumerate(versions):
        path = f"spec.versions[{position}]"
        name = version.get("name") or ""
        errors.malformed(f"{path}.name", name, names.dns_1035_label(name))
        # of the first Kubernetes says it twice: it is also the version of before there were several
        if not position:
            errors.malformed("spec.version", name, names.dns_1035_label(name))
        if name in seen:
            why = "must contain unique version names"
            errors.invalid("spec.versions", [v.get("name") for v in versions], why)
        seen.add(name)
        storage += bool(version.get("storage"))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            errors.required(f"{path}.schema.openAPIV3Schema")
        elif not alike:
            structural(schema, f"{path}.schema.openAPIV3Schema", errors)
        for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
            _column(column, f"{path}.additionalPrinterColumns[{index}]", errors)
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            for field, start in (
                ("specReplicasPath", ".spec."),
                ("statusReplicasPath", ".status."),
            ):
                text = scale.get(field) or ""
                if not text:
                    errors.required(f"{path}.subresources.scale.{field}")
                elif not text.startswith(start):
                    why = f"should be a json path under {start[:-1]}"
                    errors.invalid(f"{path}.subresources.scale.{field}", text, why)
    if storage != 1:
        why = "must have exactly one version marked as storage version"
        errors.invalid("spec.versions", [v.get("name") for v in versions], why)


def _column(column: Json, path: str, errors: Errors) -> None:
    if not column.get("name"):
        errors.required(f"{path}.name")
    kinds = ("boolean", "date", "integer", "number", "string")
    kind = column.get("type") or ""
    if not kind:
        errors.required(f"{path}.type", f"must be one of {','.join(kinds)}")
    elif kind not in kinds:
        errors.invalid(f"{path}.type", kind, f"must be one of {','.join(kinds)}")
    if not column.get("jsonPath"):
        errors.required(f"{path}.jsonPath")


def structural(
    schema: Json, path: str, errors: Errors, *, root: bool = True, uncorrelated: str = ""
) -> None:
    """Whether a schema is structural, so that the server can prune and default by it: it has types
    everywhere and no references."""
    kind = schema.get("type") or ""
    rules.check_declarations(schema, path, errors, root=root, uncorrelated=uncorrelated)
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get(
        "x-kubernetes-int-or-string"
    )
    if root and kind != "object":
        where = f"{path}.type"
        errors.append(
            invalid(where, kind, "must be object at the root")
            if kind
            else required(where, "must not be empty at the root")
        )
    elif not kind and not free:
        where = "at the root" if root else "for specified object fields"
        errors.required(f"{path}.type", f"must not be empty {where}")
    elif kind and kind not in TYPES:
        errors.not_supported(f"{path}.type", kind, TYPES)
    for name in _NOT_STRUCTURAL:
        if schema.get(name):
            errors.forbidden(f"{path}.{name}", f"{name} is not supported")
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errors.forbidden(f"{path}.uniqueItems", why)
    if "pattern" in schema and (why := pattern_error(schema["pattern"])):
        why = f"must be a valid regular expression, but isn't: {why}"
        errors.invalid(f"{path}.pattern", schema["pattern"], why)
    if "default" in schema and not root:
        errors += [
            error._replace(field=f"{path}.default{error.field}") for error in default_errors(schema)
        ]
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    if root and additional is not None and additional is not False:
        errors.forbidden(f"{path}.additionalProperties", "must not be used at the root")
    if root and schema.get("nullable"):
        errors.forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if (
        schema.get("x-kubernetes-embedded-resource")
        and not properties
        and not schema.get("x-kubernetes-preserve-unknown-fields")
    ):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        errors.required(f"{path}.properties", why)
    _junctors(schema, path, errors)
    if properties and additional is not None and additional is not False:
        why = "additionalProperties and properties are mutual exclusive"
        errors.forbidden(f"{path}.additionalProperties", why)
    for name, inner in (properties or {}).items():
        if root and name in ("apiVersion", "kind"):
            continue
        if root and name == "metadata":
            _root_metadata(inner, f"{path}.properties[metadata]", errors)
            continue
        structural(
            inner, f"{path}.properties[{name}]", errors, root=False, uncorrelated=uncorrelated
        )
    if isinstance(additional, dict):
        structural(
            additional,
            f"{path}.additionalProperties",
            errors,
            root=False,
            uncorrelated=uncorrelated,
        )
    items = schema.get("items")
    if isinstance(items, list):
        errors.forbidden(f"{path}.items", "items must be a schema object and not an array")
    elif items is not None:
        listed = schema.get("x-kubernetes-list-type") in ("map", "set")
        structural(
            items,
            f"{path}.items",
            errors,
            root=False,
            uncorrelated=uncorrelated or ("" if listed else path),
        )
    elif kind == "array":
        errors.required(f"{path}.items", "must be specified")
    _list_type(schema, path, errors)


def default_errors(schema: Json) -> Errors:
    """Why a default does not fit its own schema. Called only if the schema itself is valid."""
    try:
        return Errors(
            error._replace(field=f".{error.field}" if error.field else "")
            for error in schema_errors.explain(schema, schema["default"], root=False)
        )
    except (ValueError, TypeError, KeyError):
        return Errors()


_FORBIDDEN_IN_JUNCTORS = (
    ("type", "empty"),
    ("title", "empty"),
    ("description", "empty"),
    ("default", "undefined"),
    ("nullable", "false"),
)


def _junctors(schema: Json, path: str, errors: Errors) -> None:
    """The schemas in allOf, anyOf, oneOf and not may only validate values, not declare fields."""
    inner = [
        (f"{path}.{name}[{number}]", one)
        for name in _JUNCTORS
        for number, one in enumerate(schema.get(name) or ())
    ]
    if isinstance(schema.get("not"), dict):
        inner.append((f"{path}.not", schema["not"]))
    whole = schema.get("x-kubernetes-int-or-string")
    for where, one in inner:
        for name, what in _FORBIDDEN_IN_JUNCTORS:
            if one.get(name) and not (whole and name == "type"):
                errors.forbidden(f"{where}.{name}", f"must be {what} to be structural")


def _root_metadata(schema: Json, path: str, errors: Errors) -> None:
    allowed = {"type", "properties", "description"}
    inner = set(schema.get("properties") or {})
    if set(schema) - allowed or inner - {"name", "generateName"}:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        errors.forbidden(path, why)


def _list_type(schema: Json, path: str, errors: Errors) -> None:
    kind = schema.get("x-kubernetes-list-type")
    if kind is None:
        return
    if kind not in ("atomic", "map", "set"):
        errors.not_supported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "map", "set"))
    elif schema.get("type") != "array":
        why = "must be array if x-kubernetes-list-type is specified"
        errors.invalid(f"{path}.type", schema.get("type") or "", why)
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if kind == "map":
        if not keys:
            why = "must not be empty if x-kubernetes-list-type is map"
            errors.required(f"{path}.x-kubernetes-list-map-keys", why)
        if schema.get("items") is None:
            errors.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        known = (schema.get("items") or {}).get("properties") or {}
        for key in keys:
            if key not in known:
                why = "entries must all be names of item properties"
                errors.invalid(f"{path}.x-kubernetes-list-map-keys", list(keys), why)
    elif keys:
        why = "must not be used if x-kubernetes-list-type is not map"
        errors.forbidden(f"{path}.x-kubernetes-list-map-keys", why)


def pattern_error(pattern: str) -> str:
    """What is wrong with a regular expression; empty if nothing is."""
    try:
        compiled_pattern(pattern)
    except ValueError as error:
        return str(error)
    return ""


def update(new: Json, old: Json) -> Errors:
    errors = Errors(
        error
        for error in create(new)
        if not error.field.startswith(
            ("status.storedVersions", f"metadata.annotations[{API_APPROVED}]")
        )
    )
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    immutable(spec.get("group"), before.get("group"), "spec.group", errors)
    established = any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in (old.get("status") or {}).get("conditions") or ()
    )
    if established:
        immutable(spec.get("scope"), before.get("scope"), "spec.scope", errors)
        kind = (spec.get("names") or {}).get("kind")
        previous = (before.get("names") or {}).get("kind")
        immutable(kind, previous, "spec.names.kind", errors)
    stored = (old.get("status") or {}).get("storedVersions") or ()
    known = {version.get("name") for version in spec.get("versions") or ()}
    for position, version in enumerate(stored):
        if version not in known:
            where = f"status.storedVersions[{position}]"
            errors.invalid(
                where, version, "missing from spec.versions; is not found in spec.versions"
            )
    return errors
