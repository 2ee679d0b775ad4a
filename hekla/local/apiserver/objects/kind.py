"""The table entry of a kind: everything that requests need to know about it.

Built-in kinds (`objects/builtin.py`) and CustomResourceDefinitions (`objects/custom/custom.py`, at run
time) both make these entries, so requests never ask which sort of kind they serve. All functions
here are pure: JSON trees in, JSON trees or errors out, without a clock and without I/O (what needs
the state of the cluster is admission).
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
    """A stored object as conversions need it."""

    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...
    def tree(self) -> Json: ...


class ConvertedVersion(Protocol):
    """A version of a custom kind whose objects a conversion webhook converts."""

    async def ready(self, rows: Sequence[Stored]) -> None:
        """Convert those of the rows that are stored in another version, so that `Kind.present`
        finds the result. Raises Refusal."""

    async def kept(self, tree: Json) -> Json:
        """Convert an object of this version to the stored version."""

    async def across(self, tree: Json, wanted: str) -> Json:
        """Convert an object of this version to another one."""


class Decoded(NamedTuple):
    """A request body as a JSON tree, with the warnings (under Strict: errors) of decoding."""

    tree: Json
    warnings: Sequence[str] = ()


class Column(NamedTuple):
    """A printer column. `cell(tree, now)` gives the value in a Table; `now` is in seconds since the
    epoch."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Callable[[Json, float], Any]


def do_nothing(*_: Any) -> None:
    """The hook of a kind that needs none."""


def no_errors(*_: Any) -> list[FieldError]:
    """The validation of a kind that accepts everything."""
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
    """The pattern of the texts in a status that have no influence on the result of an update
    (objects.texts); None if that is not known."""


@dataclass(frozen=True, slots=True)
class KnownSpec:
    """How the create cache handles an object whose spec has the same bytes as an earlier one."""

    cacheable: Callable[[], bool]
    """Whether defaults, admission and validation of the spec are independent of metadata."""
    validate_metadata: Callable[[Json], list[FieldError]]
    """Validate what the cached result does not cover."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a kind behaves on create, update and delete. The functions change `new` in place."""

    default: Callable[[Json], None] = do_nothing
    prepare_create: Callable[[Json], None] = do_nothing
    """Drops what a client may not set (status), and sets the initial status."""
    validate_create: Callable[[Json], list[FieldError]] = no_errors
    prepare_update: Callable[[Json, Json], None] = do_nothing
    """(new, old): restores what the main endpoint may not change (status)."""
    validate_update: Callable[[Json, Json], list[FieldError]] = no_errors
    prepare_status: Callable[[Json, Json], None] = do_nothing
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
    """(new, old or None): the warnings for the writer of a valid object."""
    partial_updates: PartialUpdates | None = None
    """None: every update needs the whole object."""
    known_spec: KnownSpec | None = None
    """None: objects of this kind do not use the create cache."""
    default_decoded: Callable[[Json], None] | None = None
    """`default` for a tree that was just decoded, and so has no unknown fields; None if that makes
    no difference."""
    name_rule: Callable[[str], str | None] | None = None
    """Why a name is invalid, None if it is valid. None instead of a function means that names are
    DNS subdomains."""


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
    """Field selector name -> path in the STORED tree. metadata.name and metadata.namespace can
    always be used."""
    strategy: Strategy = Strategy()
    decode: Callable[[bytes, str, str], Decoded] | None = None
    """(body, media type, field validation "Strict"|"Warn"|"Ignore") -> tree, pruned and
    type-checked; raises objects.errors.BadBody."""
    conversion: ConvertedVersion | None = None
    """Set if a webhook converts between versions: it prepares rows for `present`, and converts
    objects to the stored version."""
    read_again: Callable[[Json, str], Decoded] | None = None
    """(patched tree with its kind, field validation) -> the same as `decode` for a body. It may
    change its argument."""
    merge_keys: Any = None
    """What a strategic merge patch of this kind needs (objects.strategic); None: it is refused
    (415)."""
    storage: tuple[str, str] = ("", "")
    """(group, plural) under which objects are stored: v1 and events.k8s.io events share one; empty
    means the kind's own."""
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
    """Stored tree -> tree of this kind, if two kinds share a store but not their fields (events).
    """
    keep: Callable[[Json], Json] | None = None
    """The inverse: tree of this kind -> tree as it is stored."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource as discovery shows it; `group`, `version`, `kind` are those of its body if they
    differ from the parent's."""

    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""
    kind: str = ""
