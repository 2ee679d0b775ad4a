"""What drivers devices: ResourceSlices read into pools of devices, and which node sees which of them.

Nodes that see the same devices share one `NodeDevices`, so what is found out for one of them holds for
all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hekla.api.text import quantity
from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodes import NodeTable, Taint

PoolKey = tuple[str, str]
"""Driver and name."""
DeviceKey = tuple[str, str, str]
"""Driver, pool and name."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device, in thousandths, and how it may be divided."""

    value: int
    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int = 0

    def consumed(self, asked: int | None) -> int | None:
        """How much a share takes; None where no share of that size is given out."""
        if asked is None:
            return self.value if self.default is None else self.default
        if self.values:
            return next((one for one in self.values if one >= asked), None)
        if self.least is not None:
            asked = max(asked, self.least)
            if self.step > 0:
                asked = self.least + -(-(asked - self.least) // self.step) * self.step
            if self.most is not None and asked > self.most:
                return None
        return asked if asked <= self.value else None


@dataclass(slots=True, eq=False)
class Device:
    """One device as a slice has it."""

    key: DeviceKey
    tree: Tree
    own_taints: tuple[Taint, ...]
    """As the driver says; `taints` are these and those of rules."""
    counters: tuple[tuple[tuple[str, str], int], ...]
    """(Counter set, counter) -> thousandths that the device takes of it."""
    capacity: dict[str, Capacity]
    shared: bool
    """May be given to several claims at a time."""
    verdicts: dict[str, bool | str] = field(default_factory=dict)
    """Text of a selector -> whether it is meant, or why that cannot be told."""
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        self.taints = self.own_taints

    @property
    def binding(self) -> tuple[str, ...]:
        """Conditions that must come true before a pod is bound."""
        return tuple(self.tree.get("bindingConditions") or ())

    def attribute(self, name: str) -> frozenset[tuple[str, int | bool | str]]:
        """The values of an attribute; empty where the device has none of that name."""
        attributes = self.tree.get("attributes") or {}
        value = attributes.get(name)
        if value is None:
            domain, slash, short = name.partition("/")
            value = attributes.get(short) if slash and domain == self.key[0] else None
        if value is None:
            return frozenset()
        for kind in ("int", "bool", "string", "version"):
            if value.get(kind) is not None:
                return frozenset({(kind, value[kind])})
            if value.get(f"{kind}s"):
                return frozenset((kind, one) for one in value[f"{kind}s"])
        return frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Devices of one pool that are seen from the same nodes."""

    pool: PoolKey
    node: str
    """The one node, or empty: then `selector` says which, or all where that is None."""
    selector: Tree | None
    devices: tuple[Device, ...]

    def mask(self, nodes: NodeTable) -> Bools:
        """`[nodes]`, for a group that is not one node's own."""
        result = nodes.ready.copy()
        if self.selector is not None:
            terms = matching.node_terms(self.selector.get("nodeSelectorTerms"))
            either = matching.any_term(terms, nodes)
            result &= either
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """One ResourceSlice."""

    pool: PoolKey
    generation: int
    of: int
    """How many slices the pool has in all."""
    groups: tuple[Group, ...]
    counters: dict[tuple[str, str], int]


@dataclass(slots=True, eq=False)
class Pool:
    """The newest generation of a pool's slices."""

    key: PoolKey
    complete: bool
    sound: bool
    """No two devices have one name."""
    devices: dict[str, Device]
    counters: dict[tuple[str, str], int]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True, eq=False)
class NodeDevices:
    """What some nodes see."""

    groups: tuple[Group, ...]

    def usable(self, pools: Mapping[PoolKey, Pool]) -> list[Device]:
        """Devices of pools that can be relied on, in the order in which they are tried."""
        return [
            device
            for group in self.groups
            for device in group.devices
            if pools[group.pool].complete and pools[group.pool].sound
        ]

    def unsettled(self, pools: Mapping[PoolKey, Pool]) -> bool:
        """Whether some pool is being rewritten, so that nobody knows what "all" is."""
        return any(
            not (pools[group.pool].complete and pools[group.pool].sound) for group in self.groups
        )


NOTHING = NodeDevices(())


