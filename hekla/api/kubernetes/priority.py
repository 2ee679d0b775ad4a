"""Priority classes: the names that people give to how important a pod is."""

from __future__ import annotations

from hekla.api.kinds import kind_of
from hekla.api.meta import Object, always
from hekla.api.schema import Int32


class PriorityClass(Object):
    api_version: str = always("scheduling.k8s.io/v1")
    kind: str = always("PriorityClass")
    value: Int32 = always(0)
    global_default: bool = False
    description: str = ""
    preemption_policy: str = ""


PRIORITY_CLASS = kind_of(PriorityClass, "priorityclasses", namespaced=False)
