"""Turns a CustomResourceDefinition into entries of the kind table, like those of built-in kinds
(local-cluster 4).

A schema is compiled when the first object of its kind is written: a definition is served anew
whenever its status changes, and compiling a large schema takes milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json, without_nulls
from hekla.local.apiserver.objects.columns import AGE, NAME, custom_column
from hekla.local.apiserver.objects.custom import rules, schema, schema_errors, schema_rules
from hekla.local.apiserver.objects.encoding import documents, protobuf, shapes, typecheck
from hekla.local.apiserver.objects.encoding.decode import (
    HEADER,
    JSON_TYPES,
    YAML_TYPES,
    summary,
    unsupported_media_type,
)
from hekla.local.apiserver.objects.encoding.go_text import printed, type_of
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import (
    Column,
    Decoded,
    FieldError,
    Kind,
    KnownSpec,
    PartialUpdates,
    Strategy,
    Subresource,
    do_nothing,
)
from hekla.local.apiserver.objects.scale import Scale
from hekla.local.apiserver.objects.strategies import keep_status
from hekla.local.apiserver.objects.texts import of_schema
from hekla.local.apiserver.objects.validation.metadata import metadata as check_metadata

VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""In the order in which discovery lists them for custom kinds."""
_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def kinds_of(definition: Json) -> list[Kind]:
    """The kinds that a definition serves, one for each version."""
    spec = definition["spec"]
    versions = spec.get("versions") or ()
    stored = next((version["name"] for version in versions if version.get("storage")), "")
    return [_kind(spec, version, stored) for version in versions if version.get("served")]


def _kind(spec: Json, version: Json, stored: str) -> Kind:
    names = spec["names"]
    group, name, kind = spec["group"], version["name"], names["kind"]
    described = (version.get("schema") or {}).get("openAPIV3Schema") or _ANYTHING
    subresources = version.get("subresources") or {}
    served: dict[str, Subresource] = {}
    scale = None
    if subresources.get("status") is not None:
        served["status"] = Subresource()
    if subresources.get("scale"):
        served["scale"] = Subresource(group="autoscaling", version="v1", kind="Scale")
        scale = _scale(subresources["scale"])
    behaviour = _SchemaStrategy(group, name, kind, described, scale)
    has_status = "status" in served
    return Kind(
        group=group,
        version=name,
        kind=kind,
        plural=names["plural"],
        namespaced=spec.get("scope") == "Namespaced",
        singular=names.get("singular") or kind.lower(),
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        verbs=VERBS,
        subresources=served,
        columns=_columns(version.get("additionalPrinterColumns") or ()),
        selectable=dict(
            _selectable(field["jsonPath"]) for field in version.get("selectableFields") or ()
        ),
        strategy=Strategy(
            default=behaviour.default,
            default_decoded=behaviour.fill,
            prepare_create=_drop_status if has_status else do_nothing,
            validate_create=behaviour.validate_create,
            prepare_update=keep_status if has_status else do_nothing,
            validate_update=behaviour.validate_update,
            prepare_status=_only_status,
            validate_status=behaviour.validate_status,
            generation=True,
            unconditional_update=False,
            partial_updates=PartialUpdates(
                behaviour.may_stay,
                behaviour.fill,
                behaviour.partial_update_fits,
                texts=behaviour.texts,
            ),
            known_spec=KnownSpec(behaviour.spec_decides, behaviour.validate_metadata),
        ),
        decode=behaviour.decode,
        read_again=behaviour.read_again,
        custom=True,
        stored_version=stored,
        warning=_warning(group, version, kind),
        scale=scale,
        schema=described,
    )


def _warning(group: str, version: Json, kind: str) -> str:
    if not version.get("deprecated"):
        return ""
    return version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated"


def _scale(paths: Json) -> Scale:
    selector = paths.get("labelSelectorPath")
    return Scale(
        _path(paths["specReplicasPath"]),
        _path(paths["statusReplicasPath"]),
        _path(selector) if selector else None,
        True,
    )


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _selectable(text: str) -> tuple[str, tuple[str, ...]]:
    return text.lstrip("."), _path(text)


