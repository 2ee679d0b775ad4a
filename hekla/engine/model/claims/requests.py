"""What a ResourceClaim asks for, read once for all claims that ask for the same.

A request is a list of choices, of which the first that can be had is taken; an `exactly` is a list
of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.text import quantity
from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.matching import Toleration

_ENCODER = msgspec.json.Encoder(order="deterministic")

CLAIM, CLASS = "ResourceClaim", "DeviceClass"
MOST_DEVICES = 32
"""What one claim may get."""


class Unreadable(ValueError):
    """A claim, a class or a slice says something that cannot be understood; the text says what."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to satisfy a request."""

    name: str
    """As results have it: the request's, or `request/alternative`."""
    device_class: str
    selectors: tuple[str, ...]
    everything: bool
    """All devices of the node that match, instead of `count`."""
    count: int
    admin: bool
    """Access for looking after a device, whoever uses it."""
    tolerations: tuple[Toleration, ...]
    stated_tolerations: tuple[Tree, ...]
    capacity: tuple[tuple[str, int], ...]
    """Name of a capacity -> thousandths of it."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim."""

    name: str
    choices: tuple[Choice, ...]
    ranked: bool
    """Whether the choices were given in order of preference, and so count for the node's score."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """Devices of some requests must agree in an attribute, or differ in it from each other."""

    requests: frozenset[str]
    attribute: str
    distinct: bool

    def concerns(self, choice: str) -> bool:
        return (
            not self.requests
            or choice in self.requests
            or choice.partition("/")[0] in self.requests
        )


@dataclass(frozen=True, slots=True, eq=False)
class ClaimRequest:
    """All that a claim asks for.  There is one object for all claims that ask the same."""

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[Constraint, ...]
    config: tuple[Tree, ...]
    """As the claim has it."""


class ClaimRequests:
    """Requests of claims, one object for all specs of the same text."""

    def __init__(self) -> None:
        self._known: BoundedCache[bytes, ClaimRequest] = BoundedCache(4096)

    def of(self, claim: Tree) -> ClaimRequest:
        """Raises Unreadable."""
        spec = (claim.get("spec") or {}).get("devices") or {}
        key = _ENCODER.encode(spec)
        found = self._known.get(key)
        if found is None:
            try:
                found = self._known[key] = _claim_request(spec)
            except (AttributeError, TypeError, ValueError, KeyError) as error:
                raise Unreadable(f"spec.devices: {error}") from error
        return found


def _claim_request(spec: Tree) -> ClaimRequest:
    constraints = tuple(
        Constraint(
            frozenset(one.get("requests") or ()),
            str(one.get("distinctAttribute") or one.get("matchAttribute") or ""),
            bool(one.get("distinctAttribute")),
        )
        for one in spec.get("constraints") or ()
    )
    return ClaimRequest(
        tuple(map(_request, spec.get("requests") or ())),
        constraints,
        tuple(spec.get("config") or ()),
    )


def _request(tree: Tree) -> DeviceRequest:
    name = str(tree.get("name", ""))
    ranked = tree.get("firstAvailable") or ()
    if ranked:
        return DeviceRequest(
            name, tuple(_choice(one, f"{name}/{one.get('name', '')}") for one in ranked), True
        )
    exactly = tree.get("exactly")
    if exactly is None:
        raise ValueError(f"request {name}: neither exactly nor firstAvailable")
    return DeviceRequest(name, (_choice(exactly, name),), False)


def _choice(tree: Tree, name: str) -> Choice:
    mode = tree.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        raise ValueError(f"request {name}: allocationMode {mode!r} is neither ExactCount nor All")
    stated = tuple(tree.get("tolerations") or ())
    capacity = ((tree.get("capacity") or {}).get("requests") or {}).items()
    return Choice(
        name,
        str(tree.get("deviceClassName", "")),
        expressions(tree.get("selectors")),
        mode == "All",
        int(tree.get("count") or 1),
        bool(tree.get("adminAccess")),
        matching.tolerations(stated),
        stated,
        tuple((str(key), quantity.milli(value)) for key, value in capacity),
    )


def expressions(selectors: Sequence[Tree] | None) -> tuple[str, ...]:
    """The CEL texts of a list of selectors."""
    return tuple(str((one.get("cel") or {}).get("expression", "")) for one in selectors or ())
