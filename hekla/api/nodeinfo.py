"""The topology of a node: its NUMA cells, their processors, and what pods use of each."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Rule

API_VERSION = "nodeinfo.volcano.sh/v1alpha1"


Index = Annotated[int, Rule(minimum=0)]


class ResourceInfo(Struct):
    allocatable: str = ""
    """Indices as cpuset text, such as `0-3,8`."""
    capacity: int = 0


class CpuInfo(Struct):
    """The place of one processor.  Zero is absent on the wire."""

    numa: Index = 0
    socket: Index = 0
    core: Index = 0


class ContainerAllocation(Struct):
    name: str = ""
    allocations: dict[str, str] = {}
    """Resource -> cpuset text for cpu, a quantity for the rest."""


class PodAllocation(Struct):
    uid: str = ""
    name: str = ""
    namespace: str = ""
    container_allocations: list[ContainerAllocation] = []


class NumatopoSpec(Struct):
    policies: dict[str, str] = {}
    res_reserved: dict[str, str] = {}
    numares: dict[str, ResourceInfo] = {}
    cpu_detail: dict[str, CpuInfo] = {}
    pod_allocations: list[PodAllocation] = []


class Numatopology(Object):
    """The NUMA topology of the node of the same name."""

    api_version: str = always(API_VERSION)
    kind: str = always("Numatopology")
    spec: NumatopoSpec = msgspec.field(default_factory=NumatopoSpec)


NUMATOPOLOGY = kind_of(Numatopology, "numatopologies", namespaced=False, short_names=("numatopo",))
