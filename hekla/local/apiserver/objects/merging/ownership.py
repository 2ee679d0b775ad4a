"""Who owns which fields of an object: what an update takes over, and what an apply takes, keeps,
gives up or fights about.

Pure: objects and sets in, objects and sets out.  How ownership is kept beside an object is the
business of `apiserver/storage/managed_fields.py`.
Reference: local-cluster 2.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.apiserver.objects.merging import fieldsets, merging
from hekla.local.apiserver.objects.merging.fieldsets import Tree
from hekla.local.apiserver.objects.merging.topology import Node

APPLY, UPDATE = "Apply", "Update"
MOST_UPDATERS = 10
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"

SERVER_SET: Tree = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {}
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
                "resourceVersion",
            )
        },
    },
}  # fmt: skip
"""What nobody owns: the type and what the server sets itself."""


class Owner(NamedTuple):
    """An owner's name.  All that an applier applied is one entry whatever the version; an updater
    has one a version."""

    manager: str
    operation: str
    subresource: str = ""
    version: str = ""
    """Empty for appliers."""


class Share(NamedTuple):
    """What an owner owns, in the field names of a version, and when that changed last."""

    version: str
    fields: Tree
    time: int
    """Seconds since the epoch; 0 where a client wrote none."""


Shares = dict[Owner, Share]


class Conflict(NamedTuple):
    owner: Owner
    path: fieldsets.Path


class Conflicts(Exception):
    """An apply would change what others own."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__(f"{len(found)} conflicts")
        self.found = found


Converter = Callable[[str, Json], tuple[Node, Json] | None]
"""(apiVersion, object in the request's version) -> that version's node and the object in it; None
for a version that is gone."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a write comes in: the kind's shape, its version, and what that endpoint does not
    change."""

    node: Node
    version: str
    without: frozenset[str] = frozenset()
    """Fields at the top that this endpoint resets."""
    convert: Converter = lambda version, tree: None
    metadata: tuple[str, ...] = ()
    """The same within metadata."""

    def at(self, version: str, tree: Json) -> tuple[Node, Json] | None:
        return (self.node, tree) if version == self.version else self.convert(version, tree)


# --- the wire form --------------------------------------------------------------------------------


def order_of(owner: Owner, share: Share) -> tuple[str, int, str, str, str]:
    """Appliers first, then by time."""
    return owner.operation, share.time, owner.manager, share.version, owner.subresource


def from_wire(entries: Any) -> Shares | None:
    """What managedFields say; None for what cannot be read."""
    if not isinstance(entries, list):
        return None
    found: Shares = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        operation, version = entry.get("operation"), entry.get("apiVersion")
        if operation not in (APPLY, UPDATE) or not version or entry.get("fieldsType") != "FieldsV1":
            return None
        owner = Owner(
            entry.get("manager") or "",
            operation,
            entry.get("subresource") or "",
            "" if operation == APPLY else version,
        )
        try:
            found[owner] = Share(
                version, fieldsets.parse(entry.get("fieldsV1") or {}), seconds(entry.get("time"))
            )
        except fieldsets.BadFields:
            return None
    return found


def is_reset(entries: Any) -> bool:
    """Whether a client asks to forget all owners: an empty list, or one empty entry."""
    return entries in ([], [{}])


def seconds(text: Any) -> int:
    try:
        return max(int(instant(text)), 0)
    except (TypeError, ValueError):
        return 0


# --- updates --------------------------------------------------------------------------------------


def updated(scope: Scope, old: Json, new: Json, shares: Shares, owner: Owner, now: int) -> Shares:
    """The shares after an update: its owner has what it changed, nobody else has."""
    difference = merging.compare(scope.node, old, new, without=scope.without)
    return updated_by(scope, old, new, shares, owner, now, difference)


def updated_by(
    scope: Scope,
    old: Json,
    new: Json,
    shares: Shares,
    owner: Owner,
    now: int,
    difference: merging.Difference,
) -> Shares:
    changed = fieldsets.from_paths((*difference.added, *difference.modified))
    left, _ = _taken(scope, old, new, shares, None, difference)
    own = fieldsets.difference(changed, SERVER_SET)
    if own:
        before = left.get(owner)
        left[owner] = Share(
            scope.version, fieldsets.union(own, before.fields) if before is not None else own, now
        )
    return capped(left)


