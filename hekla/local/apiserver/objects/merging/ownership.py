"""The ownership of fields: what an update takes over, and what an apply takes, keeps, gives up, or
conflicts on.

The functions are pure: objects and field sets in, objects and field sets out.
`apiserver/storage/managed_fields.py` stores the owners of an object. Reference: local-cluster 2.7.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from hekla.api.names import LAST_APPLIED
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.local.apiserver.objects.merging import fieldsets, merging
from hekla.local.apiserver.objects.merging.fieldsets import Tree
from hekla.local.apiserver.objects.merging.topology import Node

APPLY, UPDATE = "Apply", "Update"
MOST_UPDATERS = 10
ANCIENT_CHANGES = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
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
"""Fields without an owner: the type, and what the server itself sets."""


class Owner(NamedTuple):
    """The identity of an entry in managedFields. An applier has one entry for all versions, an
    updater one for each."""

    manager: str
    operation: str
    subresource: str = ""
    version: str = ""
    """Empty for appliers."""


class Share(NamedTuple):
    """The fields that an owner has, in the field names of a version, and when they last changed."""

    version: str
    fields: Tree
    time: int
    """Seconds since the epoch; 0 if a client gave none."""


Shares = dict[Owner, Share]


class Conflict(NamedTuple):
    """A field that an apply would change, and its owner."""

    owner: Owner
    path: fieldsets.Path


class Conflicts(Exception):
    """An apply would change fields that have other owners."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.found = conflicts


Converter = Callable[[str, Json], tuple[Node, Json] | None]
"""(apiVersion, object in the version of the request) -> the node of that apiVersion and the object
converted to it; None if the version no longer exists."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The endpoint of a write: the kind's topology, its version, and the fields that this endpoint
    does not change."""

    node: Node
    version: str
    without: frozenset[str] = frozenset()
    """Top-level fields that this endpoint resets."""
    convert: Converter = lambda version, tree: None
    metadata: tuple[str, ...] = ()
    """Fields of metadata that this endpoint resets."""

    def at(self, version: str, tree: Json) -> tuple[Node, Json] | None:
        """The node of a version and the object in it; None if the version no longer exists."""
        return (self.node, tree) if version == self.version else self.convert(version, tree)


# --- the wire form --------------------------------------------------------------------------------


def order_of(owner: Owner, share: Share) -> tuple[str, int, str, str, str]:
    """The order of managedFields: appliers first, then by time."""
    return owner.operation, share.time, owner.manager, share.version, owner.subresource


def from_wire(entries: Any) -> Shares | None:
    """The content of managedFields; None if it is invalid."""
    if not isinstance(entries, list):
        return None
    shares: Shares = {}
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
            shares[owner] = Share(
                version, fieldsets.parse(entry.get("fieldsV1") or {}), seconds(entry.get("time"))
            )
        except fieldsets.BadFields:
            return None
    return shares


def is_reset(entries: Any) -> bool:
    """Whether a client asks to clear managedFields: an empty list, or one empty entry."""
    return entries in ([], [{}])


def seconds(text: Any) -> int:
    """A timestamp in seconds since the epoch; 0 if it is invalid."""
    try:
        return max(int(instant(text)), 0)
    except (TypeError, ValueError):
        return 0


# --- updates --------------------------------------------------------------------------------------


def updated(scope: Scope, old: Json, new: Json, shares: Shares, owner: Owner, now: int) -> Shares:
    """The shares after an update: the owner has the fields that it changed, and nobody else has
    them."""
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
    """`updated` with a difference that is known already."""
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
    """The shares of the others without the fields that a change takes from them, and the conflicts:
    taken fields that still exist."""
    versions: dict[str, tuple[Tree, Tree] | None] = {}

    def changes(version: str) -> tuple[Tree, Tree] | None:
        if version not in versions:
            version_difference = difference
            if version_difference is None or version != scope.version:
                before, after = scope.at(version, old), scope.at(version, new)
                if before is None or after is None:
                    versions[version] = None
                    return None
                version_difference = merging.compare(
                    before[0], before[1], after[1], without=scope.without
                )
            versions[version] = (
                fieldsets.from_paths((*version_difference.added, *version_difference.modified)),
                fieldsets.from_paths(version_difference.removed),
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
    """At most ten updaters: the oldest are combined into one entry for each version."""
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
        bucket = Owner(ANCIENT_CHANGES, UPDATE, "", share.version)
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
    """The object and the shares after an apply. Raises Conflicts, and merging.Unmergeable if the
    configuration does not fit the kind."""
    if not shares and live["metadata"].get("uid"):
        # Without managedFields all existing fields belong to `before-first-apply`.
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
        remaining = [
            conflict
            for conflict in conflicts.found
            if allowed is None or not fieldsets.has(allowed, conflict.path)
        ]
        if remaining:
            raise Conflicts(remaining) from None
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
        # An apply that changes nothing keeps its time.
        left[owner] = Share(
            scope.version, own, now if new != live else before.time if before is not None else 0
        )
    else:
        left.pop(owner, None)
    return new, left


def _pruned(scope: Scope, merged: Json, shares: Shares, before: Share) -> Json:
    """The merged object without fields that the owner applied before and that nobody owns now."""
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
    """Fields that owners in another version have are kept. Only top-level fields are compared,
    because deeper ones rarely have the same name in two versions."""
    node_and_tree = scope.at(version, merged)
    if node_and_tree is None:
        return pruned
    held = {key[2:] for key in managed}
    return {
        **pruned,
        **{name: value for name, value in merged.items() if name in held and name not in pruned},
    }


def _allowed_by_last_applied(scope: Scope, live: Json) -> Tree | None:
    """The fields that client-side apply owned: those of its annotation that still have the same
    value."""
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
    """An owner as conflict messages show it."""
    text = json.dumps(owner.manager, ensure_ascii=False)
    if owner.subresource:
        text += f' with subresource "{owner.subresource}"'
    return f"{text} using {owner.version}" if owner.operation == UPDATE else text


def conflict_message(conflicts: Iterable[Conflict]) -> str:
    """The message of a 409 for conflicts, grouped by owner."""
    all_conflicts = list(conflicts)
    if len(all_conflicts) == 1:
        return f"Apply failed with 1 conflict: conflict with {named(all_conflicts[0].owner)}: {fieldsets.shown(all_conflicts[0].path)}"
    lines = []
    for owner in sorted({conflict.owner for conflict in all_conflicts}, key=_identifier):
        lines.append(f"conflicts with {named(owner)}:")
        lines += [
            f"- {fieldsets.shown(conflict.path)}"
            for conflict in all_conflicts
            if conflict.owner == owner
        ]
    return f"Apply failed with {len(all_conflicts)} conflicts: " + "\n".join(lines)
