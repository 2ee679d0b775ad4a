"""Reservations: nodes that are kept for their owners in a window of time; for nobody, where a window
is for maintenance."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.kinds import Column, kind_of
from hekla.api.meta import LabelSelector, Object, Struct, always
from hekla.api.schema import Count, Duration, Required, ResourceList, Rule, Time

API_VERSION = "scheduling.hekla.io/v1alpha1"


class Drain(StrEnum):
    """What becomes of others' pods that still run when a window opens."""

    WAIT = "Wait"
    EVICT = "Evict"


class ReservationState(StrEnum):
    PENDING = "Pending"
    DRAINING = "Draining"
    ACTIVE = "Active"
    ENDED = "Ended"
    FAILED = "Failed"
    CONFLICT = "Conflict"


class ReservedNodes(Struct):
    """Nodes by name, by labels, or so many of those with at least these resources."""

    names: list[str] = []
    selector: LabelSelector | None = None
    count: Annotated[int | None, Rule(format="int32", minimum=1)] = None
    resources: ResourceList = {}


class Window(Struct):
    """When: once from `start` on, or by a schedule."""

    start: Time = ""
    end: Time = ""
    duration: Duration = ""
    schedule: Annotated[str, Rule(max_length=253)] = ""
    time_zone: Annotated[str, Rule(max_length=253)] = ""


class Owners(Struct):
    """Whose jobs may use the nodes meanwhile."""

    queues: list[str] = []
    users: list[str] = []
    jobs: list[str] = []


class ReservationSpec(Struct):
    nodes: Required[ReservedNodes] = msgspec.field(default_factory=ReservedNodes)
    window: Required[Window] = msgspec.field(default_factory=Window)
    owners: Owners = msgspec.field(default_factory=Owners)
    drain: Annotated[str, Rule(default="Wait", enum=tuple(Drain))] = ""
    overlap: bool = False


class Occupant(Struct):
    """A pod of others that is, or may still be, on a reserved node when the window is open."""

    pod: str = ""
    node: str = ""
    until: Time = ""


class ReservationStatus(Struct):
    state: Annotated[str, Rule(enum=tuple(ReservationState))] = ""
    reason: str = ""
    message: str = ""
    start: Time = ""
    end: Time = ""
    nodes: list[str] = []
    occupants: list[Occupant] = []
    past: Count = 0


class Reservation(Object):
    """Nodes kept free for a window of time."""

    api_version: str = always(API_VERSION)
    kind: str = always("Reservation")
    spec: Required[ReservationSpec] = msgspec.field(default_factory=ReservationSpec)
    status: ReservationStatus = msgspec.field(default_factory=ReservationStatus)


RESERVATION = kind_of(
    Reservation,
    "reservations",
    namespaced=False,
    short_names=("resv",),
    columns=(
        Column("State", "string", ".status.state"),
        Column("From", "string", ".status.start"),
        Column("To", "string", ".status.end"),
        Column("Past", "integer", ".status.past"),
        Column("Reason", "string", ".status.reason"),
        Column("Message", "string", ".status.message", priority=1),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    status=True,
)
