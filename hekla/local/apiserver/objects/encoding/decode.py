"""From a request body to the tree of a built-in kind: decodes JSON, YAML and protobuf, checks types
and normalises the tree.

A valid JSON body takes a path that is all in C: msgspec checks it against the kind's struct, and
drops what Kubernetes drops. Any other body (a wrong type, an unknown field, a repeated key) is
decoded again by `typecheck`, which finds the message. Reference: local-cluster 1.4, 1.5, 2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from hekla.api.trees import Json, without_nulls
from hekla.local.apiserver.objects.encoding import documents, fields, protobuf, shapes, typecheck
from hekla.local.apiserver.objects.encoding.go_text import quoted
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Decoded

Reader = Callable[[bytes, str, str], Decoded]

JSON_TYPES = frozenset({"", "application/json", "text/json"})
YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})

HEADER = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
"""The Go struct that Kubernetes decodes first to learn a body's kind; its errors name it."""
_FREE_FORM = frozenset({"RawExtension", "JSON"})
"""Types whose nulls are kept. FieldsV1 is another, but only managedFields hold it; bodies with them
are found by a search."""
_RECURSIVE = frozenset({"JSONSchemaProps"})


def unsupported_media_type(
    accepted: Sequence[str] = ("application/json", "application/yaml", protobuf.MEDIA_TYPE),
) -> BadBody:
    """The 415 error that names the accepted media types."""
    types = ", ".join(accepted)
    return BadBody(
        f"the body of the request was in an unknown format - accepted media types include: {types}",
        code=415,
        reason="UnsupportedMediaType",
    )


def reader(
    group: str, version: str, kind: str, also: Sequence[str] = (), any_version: bool = False
) -> Reader:
    """The function that decodes bodies of a kind.

    `also` lists further apiVersions that are decoded as this one (evictions of v1beta1);
    `any_version` accepts every apiVersion (DeleteOptions come with the group of their target).
    """
    return _Reader(group, version, kind, tuple(also), any_version).read


def readers(
    group: str, version: str, kind: str, also: Sequence[str]
) -> tuple[Reader, Callable[[Json, str], Decoded]]:
    """The function that decodes bodies of a kind, and the one that decodes patched trees again."""
    made = _Reader(group, version, kind, tuple(also), False)
    return made.read, made.read_again


@cache
def _options_reader(kind: str) -> Reader:
    return reader("meta.k8s.io", "v1", kind, any_version=True)


def options(body: bytes, media_type: str, kind: str) -> Json:
    """The tree of a DeleteOptions (or similar) body, which may carry the apiVersion of any group;
    {} if there is no body."""
    return _options_reader(kind)(body, media_type, "Ignore").tree if body else {}


