"""Selectors of devices (DRA): whether a class or a claim wants a device of a ResourceSlice.

Pure: a selector is compiled once and evaluated on devices as a slice has them.

    Selector('device.driver == "gpu.example.com" &&
    device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("8Gi"))')
        .matches("gpu.example.com", device)
"""

from __future__ import annotations

from typing import Any

from hekla.api.trees import Json
from hekla.cel import library
from hekla.cel.environment import Program, compile_expression
from hekla.cel.errors import Failed, Refused
from hekla.cel.types import BOOL, DYN, QUANTITY, STRING, Type, map_of

_DEVICE = Type(
    "kubernetes.DRADevice",
    fields={
        "driver": ("driver", STRING),
        "attributes": ("attributes", map_of(STRING, map_of(STRING, DYN))),
        "capacity": ("capacity", map_of(STRING, map_of(STRING, QUANTITY))),
        "allowMultipleAllocations": ("allowMultipleAllocations", BOOL),
    },
)


class Unusable(Exception):
    """A selector that cannot be used; the text is the detail of a field error."""


class _Domains(dict[str, Any]):
    """Attributes or capacities by domain.  A domain that the device does not have is empty, not
    missing."""

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}


class Selector:
    """A compiled selector."""

    __slots__ = ("program",)

    def __init__(self, text: str) -> None:
        """Compile the selector.  Raises Unusable."""
        try:
            program = compile_expression(text, {"device": _DEVICE}, bindings=True)
        except Refused as error:
            raise Unusable(f"compilation failed: {error}") from error
        if program.type != BOOL and program.type is not DYN:
            raise Unusable(f"must evaluate to bool or the unknown type, not {program.type}")
        self.program: Program = program

    def matches(self, driver: str, device: Json) -> bool:
        """Whether a device of that driver matches.  Raises Failed, for example when the device
        lacks an attribute that the selector reads."""
        found = self.program({"device": seen(driver, device)})
        if not isinstance(found, bool):
            raise Failed(
                f"CEL result of type {type(found).__name__} could not be converted to bool"
            )
        return found


def seen(driver: str, device: Json) -> Json:
    """A device of a slice as selectors see it: names by domain; names without one are in the
    driver's domain."""
    attributes, capacity = _Domains(), _Domains()
    for name, value in (device.get("attributes") or {}).items():
        _put(attributes, driver, name, _attribute(value))
    library.load("quantity")
    from hekla.cel.library.quantity import Quantity

    for name, value in (device.get("capacity") or {}).items():
        _put(capacity, driver, name, Quantity.read(str(value["value"])))
    return {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": bool(device.get("allowMultipleAllocations")),
    }


def _put(domains: _Domains, driver: str, name: str, value: Any) -> None:
    domain, slash, short = name.partition("/")
    domains.setdefault(domain if slash else driver, {})[short if slash else name] = value


def _attribute(value: Json) -> Any:
    for kind in ("int", "bool", "string", "ints", "bools", "strings"):
        if value.get(kind) is not None:
            return value[kind]
    for kind in ("version", "versions"):
        if value.get(kind) is not None:
            from hekla.cel.library.semver import Semver

            return (
                [Semver.read(one) for one in value[kind]]
                if kind == "versions"
                else Semver.read(value[kind])
            )
    return None