def _taken(
    scope: Scope,
    old: Json,
    new: Json,
    shares: Shares,
    taker: Owner | None,
    difference: merging.Difference | None = None,
) -> tuple[Shares, list[Conflict]]:
    """The shares without what a change takes from others than the taker, and what it took that is
    there still."""
    versions: dict[str, tuple[Tree, Tree] | None] = {}

    def changes(version: str) -> tuple[Tree, Tree] | None:
        if version not in versions:
            found = difference
            if found is None or version != scope.version:
                before, after = scope.at(version, old), scope.at(version, new)
                if before is None or after is None:
                    versions[version] = None
                    return None
                found = merging.compare(before[0], before[1], after[1], without=scope.without)
            versions[version] = (
                fieldsets.from_paths((*found.added, *found.modified)),
                fieldsets.from_paths(found.removed),
            )
        return versions[version]

    left: Shares = {}
    conflicts: list[Conflict] = []
    for owner, share in shares.items():
        if owner == taker:
            left[owner] = share
            continue
        met = changes(share.version)
        if met is None:
            continue
        changed, removed = met
        fought = fieldsets.intersection(share.fields, changed)
        conflicts += [Conflict(owner, path) for path in fieldsets.paths(fought)]
        fields = (
            fieldsets.difference(fieldsets.difference(share.fields, fought), removed)
            if fought or removed
            else share.fields
        )
        if fields:
            left[owner] = share._replace(fields=fields)
    return left, conflicts


def capped(shares: Shares) -> Shares:
    """At most ten updaters: the oldest become one entry a version."""
    updaters = sorted(
        (owner for owner in shares if owner.operation == UPDATE),
        key=lambda owner: (shares[owner].time, _identifier(owner)),
    )
    if len(updaters) <= MOST_UPDATERS:
        return shares
    left = dict(shares)
    count = len(updaters)
    first: dict[str, Owner] = {}
    for owner in updaters:
        if count <= MOST_UPDATERS:
            break
        share = shares[owner]
        bucket = Owner(ANCIENT, UPDATE, "", share.version)
        if share.version not in first:
            first[share.version] = owner
            continue
        known = left.get(bucket) or left.pop(first[share.version])
        left.pop(owner, None)
        left[bucket] = Share(share.version, fieldsets.union(share.fields, known.fields), share.time)
        count -= 1
    return left


def _identifier(owner: Owner) -> str:
    parts = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": owner.version,
        "subresource": owner.subresource,
    }
    return json.dumps({name: value for name, value in parts.items() if value})


# --- applying -------------------------------------------------------------------------------------


def applied(
    scope: Scope,
    live: Json,
    configuration: Json,
    shares: Shares,
    owner: Owner,
    now: int,
    *,
    force: bool,
) -> tuple[Json, Shares]:
    """The object and the shares after an apply.  Raises Conflicts, and merging.Unmergeable for what
    does not fit."""
    if not shares and live["metadata"].get("uid"):
        # Nobody is known to own anything: what is there belongs to those before.
        shares = updated(
            scope,
            {},
            live,
            {},
            Owner(BEFORE_FIRST_APPLY, UPDATE, owner.subresource, scope.version),
            now,
        )
    try:
        result = _applied(scope, live, configuration, shares, owner, now, force)
    except Conflicts as conflicts:
        if owner.manager != KUBECTL:
            raise
        allowed = _allowed_by_last_applied(scope, live)
        found = [
            conflict
            for conflict in conflicts.found
            if allowed is None or not fieldsets.has(allowed, conflict.path)
        ]
        if found:
            raise Conflicts(found) from None
        result = _applied(scope, live, configuration, shares, owner, now, True)
    new, after = result
    if owner.manager == KUBECTL and ((new.get("metadata") or {}).get("annotations") or {}).get(
        LAST_APPLIED
    ):
        new = {
            **new,
            "metadata": {**new["metadata"], "annotations": {**new["metadata"]["annotations"]}},
        }
        new["metadata"]["annotations"][LAST_APPLIED] = _last_applied(configuration)
    return new, after


