"""The rules of metadata, and rules that several kinds share (local-cluster 2.1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from hekla.api.text.fieldrules import Errors, check_annotations, label_key, labels, not_negative
from hekla.api.trees import Json
from hekla.local.apiserver.objects import names

_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def metadata(tree: Json, *, bare_finalizers: bool = False) -> Errors:
    """What is wrong with an object's metadata, apart from its name.

    `bare_finalizers`: CustomResourceDefinitions and custom objects may have finalizers without a
    prefix, because the definitions' own cleanup finalizer has none.
    """
    errors = Errors()
    meta = tree.get("metadata")
    if not meta:
        return errors
    if "labels" in meta:
        labels(meta["labels"], "metadata.labels", errors)
    if "annotations" in meta:
        check_annotations(meta["annotations"], "metadata.annotations", errors)
    if "ownerReferences" in meta:
        _owners(meta["ownerReferences"], errors)
    if "finalizers" in meta:
        _finalizers(meta["finalizers"] or [], bare_finalizers, errors)
    if meta.get("generateName"):
        prefix = meta["generateName"].rstrip("-.")
        errors.malformed(
            "metadata.generateName", meta["generateName"], names.dns_subdomain(prefix or "-")
        )
    return errors


def _finalizers(finalizers: list[str], bare: bool, errors: Errors) -> None:
    for finalizer in finalizers:
        errors.malformed("metadata.finalizers", finalizer, label_key(finalizer))
    for position, finalizer in enumerate(finalizers):
        if not bare and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            errors.invalid(f"metadata.finalizers[{position}]", finalizer, why)


def finalizer_names(finalizers: Sequence[str], path: str) -> Errors:
    """A finalizer has a domain prefix, or is one of Kubernetes' own."""
    errors = Errors()
    for position, finalizer in enumerate(finalizers):
        errors.malformed(f"{path}[{position}]", finalizer, label_key(finalizer))
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            errors.invalid(f"{path}[{position}]", finalizer, why)
    return errors


def _owners(references: list[Json] | None, errors: Errors) -> None:
    controller = ""
    path = "metadata.ownerReferences"
    for owner in references or ():
        version = owner.get("apiVersion", "")
        if not version.rpartition("/")[2]:
            errors.invalid(f"{path}.apiVersion", version, "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                errors.invalid(f"{path}.{name}", owner.get(name, ""), "must not be empty")
        if owner.get("kind") == "Event" and version == "v1":
            errors.invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")
        if owner.get("controller"):
            shown = f"{owner.get('kind')}/{owner.get('name')}"
            if controller:
                text = 'Only one reference can have Controller set to true. Found "true" in references for '
                errors.invalid(
                    "metadata.ownerReferences", references, f"{text}{controller} and {shown}"
                )
            controller = shown


def matches(value: Json | None, wanted: Json | None) -> bool:
    """Whether a LabelSelector selects these labels."""
    value, wanted = value or {}, wanted or {}
    for key, text in (value.get("matchLabels") or {}).items():
        if wanted.get(key) != text:
            return False
    for term in value.get("matchExpressions") or ():
        key, operator, values = term.get("key"), term.get("operator"), term.get("values") or ()
        if operator == "In" and wanted.get(key) not in values:
            return False
        if operator == "NotIn" and key in wanted and wanted[key] in values:
            return False
        if operator == "Exists" and key not in wanted:
            return False
        if operator == "DoesNotExist" and key in wanted:
            return False
    return True


def counts(status: Json, names: Sequence[str], errors: Errors, path: str = "status") -> None:
    """The numbers in a status, none of which may be negative."""
    for name in names:
        not_negative(status.get(name), f"{path}.{name}", errors)


def immutable(new: Any, old: Any, path: str, errors: Errors) -> None:
    if new != old:
        errors.invalid(path, new, "field is immutable")


def fixed_text(new: Json, old: Json, name: str, path: str, errors: Errors) -> None:
    """A text field that never changes; an absent field counts as empty."""
    immutable(new.get(name) or "", old.get(name) or "", path, errors)


def with_fixed(
    check: Callable[[Json], Errors], *fields: str, texts: Sequence[str] = ()
) -> Callable[[Json, Json], Errors]:
    """The rules of updates of a kind: those of `check`, and that these fields never change. They
    are at the top or one level below it; one of `texts` counts as empty when it is absent."""

    def update(new: Json, old: Json) -> Errors:
        errors = check(new)
        for path in fields:
            part, _, name = path.rpartition(".")
            after, before = new, old
            if part:
                after, before = new.get(part) or {}, old.get(part) or {}
            if path in texts:
                fixed_text(after, before, name, path, errors)
            else:
                immutable(after.get(name), before.get(name), path, errors)
        return errors

    return update


def status_counts(*names: str) -> Callable[[Json, Json], Errors]:
    """The rules of status updates of a kind whose status is checked for negative numbers alone."""

    def status(new: Json, old: Json) -> Errors:
        errors = metadata(new)
        counts(new.get("status") or {}, names, errors)
        return errors

    return status


def percent(value: Any) -> int:
    """The number in an IntOrString: 25 for both 25 and "25%", 0 for any other text."""
    text = value.removesuffix("%") if isinstance(value, str) else value
    return int(text) if not isinstance(text, str) or re.fullmatch("[0-9]+", text) else 0


def at_most_all(value: Any, path: str, errors: Errors) -> None:
    if isinstance(value, str) and re.fullmatch("[0-9]+%", value) and percent(value) > 100:
        errors.invalid(path, value, "must not be greater than 100%")


def int_or_percent(value: Any, path: str, errors: Errors) -> None:
    if isinstance(value, str):
        digits = value.removesuffix("%")
        if digits == value or not digits.isascii() or not digits.isdigit():
            why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            errors.invalid(path, value, f"{why}regex used for validation is '[0-9]+%')")
    elif value is not None:
        not_negative(value, path, errors)
