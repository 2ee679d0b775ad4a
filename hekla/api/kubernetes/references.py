"""How one object, or a field of one, is named from another."""

from __future__ import annotations

from typing import Annotated

from hekla.api.meta import AtomicStruct, Struct
from hekla.api.schema import Quantity, Required, Rule


class LocalObjectReference(AtomicStruct):
    name: Annotated[str, Rule(default="")] = ""


class SecretReference(AtomicStruct):
    name: str = ""
    namespace: str = ""


class TypedLocalObjectReference(AtomicStruct):
    api_group: str | None = None
    kind: Required[str] = ""
    name: Required[str] = ""


class TypedObjectReference(Struct):
    api_group: str = ""
    kind: Required[str] = ""
    name: Required[str] = ""
    namespace: str = ""


class ObjectReference(AtomicStruct):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class ObjectFieldSelector(AtomicStruct):
    api_version: str = ""
    field_path: Required[str] = ""


class ResourceFieldSelector(AtomicStruct):
    container_name: str = ""
    resource: Required[str] = ""
    divisor: Quantity = ""