def _columns(declared: Sequence[Json]) -> tuple[Column, ...]:
    if not declared:
        return (NAME, AGE)
    return (NAME, *(custom_column(column) for column in declared))


def _drop_status(tree: Json) -> None:
    tree.pop("status", None)


def _only_status(new: Json, old: Json) -> None:
    """The status endpoint of a custom kind changes status alone, not even metadata."""
    status = new.get("status")
    meta = new.get("metadata") or {}
    new.clear()
    new.update(old)
    new["metadata"] = dict(old["metadata"])
    if "managedFields" in meta:
        new["metadata"]["managedFields"] = meta["managedFields"]
    new.pop("status", None)
    if status is not None:
        new["status"] = status


class _SchemaStrategy:
    """Decoding, defaulting and validation of one version of a custom kind, compiled on first use."""

    def __init__(
        self, group: str, version: str, kind: str, described: Json, scale: Scale | None = None
    ) -> None:
        self._scale = scale
        self._api_version = f"{group}/{version}"
        self._version = version
        self._kind = kind
        self._schema = described
        self._compiled = False
        self._prune: schema.Pruner | None = None
        self._default: schema.Defaulter | None = None
        self._check: schema.Checker | None = None
        self._texts: re.Pattern[bytes] | None = None
        self._check_change: schema.ChangeChecker | None = None
        self._whole: frozenset[str] | None = None
        """Top-level fields that no update can leave out; None: all of them."""
        self._has_rules = False
        self._evaluate: schema_rules.Evaluator | None = None

    def _compile(self) -> None:
        self._prune = schema.pruner(self._schema, root=True)
        self._default = schema.defaulter(self._schema, root=True)
        self._check = schema.checker(self._schema, root=True)
        self._check_change = schema.change_checker(self._schema)
        self._has_rules = schema.has_rules(self._schema)
        identity = {"apiVersion": self._api_version, "kind": self._kind}
        self._evaluate = schema_rules.evaluator(self._schema, identity) if self._has_rules else None
        if self._check is None or self._check_change is not None:
            self._whole = schema.fields_always_needed(self._schema)
        if not self._has_rules:
            self._texts = of_schema(self._schema.get("properties", {}).get("status"))
        self._compiled = True

    # --- strategy ---------------------------------------------------------------------------------

    def default(self, tree: Json) -> None:
        """Prune fields that the schema does not declare, then fill in defaults."""
        if not self._compiled:
            self._compile()
        if self._prune is not None:
            self._prune(tree)
        if self._default is not None:
            self._default(tree)

    def validate_create(self, tree: Json) -> list[FieldError]:
        return self._validate(tree, rules.NO_OLD_VALUE) + self._scale_errors(tree, "spec")

    def validate_update(self, new: Json, old: Json) -> list[FieldError]:
        return self._validate(new, old) + self._scale_errors(new, "spec")

    def validate_status(self, new: Json, old: Json) -> list[FieldError]:
        """As `validate_update`, with paths relative to status in the messages."""
        errors = [
            error._replace(
                text=error.text.replace(
                    f"{error.field} in body", f"{error.field.removeprefix('status.')} in body"
                )
            )
            for error in self._validate(new, old)
        ]
        return errors + self._scale_errors(new, "status")

    def _scale_errors(self, tree: Json, part: str) -> list[FieldError]:
        """Why the scale subresource could not show this object: its replicas are not an integer in
        range."""
        if self._scale is None:
            return []
        path = self._scale.spec_replicas if part == "spec" else self._scale.status_replicas
        value: Any = tree
        for step in path:
            if not isinstance(value, dict) or step not in value:
                return []
            value = value[step]
        where = "." + ".".join(path)
        if isinstance(value, bool) or not isinstance(value, int):
            why = f"{where} accessor error: {printed(value)} is of the type {type_of(value)}, expected int64"
            return [invalid(where, 0, why)]
        if value < 0:
            return [invalid(where, value, "should be a non-negative integer")]
        if value > 2**31 - 1:
            return [invalid(where, value, f"should be less than or equal to {2**31 - 1}")]
        return []

    def _validate(self, tree: Json, old: Any) -> list[FieldError]:
        if not self._compiled:
            self._compile()
        errors = check_metadata(tree, bare_finalizers=True)
        if not self._fits(tree, old):
            wrong = schema_errors.explain(self._schema, tree, old)
            errors += wrong
            if wrong:
                return [*errors, schema_errors.UNCHECKED_RULES] if self._has_rules else errors
        if self._evaluate is not None:
            try:
                schema_rules.evaluate(self._evaluate, tree, old, errors)
            except RecursionError:
                errors.append(
                    FieldError(
                        "<nil>",
                        "FieldValueInvalid",
                        "Invalid value: the rules of this kind nest too deeply",
                    )
                )
        return errors

    def _fits(self, tree: Json, old: Any) -> bool:
        if self._check is None:
            return True
        if self._check_change is not None and old is not rules.NO_OLD_VALUE:
            return self._check_change(tree, old)
        return self._check(tree)

    def fill(self, tree: Json) -> None:
        """Fill in defaults in a tree that was just decoded and so is pruned already."""
        if self._default is not None:
            self._default(tree)

    def spec_decides(self) -> bool:
        """Whether the result of a create depends on the spec alone, not on metadata."""
        if not self._compiled:
            self._compile()
        return not self._has_rules and schema.accepts_any_object(
            self._schema.get("properties", {}).get("metadata")
        )

    def texts(self) -> re.Pattern[bytes] | None:
        """See `PartialUpdates.texts`."""
        if not self._compiled:
            self._compile()
        return self._texts

    @staticmethod
    def validate_metadata(tree: Json) -> list[FieldError]:
        return check_metadata(tree, bare_finalizers=True)

    def may_stay(self, subresource: str, kept: Collection[str]) -> bool:
        """See `PartialUpdates.may_stay`."""
        if not self._compiled:
            self._compile()
        return self._whole is not None and self._whole.isdisjoint(kept)

    def partial_update_fits(
        self, new: Json, old: Json, kept: Collection[str], subresource: str
    ) -> bool:
        """See `PartialUpdates.fits`."""
        if new["metadata"] != old["metadata"] and check_metadata(new, bare_finalizers=True):
            return False
        if self._check_change is not None and not self._check_change(new, old, kept):
            return False
        if self._evaluate is None:
            return True
        errors = Errors()
        schema_rules.evaluate(self._evaluate, new, old, errors)
        return not errors

    # --- decoding ---------------------------------------------------------------------------------

    def decode(self, body: bytes, media_type: str, validation: str) -> Decoded:
        """Raises BadBody."""
        if not self._compiled:
            self._compile()
        texts: list[str] = []
        if media_type in JSON_TYPES:
            tree = self._json(body, validation, texts)
        elif media_type in YAML_TYPES:
            document = documents.yaml_document(body)
            tree = document.tree
            if document.duplicates:
                texts.append("yaml: unmarshal errors:\n  " + "\n  ".join(document.duplicates))
        elif media_type == protobuf.MEDIA_TYPE:
            raise unsupported_media_type(("application/json", "application/yaml"))
        else:
            raise unsupported_media_type(("application/json", "application/yaml"))
        self._check_kind(tree, body)
        return self._checked(tree, validation, texts)

    def read_again(self, tree: Json, validation: str) -> Decoded:
        """Decode what a patch made of an object that was decoded before; its apiVersion and kind
        are known to be right. Raises BadBody."""
        if not self._compiled:
            self._compile()
        return self._checked(tree, validation, [])

    def _checked(self, tree: Json, validation: str, texts: list[str]) -> Decoded:
        """Check metadata, and prune or report fields that the schema does not declare."""
        meta = tree.get("metadata")
        if meta is None:
            tree["metadata"] = {}
        else:
            tree["metadata"] = self._metadata(meta, texts)
        if self._prune is not None:
            try:
                dropped = self._prune(tree)
            except RecursionError:
                raise BadBody("exceeded max depth") from None
            texts = [f'unknown field "{path.removeprefix(".")}"' for path in dropped] + texts
        if texts and validation == "Strict":
            raise BadBody(f"{self._error_context()}: strict decoding error: {', '.join(texts)}")
        return Decoded(tree, () if validation == "Ignore" else tuple(texts))

    def _json(self, body: bytes, validation: str, texts: list[str]) -> Json:
        try:
            tree = documents.json_tree(body)
        except BadBody as error:
            raise self._unrecognized(str(error), body) from None
        if not isinstance(tree, dict):
            what = typecheck.type_name(tree)
            raise self._unrecognized(
                f"json: cannot unmarshal {what} into Go value of type {HEADER}", body
            )
        if validation != "Ignore" and documents.has_duplicates(body, tree):
            repeated: list[str] = []
            _repeated(documents.json_pairs(body), "", repeated)
            texts += [f'duplicate field "{path}"' for path in repeated]
        return tree

    def _check_kind(self, tree: Any, body: bytes) -> None:
        if not isinstance(tree, dict):
            raise BadBody(f"{self._error_context()}: the body is not an object")
        for name, shown in (("kind", "Kind"), ("apiVersion", "apiVersion")):
            value = tree.get(name)
            if value is not None and not isinstance(value, str):
                what = typecheck.type_name(value)
                raise BadBody(
                    f"{self._error_context()}: json: cannot unmarshal {what} into Go struct field .{name} of type string"
                )
            if not value and name == "kind":
                why = f"Object '{shown}' is missing in '{body[:2000].decode(errors='replace')}'"
                raise BadBody(
                    f"the object provided is unrecognized (must be of type {self._kind}): {why} ({summary(body)})"
                )
        if tree["kind"] != self._kind:
            raise BadBody(
                f'{tree["kind"]} in version "{(tree.get("apiVersion") or "").rpartition("/")[2]}" cannot be handled as a {self._kind}: '
                f"the kind in the data ({tree['kind']}) does not match the expected kind ({self._kind})"
            )
        if (tree.get("apiVersion") or "") != self._api_version:
            raise BadBody(
                f"the API version in the data ({tree.get('apiVersion') or ''}) does not match the expected API version "
                f"({self._api_version})"
            )

    def _unrecognized(self, why: str, body: bytes) -> BadBody:
        text = f"couldn't get version/kind; json parse error: {why}"
        return BadBody(
            f"the object provided is unrecognized (must be of type {self._kind}): {text} ({summary(body)})"
        )

    def _metadata(self, meta: Any, texts: list[str]) -> Json:
        """Check metadata as for every object; takes a few microseconds if it is valid."""
        shape = shapes.shape("meta.v1", "ObjectMeta")
        try:
            right: Json = msgspec.to_builtins(msgspec.convert(meta, shape))
            return without_nulls(right) if None in right.values() else right
        except (msgspec.MsgspecError, ValueError, RecursionError):
            findings = typecheck.Findings()
            try:
                checked = typecheck.check_metadata(meta, findings)
            except BadBody as error:
                raise BadBody(f"{self._error_context()}: {error}") from None
            texts += findings.texts()
            return checked

    def _error_context(self) -> str:
        return f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}'


def _repeated(tree: Any, path: str, repeated: list[str]) -> None:
    if isinstance(tree, documents.Pairs):
        seen: set[str] = set()
        for key, value in tree:
            where = f"{path}.{key}" if path else key
            if key in seen:
                repeated.append(where)
            seen.add(key)
            _repeated(value, where, repeated)
    elif isinstance(tree, list):
        for position, item in enumerate(tree):
            _repeated(item, f"{path}[{position}]", repeated)