class _Reader:
    """Decodes one kind; compiled when the first body comes."""

    def __init__(
        self, group: str, version: str, kind: str, also: tuple[str, ...], any_version: bool
    ) -> None:
        described = fields.root(group, version, kind)
        if described is None:
            raise LookupError(f"no field table describes {kind} of {group}/{version}")
        self._message = described
        self._api_version = f"{group}/{version}" if group else version
        self._version = version
        self._kind = kind
        self._also = also
        self._any_version = any_version
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._fix: shapes.Fixer | None = None
        self._free_form = False
        self._recursive = shapes.contains(described.section, described.name, _RECURSIVE)

    def _compile(self) -> msgspec.json.Decoder[Any]:
        section, name = self._message.section, self._message.name
        self._fix = shapes.quantities(section, name)
        self._free_form = shapes.contains(section, name, _FREE_FORM)
        self._decoder = msgspec.json.Decoder(shapes.shape(section, name))
        return self._decoder

    def read(self, body: bytes, media_type: str, validation: str) -> Decoded:
        """Raises BadBody."""
        if media_type in JSON_TYPES:
            return self._read_json(body, validation)
        if media_type == protobuf.MEDIA_TYPE:
            return self._read_protobuf(body)
        if media_type in YAML_TYPES:
            try:
                document = documents.yaml_document(body)
            except BadBody as error:
                raise self._unrecognized(
                    str(error).removeprefix("error converting YAML to JSON: "), body
                ) from None
            return self._typechecked(document.tree, validation, body, document.duplicates)
        raise unsupported_media_type()

    def read_again(self, tree: Json, validation: str) -> Decoded:
        """Decode the result of a patch; no key can be repeated in it. Raises BadBody."""
        return self._read_json(msgspec.json.encode(tree), validation, once=True)

    def _read_json(self, body: bytes, validation: str, once: bool = False) -> Decoded:
        if self._recursive:
            return self._typechecked(documents.json_pairs(body), validation, body)
        try:
            shaped = (self._decoder or self._compile()).decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError):
            return self._typechecked(self._pairs(body), validation, body)
        # The shape leaves out fields, which can only make the first check say yes too often.
        if (
            not once
            and validation != "Ignore"
            and documents.has_duplicates(body, shaped)
            and documents.has_duplicates(body, documents.json_tree(body))
        ):
            return self._typechecked(documents.json_pairs(body), validation, body)
        tree: Json = msgspec.to_builtins(shaped)
        if b"null" in body:
            if self._free_form or b"managedFields" in body:
                return self._typechecked(documents.json_pairs(body), validation, body)
            tree = without_nulls(tree)
        self._name_kind(tree, body)
        if self._fix is not None:
            self._with_kind_in_message(self._fix, tree)
        return Decoded(tree)

    def _read_protobuf(self, body: bytes) -> Decoded:
        try:
            envelope = protobuf.envelope(body)
        except BadBody as error:
            raise self._unrecognized(str(error), body) from None
        self._check_kind(envelope.api_version, envelope.kind, b"")
        tree = {"apiVersion": self._api_version, "kind": self._kind}
        tree.update(self._with_kind_in_message(protobuf.decode, envelope.raw, self._message))
        # What contains itself has no shape (and no quantities).
        if self._decoder is None and not self._recursive:
            self._compile()
        if self._fix is not None:
            self._with_kind_in_message(self._fix, tree)
        return Decoded(tree)

    def _typechecked(
        self, tree: Any, validation: str, body: bytes, yaml_duplicates: Sequence[str] = ()
    ) -> Decoded:
        if tree is None:
            tree = {}
        if not isinstance(tree, (dict, documents.Pairs)):
            self._refuse_non_object(tree, body)
        named = dict(tree)
        for name in ("apiVersion", "kind"):
            if named.get(name) is not None and not isinstance(named[name], str):
                what = typecheck.type_name(named[name])
                message = f"couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go struct field "
                raise self._unrecognized(f"{message}.{name} of type string", body)
        self._check_kind(named.get("apiVersion") or "", named.get("kind") or "", body)
        findings = typecheck.Findings()
        result = {"apiVersion": self._api_version, "kind": self._kind}
        result.update(self._with_kind_in_message(typecheck.check, tree, self._message, findings))
        result["apiVersion"], result["kind"] = self._api_version, self._kind
        texts = findings.texts()
        if yaml_duplicates:
            texts.append("yaml: unmarshal errors:\n  " + "\n  ".join(yaml_duplicates))
        if texts and validation == "Strict":
            raise self._bad_request("strict decoding error: " + ", ".join(texts))
        return Decoded(result, () if validation == "Ignore" else tuple(texts))

    def _pairs(self, body: bytes) -> Any:
        try:
            return documents.json_pairs(body)
        except BadBody as error:
            raise self._unrecognized(
                f"couldn't get version/kind; json parse error: {error}", body
            ) from None

    def _name_kind(self, tree: Json, body: bytes) -> None:
        version, kind = tree.get("apiVersion"), tree.get("kind")
        if version == self._api_version and kind == self._kind:
            return
        self._check_kind(version or "", kind or "", body)
        rest = dict(tree)
        tree.clear()
        tree["apiVersion"], tree["kind"] = self._api_version, self._kind
        tree.update((key, value) for key, value in rest.items() if key not in tree)

    def _check_kind(self, api_version: str, kind: str, body: bytes) -> None:
        """A body may leave out its type, because the URL names it, but may not name another one."""
        if kind and kind != self._kind:
            named = api_version or self._api_version
            if not _registered(named, kind):
                raise self._unregistered(kind, named)
            why = f"converting (v1.{kind}) to (core.{self._kind}): unknown conversion"
            try:  # it is read as what it says that it is, before it turns out to be something else
                reader(*split_version(named), kind)(body, "application/json", "Ignore")
            except BadBody as error:
                why = str(error).partition(f"cannot be handled as a {kind}: ")[2] or why
            raise BadBody(
                f'{kind} in version "{named.rpartition("/")[2]}" cannot be handled as a {self._kind}: {why}'
            )
        if (
            api_version
            and api_version != self._api_version
            and api_version not in self._also
            and not self._any_version
        ):
            if not _registered(api_version, self._kind):
                raise self._unregistered(self._kind, api_version)
            raise BadBody(
                f"the API version in the data ({api_version}) does not match the expected API version ({self._api_version})"
            )

    def _unregistered(self, kind: str, api_version: str) -> BadBody:
        return BadBody(
            f"{kind} in version {quoted(api_version.rpartition('/')[2])} cannot be handled as a {self._kind}: "
            f'no kind {quoted(kind)} is registered for version {quoted(api_version)} in scheme "pkg/runtime/scheme.go:111"'
        )

    def _with_kind_in_message(self, read: Callable[..., Any], *arguments: Any) -> Any:
        """Call a decoder; if it raises, put the sentence that names the kind before its message."""
        try:
            return read(*arguments)
        except BadBody as error:
            if error.code != 400:
                raise
            raise self._bad_request(str(error)) from None

    def _bad_request(self, why: str) -> BadBody:
        return BadBody(
            f'{self._kind} in version "{self._version}" cannot be handled as a {self._kind}: {why}'
        )

    def _unrecognized(self, why: str, body: bytes) -> BadBody:
        return BadBody(
            f"the object provided is unrecognized (must be of type {self._kind}): {why} ({summary(body)})"
        )

    def _refuse_non_object(self, tree: Any, body: bytes) -> None:
        what = typecheck.type_name(tree) if tree is not None else "null"
        message = "couldn't get version/kind; json parse error: json: cannot unmarshal "
        raise self._unrecognized(f"{message}{what} into Go value of type {HEADER}", body)


def split_version(api_version: str) -> tuple[str, str]:
    """(group, version) of an apiVersion."""
    group, _, version = api_version.rpartition("/")
    return group, version


def _registered(api_version: str, kind: str) -> bool:
    """Whether a built-in kind has this name."""
    group, version = split_version(api_version)
    return (
        fields.section_of(group, version) in fields.sections()
        and fields.root(group, version, kind) is not None
    )


def summary(body: bytes) -> str:
    """The start of a body, as error messages quote it."""
    if not body:
        return "<empty>"
    if body[:1] == b"{":
        text = body[:30].decode(errors="replace")
        return text if len(body) <= 30 else text + " ..."
    return body[:30].hex() + (" ..." if len(body) > 30 else "")