def read_slice(tree: Tree) -> Slice:
    """Raises ValueError, TypeError and the like for a slice that cannot be understood."""
    spec = tree["spec"]
    pool = spec["pool"]
    driver, name = str(spec["driver"]), str(pool["name"])
    devices = [_device(one, driver, name) for one in spec.get("devices") or ()]
    groups: list[Group] = []
    if spec.get("perDeviceNodeSelection"):
        groups = [_group((driver, name), one.tree, (one,)) for one in devices]
    elif devices:
        groups = [_group((driver, name), spec, tuple(devices))]
    counters = {
        (str(counted["name"]), counter): quantity.milli(value["value"])
        for counted in spec.get("sharedCounters") or ()
        for counter, value in (counted.get("counters") or {}).items()
    }
    return Slice(
        (driver, name),
        int(pool.get("generation") or 0),
        int(pool.get("resourceSliceCount") or 1),
        tuple(groups),
        counters,
    )


def _group(pool: PoolKey, where: Tree, devices: tuple[Device, ...]) -> Group:
    return Group(pool, str(where.get("nodeName") or ""), where.get("nodeSelector"), devices)


def _device(tree: Tree, driver: str, pool: str) -> Device:
    taints = tuple(
        Taint(one.get("key", ""), one.get("value", ""), one.get("effect", ""))
        for one in tree.get("taints") or ()
    )
    counters = tuple(
        ((str(taken["counterSet"]), counter), quantity.milli(value["value"]))
        for taken in tree.get("consumesCounters") or ()
        for counter, value in (taken.get("counters") or {}).items()
    )
    capacity = {name: _capacity(one) for name, one in (tree.get("capacity") or {}).items()}
    return Device(
        (driver, pool, str(tree["name"])),
        tree,
        taints,
        counters,
        capacity,
        bool(tree.get("allowMultipleAllocations")),
    )


def _capacity(tree: Tree) -> Capacity:
    value, policy = quantity.milli(tree["value"]), tree.get("requestPolicy")
    if not policy:
        return Capacity(value)
    span = policy.get("validRange") or {}

    def of(name: str) -> int | None:
        return quantity.milli(span[name]) if span.get(name) is not None else None

    default = policy.get("default")
    return Capacity(
        value,
        None if default is None else quantity.milli(default),
        tuple(sorted(quantity.milli(one) for one in policy.get("validValues") or ())),
        of("min"),
        of("max"),
        of("step") or 0,
    )


def pools_of(slices: Iterable[Slice]) -> dict[PoolKey, Pool]:
    """Pools from slices; of each only the newest generation counts."""
    newest: dict[PoolKey, list[Slice]] = {}
    for one in slices:
        held = newest.setdefault(one.pool, [])
        if held and held[0].generation > one.generation:
            continue
        if held and held[0].generation < one.generation:
            held.clear()
        held.append(one)
    return {key: _pool(key, held) for key, held in newest.items()}


def _pool(key: PoolKey, slices: list[Slice]) -> Pool:
    groups = tuple(group for one in slices for group in one.groups)
    listed = [device for group in groups for device in group.devices]
    counters = {name: value for one in slices for name, value in one.counters.items()}
    devices = {device.key[2]: device for device in listed}
    return Pool(
        key, len(slices) == slices[0].of, len(devices) == len(listed), devices, counters, groups
    )


class Map:
    """Which node sees which devices, and which nodes a pool reaches."""

    def __init__(self, pools: Mapping[PoolKey, Pool], nodes: NodeTable) -> None:
        own: dict[int, list[Group]] = {}
        wide: list[tuple[Group, Bools]] = []
        reach: dict[PoolKey, list[NDArray[np.intp]]] = {}
        for key in sorted(pools):
            for group in pools[key].groups:
                if group.node:
                    row = nodes.rows.get(group.node)
                    if row is None:
                        continue
                    own.setdefault(row, []).append(group)
                    reach.setdefault(key, []).append(np.array([row], dtype=np.intp))
                else:
                    mask = group.mask(nodes)
                    wide.append((group, mask))
                    reach.setdefault(key, []).append(np.flatnonzero(mask))
        self.reach: dict[PoolKey, Rows] = {
            key: np.unique(np.concatenate(rows)) for key, rows in reach.items()
        }
        self.offers: list[NodeDevices] = [NOTHING] * len(nodes)
        seen: dict[bytes, NodeDevices] = {b"": NOTHING}
        packed = np.packbits(np.array([mask for _, mask in wide]), axis=0).T if wide else None
        for row in range(len(nodes)):
            bits = packed[row].tobytes() if packed is not None else b""
            local = own.get(row)
            if local is None and bits in seen:
                self.offers[row] = seen[bits]
                continue
            devices = NodeDevices((*(local or ()), *(group for group, mask in wide if mask[row])))
            self.offers[row] = devices
            if local is None:
                seen[bits] = devices
