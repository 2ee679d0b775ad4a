"""Volumes whose files the kubelet writes: secrets, ConfigMaps, the downward API, tokens and
certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text.fielderrors import invalid
from hekla.api.text.fieldrules import Errors, Tree, check_annotations, selector
from hekla.api.text.syntax import dns_subdomain
from hekla.podrules import environment
from hekla.podrules.options import Options
from hekla.podrules.paths import unreserved
from hekla.podrules.signers import of_kubernetes, signer_name

OWN_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
LARGEST_MODE = 0o777
MODE = "must be a number between 0 and 0777 (octal), both inclusive"
SHORTEST_TOKEN, LONGEST_TOKEN, LASTS = 10 * 60, 1 << 32, 3600
"""Seconds; the last where nothing is said."""
KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
SHORTEST_CERTIFICATE, LONGEST_CERTIFICATE, LONGEST_OF_KUBERNETES = 3600, 91 * 24 * 3600, 24 * 3600
CERTIFICATE_FILES = ("credentialBundlePath", "keyPath", "certificateChainPath")


def secret(body: Tree, path: str, options: Options, found: Errors) -> None:
    _named(body, "secretName", path, found)


def config_map(body: Tree, path: str, options: Options, found: Errors) -> None:
    _named(body, "name", path, found)


def _named(body: Tree, name: str, path: str, found: Errors) -> None:
    if not body.get(name):
        found.required(f"{path}.{name}")
    mode(body.get("defaultMode"), f"{path}.defaultMode", found)
    _items(body.get("items") or (), f"{path}.items", found)


def mode(value: int | None, path: str, found: Errors) -> None:
    if value is not None and not 0 <= value <= LARGEST_MODE:
        found.invalid(path, value, MODE)


def _items(items: Iterable[Tree], path: str, found: Errors) -> None:
    for position, item in enumerate(items):
        where = f"{path}[{position}]"
        if not item.get("key"):
            found.required(f"{where}.key")
        _file(item.get("path") or "", f"{where}.path", found)
        mode(item.get("mode"), f"{where}.mode", found)


def _file(text: str, path: str, found: Errors) -> None:
    if not text:
        found.required(path)
    else:
        unreserved(text, path, found)


def downward(body: Tree, path: str, options: Options, found: Errors) -> None:
    mode(body.get("defaultMode"), f"{path}.defaultMode", found)
    _downward_items(body.get("items") or (), path, found)


def _downward_items(items: Iterable[Tree], path: str, found: Errors) -> None:
    """Check downward API items.  Kubernetes names the volume in these errors, not the item."""
    for item in items:
        _file(item.get("path") or "", f"{path}.path", found)
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            environment.own_field(field, OWN_FIELDS, f"{path}.fieldRef", found)
            if resource is not None:
                why = "fieldRef and resourceFieldRef can not be specified simultaneously"
                found.invalid(path, "resource", why)
        elif resource is not None:
            environment.resource(resource, f"{path}.resourceFieldRef", found, in_volume=True)
        else:
            found.required(path, "one of fieldRef and resourceFieldRef is required")
        mode(item.get("mode"), f"{path}.mode", found)


class _Files:
    """The paths of the files in one volume, which must differ."""

    def __init__(self, path: str, found: Errors) -> None:
        self.path = path
        self.found = found
        self.taken: set[str] = set()

    def add(self, text: str, shown: str) -> None:
        if text in self.taken:
            self.found.append(invalid(self.path, shown, "conflicting duplicate paths"))
        self.taken.add(text)


MOST_KNOWN = 256
_encode = msgspec.json.Encoder().encode
_known: BoundedCache[tuple[bytes, bool], bool] = BoundedCache(MOST_KNOWN)
"""Projections that nothing was wrong with: nearly every pod has that of its account's token."""


def sources(body: Tree, path: str, options: Options, found: Errors) -> None:
    key, before = (_encode(body), options.features), len(found)
    if key in _known:
        return
    _sources(body, path, options, found)
    if len(found) == before:
        _known[key] = True


def _sources(body: Tree, path: str, options: Options, found: Errors) -> None:
    mode(body.get("defaultMode"), f"{path}.defaultMode", found)
    files = _Files(path, found)
    for position, source in enumerate(body.get("sources") or ()):
        where = f"{path}.sources[{position}]"
        given = [kind for kind in source if kind in _ORDER and source[kind] is not None]
        if options.features:
            given = [kind for kind in given if kind in _SERVED]
        if len(given) > 1:
            given.sort(key=_ORDER.__getitem__)
        for kind in given:
            _PROJECTIONS[kind](source[kind], f"{where}.{kind}", files, found)
        if len(given) > 1:
            found.forbidden(where, "may not specify more than 1 volume type per source")


