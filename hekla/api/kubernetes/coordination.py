"""Leases: who leads, and which node is alive."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Int32, Time


class LeaseSpec(Struct):
    holder_identity: str = ""
    lease_duration_seconds: Int32 | None = None
    acquire_time: Time = ""
    renew_time: Time = ""
    lease_transitions: Int32 | None = None
    strategy: str = ""
    preferred_holder: str = ""


class Lease(Object):
    api_version: str = always("coordination.k8s.io/v1")
    kind: str = always("Lease")
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


LEASE = kind_of(Lease, "leases")
