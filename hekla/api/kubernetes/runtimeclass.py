"""Runtime classes: how containers are run, and what that costs a pod."""

from __future__ import annotations

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.placement import Toleration
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import ResourceList


class Overhead(Struct):
    pod_fixed: ResourceList = {}


class Scheduling(Struct):
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class RuntimeClass(Object):
    api_version: str = always("node.k8s.io/v1")
    kind: str = always("RuntimeClass")
    handler: str = ""
    overhead: Overhead | None = None
    scheduling: Scheduling | None = None


RUNTIME_CLASS = kind_of(RuntimeClass, "runtimeclasses", namespaced=False)
