"""Volume claims: those of users, and those that are created for a pod from a template."""

from __future__ import annotations

from collections.abc import Sequence

from hekla.api.text.fielderrors import forbidden
from hekla.api.text.fieldrules import Errors, Tree, check_annotations, labels, one_of, selector
from hekla.api.text.quantity import ZERO, Quantity
from hekla.api.text.syntax import dns_subdomain

MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
OF_TEMPLATES = frozenset({"annotations", "labels", "creationTimestamp"})
"""What metadata may say there."""


def claim_template(template: Tree, path: str, found: Errors) -> None:
    metadata = template.get("metadata") or {}
    check_annotations(metadata.get("annotations"), f"{path}.metadata.annotations", found)
    labels(metadata.get("labels"), f"{path}.metadata.labels", found)
    found += [
        forbidden(f"{path}.metadata.{name}", "cannot be set")
        for name, value in metadata.items()
        if name not in OF_TEMPLATES and value not in (None, "", [], {}, 0)
    ]
    claim_spec(template.get("spec") or {}, f"{path}.spec", found)


def claim_spec(spec: Tree, path: str, found: Errors) -> None:
    if not spec.get("accessModes"):
        found.required(f"{path}.accessModes", "at least 1 access mode is required")
    selector(spec.get("selector"), f"{path}.selector", found)
    access_modes(spec.get("accessModes"), f"{path}.accessModes", found)
    requests = (spec.get("resources") or {}).get("requests") or {}
    where = f"{path}.resources[storage]"
    if "storage" not in requests:
        found.required(where)
    elif Quantity.parse(requests["storage"]) <= ZERO:
        found.invalid(where, str(Quantity.parse(requests["storage"])), "must be greater than zero")
    _class(spec, "storageClassName", path, found)
    if spec.get("volumeMode") is not None:
        one_of(spec["volumeMode"], ("Block", "Filesystem"), f"{path}.volumeMode", found, known=True)
    for source in ("dataSource", "dataSourceRef"):
        if spec.get(source) is not None:
            _data_source(spec[source], f"{path}.{source}", found)
    _one_source(spec, path, found)
    _class(spec, "volumeAttributesClassName", path, found)


def _class(spec: Tree, name: str, path: str, found: Errors) -> None:
    if spec.get(name):
        found.malformed(f"{path}.{name}", spec[name], dns_subdomain(spec[name]))


def access_modes(values: Sequence[str] | None, path: str, found: Errors) -> None:
    for mode in values or ():
        if mode not in MODES:
            found.not_supported(path, mode, MODES)
    known = {mode for mode in values or () if mode in MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        found.forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _data_source(source: Tree, path: str, found: Errors) -> None:
    for name in ("name", "kind"):
        if not source.get(name):
            found.required(f"{path}.{name}")
    group = source.get("apiGroup") or ""
    if not group and source.get("kind") != "PersistentVolumeClaim":
        why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        found.invalid(path, source.get("kind", ""), why)
    if group:
        found.malformed(f"{path}.apiGroup", group, dns_subdomain(group))


def _one_source(spec: Tree, path: str, found: Errors) -> None:
    """`dataSource` must equal `dataSourceRef` where both are set."""
    older, newer = spec.get("dataSource"), spec.get("dataSourceRef")
    if older is None or newer is None:
        return
    if any(
        (older.get(name) or "") != (newer.get(name) or "") for name in ("apiGroup", "kind", "name")
    ):
        found.invalid(path, f"{path}.dataSource", "must match dataSourceRef")
