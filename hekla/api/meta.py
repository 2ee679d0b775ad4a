"""What every object has, whatever its kind: names, owners, labels, conditions; and the base of all
wire structs.

Attributes are snake_case in Python and camelCase on the wire, with the capitals that Kubernetes
gives to initials (`pod_ip` is `podIP`).  A field at its default is left out of the encoding, as
Go's omitempty does; the few fields that Go always writes are made with `always`, so that a zero
restart count is seen as zero and not as nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from hekla.api.schema import Atomic, Int64, Required, Rule, Time

INITIALS = {
    "api": "API",
    "cidr": "CIDR",
    "cidrs": "CIDRs",
    "fqdn": "FQDN",
    "id": "ID",
    "io": "IO",
    "ip": "IP",
    "ipc": "IPC",
    "ips": "IPs",
    "pid": "PID",
    "uri": "URI",
    "url": "URL",
    "urls": "URLs",
    "uuid": "UUID",
    "wwns": "WWNs",
}

T = TypeVar("T")


def wire_name(attribute: str) -> str:
    """The JSON name of a Python attribute: `pod_ip` is `podIP`, `host_pid` is `hostPID`."""
    first, *rest = attribute.rstrip("_").split("_")
    return first + "".join(INITIALS.get(word) or word.capitalize() for word in rest)


def always(value: T) -> T:
    """A default that is written to the wire even if it was not changed."""
    result: T = msgspec.field(default_factory=lambda: value)
    return result


class Struct(msgspec.Struct, rename=wire_name, omit_defaults=True, kw_only=True, gc=False):
    """Base of every wire struct.

    The garbage collector does not track them (decision 0010): a decoded tree has no cycles, so do
    not make any.
    """


class AtomicStruct(Struct):
    """Base of the small structs that server-side apply replaces as a whole."""


class OwnerReference(AtomicStruct):
    api_version: Required[str] = ""
    kind: Required[str] = ""
    name: Required[str] = ""
    uid: Required[str] = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Struct):
    """Metadata without managedFields: an update that leaves them out does not change them, and no
    controller reads them."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Time = ""
    deletion_timestamp: Time = ""
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class TemplateMeta(Struct):
    """Metadata of a template inside an object: the fields that the server stores there."""

    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    labels: dict[str, str] = {}
    name: str = ""
    namespace: str = ""


class LabelSelectorRequirement(Struct):
    key: Required[str] = ""
    operator: Required[str] = ""
    values: Atomic[list[str]] = []


class LabelSelector(AtomicStruct):
    """An empty selector matches everything; where the field may be absent, absent matches nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: Atomic[list[LabelSelectorRequirement]] = []


class Condition(Struct):
    """The condition that most kinds share; all five members are required in writes."""

    type: Annotated[
        str,
        Rule(
            required=True,
            max_length=316,
            pattern=(
                r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
            ),
        ),
    ] = ""
    status: Annotated[str, Rule(required=True, enum=("True", "False", "Unknown"))] = ""
    observed_generation: Annotated[int, Rule(format="int64", minimum=0)] = 0
    last_transition_time: Required[Time] = ""
    reason: Annotated[
        str,
        Rule(
            required=True,
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        ),
    ] = ""
    message: Annotated[str, Rule(required=True, max_length=32768)] = always("")


class BriefCondition(Struct):
    """The condition of older kinds of Kubernetes, which demand no member."""

    type: str = ""
    status: str = ""
    last_transition_time: Time = ""
    reason: str = ""
    message: str = ""


class ListMeta(Struct):
    resource_version: str = ""
    continue_: str = ""
    remaining_item_count: int | None = None


class Object(Struct):
    """Base of every kind that has a name on an API server."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class StatusCause(Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class Status(Struct):
    """An answer of the API server that is no object: success, or why the request failed."""

    api_version: str = always("v1")
    kind: str = always("Status")
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


def key(obj: Any) -> str:
    """`namespace/name` of a namespaced object, `name` of a cluster-scoped one; takes structs and
    JSON trees."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata") or {}
        name, namespace = metadata.get("name") or "", metadata.get("namespace") or ""
    else:
        name, namespace = obj.metadata.name, obj.metadata.namespace
    return f"{namespace}/{name}" if namespace else str(name)


def split_key(text: str) -> tuple[str, str]:
    """(namespace, name) of a key; the namespace of a cluster-scoped object is empty."""
    namespace, slash, name = text.rpartition("/")
    return (namespace, name) if slash else ("", text)
