"""Pods for a PodGroup that waits to be let in: its controller makes them afterwards, so who would
simulate it has none yet."""

from __future__ import annotations

from hekla.api.names import GROUP_NAME, TASK_SPEC
from hekla.api.text import quantity
from hekla.api.trees import Json, Tree

OF_QUOTAS = ("requests.", "limits.", "count/")
"""With which names begin that say again to a ResourceQuota what the plain ones say."""


def stand_ins(group: Tree, scheduler: str) -> list[Json]:
    """As many pods as must start together, of its tasks as many as each must have, and of equal parts
    of what the group asks for; none where it says no number."""
    meta, spec = group["metadata"], group.get("spec") or {}
    count = int(spec.get("minMember") or 0)
    each = {
        name: f"{quantity.milli(value) // count}m"
        for name, value in (spec.get("minResources") or {}).items()
        if count and name != "pods" and not name.startswith(OF_QUOTAS)
    }
    tasks = [
        task
        for task, least in (spec.get("minTaskMember") or {}).items()
        for _ in range(int(least or 0))
    ]
    tasks += [""] * (count - len(tasks))
    return [
        {
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{number}",
                "namespace": meta.get("namespace", ""),
                "uid": f"{meta['name']}-{number}",
                "annotations": {GROUP_NAME: meta["name"], **({TASK_SPEC: task} if task else {})},
                "creationTimestamp": meta.get("creationTimestamp", ""),
            },
            "spec": {
                "schedulerName": scheduler,
                "priorityClassName": spec.get("priorityClassName", ""),
                "containers": [{"name": "main", "resources": {"requests": each}}],
            },
            "status": {"phase": "Pending"},
        }
        for number, task in enumerate(tasks if count else ())
    ]
