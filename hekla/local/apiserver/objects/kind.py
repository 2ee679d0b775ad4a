"""The table entry of a kind: everything the request path knows of it.

Built-in kinds (`objects/builtin.py`) and CustomResourceDefinitions (`objects/custom.py`) both make
these entries, the second at run time, and the request path walks them without ever asking which
kind it serves.  All functions here are pure: JSON trees in, JSON trees or errors out, no clock and
no I/O (what needs a cluster's state is admission, not strategy).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from hekla.api.text.fielderrors import FieldError as FieldError
from hekla.api.trees import Json

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Stored(Protocol):
    """A stored object, as far as a conversion looks at it."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...
    def tree(self) -> Json: ...


class ConvertedVersion(Protocol):
    """A version of a custom kind whose objects a webhook converts."""

    async def ready(self, rows: Sequence[Stored]) -> None:
        """Converts what of these is stored in another version, so that `Kind.present` can show it.
        Raises Refusal."""

    async def kept(self, tree: Json) -> Json:
        """An object of this version as it is stored."""

    async def across(self, tree: Json, wanted: str) -> Json:
        """An object of this version in another one."""


class Decoded(NamedTuple):
    """A request body as a JSON tree, with the warnings (or, under Strict, the errors) that decoding
    found."""

    tree: Json
    warnings: Sequence[str] = ()


class Column(NamedTuple):
    """A printer column.  `cell(tree, now)` gives the value that a Table shows; `now` is in seconds
    since the epoch."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Callable[[Json, float], Any]


def nothing(*_: Any) -> None:
    """The hook of a kind that has nothing to do there."""


def no_errors(*_: Any) -> list[FieldError]:
    """The check of a kind that accepts everything."""
    return []


@dataclass(frozen=True, slots=True)
class PartialUpdates:
    """How an update that changes few top-level fields (for example the status) keeps the bytes of
    the others.

    The trees that these functions get hold the changed fields; `kept` names the others.  Metadata
    is always present, and empty if it does not change.
    """

    may_stay: Callable[[str, Collection[str]], bool]
    """(subresource, kept): whether such an update can do without the kept fields."""
    default: Callable[[Json], None]
    fits: Callable[[Json, Json, Collection[str], str], bool]
    """(new, old, kept, subresource): whether the new state is valid.  The error messages come from
    the validation of the whole object."""
    counts: Callable[[Json, Json], bool] = lambda new, old: False
    """(new, old): whether the update may change what a quota counts."""
    texts: Callable[[], re.Pattern[bytes] | None] = lambda: None
    """The pattern of those texts in a status that have no influence on the result (objects.texts);
    None where that is not known."""


@dataclass(frozen=True, slots=True)
class KnownSpec:
    """How the create cache handles an object whose spec has the same bytes as an earlier one."""

    cacheable: Callable[[], bool]
    """Whether defaults, admission and validation of the spec are independent of metadata."""
    validate_metadata: Callable[[Json], list[FieldError]]
    """Validate what the cached result does not cover."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a kind does of its own on create, update and delete.  Functions change `new` in place."""

    default: Callable[[Json], None] = nothing
    prepare_create: Callable[[Json], None] = nothing
    """Drops what a client may not set (status), sets the first status."""
    validate_create: Callable[[Json], list[FieldError]] = no_errors
    prepare_update: Callable[[Json, Json], None] = nothing
    """(new, old): restores what the main endpoint may not change (status)."""
    validate_update: Callable[[Json, Json], list[FieldError]] = no_errors
    prepare_status: Callable[[Json, Json], None] = nothing
    """(new, old): restores all that the status endpoint may not change."""
    validate_status: Callable[[Json, Json], list[FieldError]] = no_errors
    prepare_decision: Callable[[Json, Json, str], None] | None = None
    """(new, old, subresource), where the parts of one status are written through two subresources
    (certificates)."""
    generation: bool = False
    """The server manages metadata.generation (section 2.2)."""
    unconditional_update: bool = True
    """A PUT without resourceVersion is allowed."""
    create_on_update: bool = False
    """A PUT on a missing name creates."""
    returns_object_on_delete: bool = False
    default_propagation: str = "Background"
    warnings: Callable[[Json, Json | None], list[str]] | None = None
    """(new, old or None): what the writer of a valid object should hear."""
    partial_updates: PartialUpdates | None = None
    """None: every update reads the whole object."""
    known_spec: KnownSpec | None = None
    """None: objects of this kind do not use the create cache."""
    fill: Callable[[Json], None] | None = None
    """`default` for what was read a moment ago, and so holds no field that the kind does not know;
    None where that is the same."""
    name_rule: Callable[[str], str | None] | None = None
    """Why a name is refused, None when it is good; None here means a DNS subdomain."""


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served group, version and kind."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field selector name -> path in the STORED tree; metadata.name and metadata.namespace are
    always there."""
    strategy: Strategy = Strategy()
    decode: Callable[[bytes, str, str], Decoded] | None = None
    """(body, media type, field validation "Strict"|"Warn"|"Ignore") -> tree, pruned and
    type-checked; raises objects.errors.BadBody."""
    conversion: ConvertedVersion | None = None
    """Where a webhook converts between the versions: what `present` shows it makes ready, and it
    says how objects are kept."""
    read_again: Callable[[Json, str], Decoded] | None = None
    """(patched tree with its kind, field validation) -> as `decode` would read it.  It may change
    what it is given."""
    merge_keys: Any = None
    """What the strategic merge of this kind needs (objects.strategic); None: strategic merge is
    refused (415)."""
    storage: tuple[str, str] = ("", "")
    """(group, plural) under which objects are stored: v1 and events.k8s.io events share one; empty
    means own."""
    stored_version: str = ""
    """The version that a custom kind is stored in."""
    custom: bool = False
    """Made from a CustomResourceDefinition: items in lists carry apiVersion and kind, decoding
    prunes by schema."""
    warning: str = ""
    """Deprecation text of the version."""
    scale: Any = None
    """objects.scale.Scale paths where the scale subresource is served."""
    schema: Json | None = None
    """The OpenAPI schema of a custom kind's version, as OpenAPI documents show it."""
    present: Callable[[Json], Json] | None = None
    """Stored tree -> tree of this kind, where two kinds share a store but not their fields
    (events)."""
    keep: Callable[[Json], Json] | None = None
    """The way back: tree of this kind -> tree as it is stored."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource as discovery shows it; `group`, `version`, `kind` name its body where it is not
    the parent's."""

    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""
    kind: str = ""