def _applied(
    scope: Scope,
    live: Json,
    configuration: Json,
    shares: Shares,
    owner: Owner,
    now: int,
    force: bool,
) -> tuple[Json, Shares]:
    merged = merging.merge(scope.node, live, configuration)
    before = shares.get(owner)
    fields = fieldsets.recursive_difference(
        merging.field_set(scope.node, configuration), {f"f:{name}": {} for name in scope.without}
    )
    held = {**shares, owner: Share(scope.version, fields, now)}
    new = _pruned(scope, merged, held, before) if before is not None and before.fields else merged
    left, conflicts = _taken(scope, live, new, held, owner)
    if conflicts and not force:
        raise Conflicts(conflicts)
    own = fieldsets.difference(fields, SERVER_SET)
    if own:
        # An apply that changes nothing has no time of its own.
        left[owner] = Share(
            scope.version, own, now if new != live else before.time if before is not None else 0
        )
    else:
        left.pop(owner, None)
    return new, left


def _pruned(scope: Scope, merged: Json, shares: Shares, before: Share) -> Json:
    """Without what the owner applied last time and nobody owns now."""
    at = scope.at(before.version, merged)
    if at is None or before.version != scope.version:
        return merged
    node = scope.node
    last = fieldsets.with_named(before.fields, node)
    pruned = merging.remove(node, merged, last)
    everything = fieldsets.with_named(merging.field_set(node, merged), node)
    for version in {share.version for share in shares.values()}:
        managed: Tree = {}
        for share in shares.values():
            if share.version == version:
                managed = fieldsets.union(managed, share.fields)
        if version != scope.version:
            pruned = _kept_in(scope, version, merged, pruned, managed)
            continue
        left = fieldsets.with_named(merging.field_set(node, pruned), node)
        kept = fieldsets.union(left, fieldsets.with_named(managed, node))
        pruned = merging.remove(node, merged, fieldsets.difference(everything, kept))
    left = fieldsets.with_named(merging.field_set(node, pruned), node)
    gone = fieldsets.intersection(fieldsets.difference(everything, left), last)
    return merging.remove(node, merged, gone)  # type: ignore[no-any-return]  # JSON


def _kept_in(scope: Scope, version: str, merged: Json, pruned: Json, managed: Tree) -> Json:
    """What owners in another version hold stays: said of the top fields, as two versions rarely
    name deeper ones alike."""
    found = scope.at(version, merged)
    if found is None:
        return pruned
    held = {key[2:] for key in managed}
    return {
        **pruned,
        **{name: value for name, value in merged.items() if name in held and name not in pruned},
    }


def _allowed_by_last_applied(scope: Scope, live: Json) -> Tree | None:
    """What client-side apply owned: the fields of its annotation that still are as it left them."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not text:
        return None
    try:
        last = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    if (
        not isinstance(last, dict)
        or last.get("apiVersion") != scope.version
        or merging.check(scope.node, last)
    ):
        return None
    difference = merging.compare(scope.node, last, live)
    changed = fieldsets.from_paths((*difference.added, *difference.modified, *difference.removed))
    return fieldsets.difference(merging.field_set(scope.node, last), changed)


def _last_applied(configuration: Json) -> str:
    metadata = dict(configuration.get("metadata") or {})
    annotations = {
        key: value
        for key, value in (metadata.pop("annotations", None) or {}).items()
        if key != LAST_APPLIED
    }
    if annotations:
        metadata["annotations"] = annotations
    return (
        json.dumps(
            {**configuration, "metadata": metadata},
            separators=(",", ":"),
            sort_keys=True,
            ensure_ascii=False,
        )
        + "\n"
    )


# --- the words ------------------------------------------------------------------------------------


def named(owner: Owner) -> str:
    """An owner as conflict messages name it."""
    text = json.dumps(owner.manager, ensure_ascii=False)
    if owner.subresource:
        text += f' with subresource "{owner.subresource}"'
    return f"{text} using {owner.version}" if owner.operation == UPDATE else text


def conflict_message(conflicts: Iterable[Conflict]) -> str:
    found = list(conflicts)
    if len(found) == 1:
        return f"Apply failed with 1 conflict: conflict with {named(found[0].owner)}: {fieldsets.shown(found[0].path)}"
    lines = []
    for owner in sorted({conflict.owner for conflict in found}, key=_identifier):
        lines.append(f"conflicts with {named(owner)}:")
        lines += [
            f"- {fieldsets.shown(conflict.path)}" for conflict in found if conflict.owner == owner
        ]
    return f"Apply failed with {len(found)} conflicts: " + "\n".join(lines)