def _keys(body: Tree, path: str, files: _Files, found: Errors) -> None:
    name, items = body.get("name") or "", body.get("items") or ()
    if not name:
        found.required(f"{path}.name")
    _items(items, f"{path}.items", found)
    for item in items:
        if item.get("path"):
            files.add(item["path"], name)


def _of_the_pod(body: Tree, path: str, files: _Files, found: Errors) -> None:
    items = body.get("items") or ()
    _downward_items(items, path, found)
    for item in items:
        if item.get("path"):
            files.add(item["path"], item["path"])


def _token(body: Tree, path: str, files: _Files, found: Errors) -> None:
    given = body.get("expirationSeconds")
    lasts = LASTS if given is None else given
    if lasts < SHORTEST_TOKEN:
        found.invalid(
            f"{path}.expirationSeconds", lasts, "may not specify a duration less than 10 minutes"
        )
    if lasts > LONGEST_TOKEN:
        why = "may not specify a duration larger than 2^32 seconds"
        found.invalid(f"{path}.expirationSeconds", lasts, why)
    _file(body.get("path") or "", f"{files.path}.path", found)


def _trust(body: Tree, path: str, files: _Files, found: Errors) -> None:
    """Check a ClusterTrustBundle projection, by name or by signer."""
    name, signer = body.get("name"), body.get("signerName")
    if name is not None and signer is not None:
        found.invalid(path, body, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            found.required(f"{path}.name", "must be a valid object name")
        found += [
            invalid(f"{path}.name", name, f"not a valid clustertrustbundlename: {reason}")
            for reason in _bundle_reasons(name)
        ]
        if body.get("labelSelector") is not None:
            why = "labelSelector must be unset if name is specified"
            found.invalid(f"{path}.labelSelector", body["labelSelector"], why)
    elif signer is not None:
        if not signer:
            found.required(f"{path}.signerName", "must be a valid signer name")
        signer_name(signer, f"{path}.signerName", found)
        selector(body.get("labelSelector"), f"{path}.labelSelector", found)
    else:
        found.required(path, "either name or signerName must be specified")
    _file(body.get("path") or "", f"{path}.path", found)
    files.add(body.get("path") or "", body.get("path") or "")


def _bundle_reasons(name: str) -> tuple[str, ...]:
    """The reasons against a bundle name: the part behind the last colon, after the signer."""
    return dns_subdomain(name.rpartition(":")[2])


def _certificate(body: Tree, path: str, files: _Files, found: Errors) -> None:
    """Check a pod certificate projection."""
    signer, lasts = body.get("signerName") or "", body.get("maxExpirationSeconds")
    signer_name(signer, f"{path}.signerName", found)
    if body.get("userAnnotations") is not None:
        check_annotations(body["userAnnotations"], f"{path}.userAnnotations", found)
    if body.get("keyType") not in KEY_TYPES:
        found.not_supported(f"{path}.keyType", body.get("keyType") or "", KEY_TYPES, plain=True)
    longest = LONGEST_OF_KUBERNETES if of_kubernetes(signer) else LONGEST_CERTIFICATE
    if lasts is not None and lasts < SHORTEST_CERTIFICATE:
        why = f"if provided, maxExpirationSeconds must be >= {SHORTEST_CERTIFICATE}"
        found.invalid(f"{path}.maxExpirationSeconds", lasts, why)
    if lasts is not None and lasts > longest:
        why = f"if provided, maxExpirationSeconds must be <= {longest}"
        found.invalid(f"{path}.maxExpirationSeconds", lasts, why)
    given = [field for field in CERTIFICATE_FILES if body.get(field)]
    for field in given:
        unreserved(body[field], f"{path}.{field}", found)
        files.add(body[field], body[field])
    if not given:
        found.required(
            path, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        )


_PROJECTIONS: dict[str, Callable[[Tree, str, _Files, Errors], None]] = {
    "secret": _keys,
    "configMap": _keys,
    "downwardAPI": _of_the_pod,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust,
    "podCertificate": _certificate,
}
_ORDER = {kind: position for position, kind in enumerate(_PROJECTIONS)}
_SERVED = frozenset(("secret", "configMap", "downwardAPI", "serviceAccountToken"))
"""Those that a server takes; the others are features that are off."""
