"""Endpoint slices: which addresses stand behind a service."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.references import ObjectReference
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Int32


class EndpointConditions(Struct):
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ForZone(Struct):
    name: str = ""


class ForNode(Struct):
    name: str = ""


class EndpointHints(Struct):
    for_zones: list[ForZone] = []
    for_nodes: list[ForNode] = []


class Endpoint(Struct):
    addresses: list[str] = []
    conditions: EndpointConditions = msgspec.field(default_factory=EndpointConditions)
    hostname: str = ""
    target_ref: ObjectReference | None = None
    deprecated_topology: dict[str, str] = {}
    node_name: str = ""
    zone: str = ""
    hints: EndpointHints | None = None


class EndpointPort(Struct):
    name: str = ""
    protocol: str = ""
    port: Int32 | None = None
    app_protocol: str = ""


class EndpointSlice(Object):
    api_version: str = always("discovery.k8s.io/v1")
    kind: str = always("EndpointSlice")
    endpoints: list[Endpoint] = []
    ports: list[EndpointPort] = []
    address_type: str = always("")


ENDPOINT_SLICE = kind_of(EndpointSlice, "endpointslices")
