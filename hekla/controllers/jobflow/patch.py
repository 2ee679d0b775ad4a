"""What a flow changes in the template of one of its jobs: `flows[].patch.jobSpec` (reference:
controllers 7.5), then parameters.

Volcano stores the patch and ignores it; its design says how it is meant, and that is done here:
most fields replace, lists whose entries have a name merge by it, maps merge by key.  It works on
JSON trees, so that no field of a pod is unknown to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Tree = dict[str, Any]

_KEYS: dict[str, tuple[str, ...]] = {
    "tasks": ("name",),
    "volumes": ("name", "mountPath", "volumeClaimName"),
    "containers": ("name",),
    "initContainers": ("name",),
    "tolerations": ("key",),
    "hostAliases": ("ip",),
    "env": ("name",),
    "volumeMounts": ("mountPath", "name"),
    "ports": ("containerPort",),
}
"""Lists whose entries merge by name, and the fields that identify an entry: the first of them that
both entries have."""
_DEEP = frozenset({"tasks", "containers", "initContainers"})
"""Lists whose matching entries merge; in the others the patch's entry takes the place of the old
one."""
_MAPS = frozenset(
    {
        "template",
        "metadata",
        "spec",
        "labels",
        "annotations",
        "plugins",
        "nodeSelector",
        "resources",
        "requests",
        "limits",
    }
)
"""Objects that merge by key; every other object is replaced whole."""


def patched(tree: Tree, patch: Tree) -> Tree:
    """A tree with a patch applied; neither is changed."""
    merged = dict(tree)
    for name, value in patch.items():
        old = tree.get(name)
        if name in _KEYS and isinstance(old, list) and isinstance(value, list):
            merged[name] = _merged_list(name, old, value)
        elif name in _MAPS and isinstance(old, dict) and isinstance(value, dict):
            merged[name] = patched(old, value)
        else:
            merged[name] = value
    return merged


def _merged_list(name: str, old: list[Any], new: list[Any]) -> list[Any]:
    merged = list(old)
    for entry in new:
        at = next((at for at, known in enumerate(merged) if _same(name, known, entry)), None)
        if at is None:
            merged.append(entry)
        else:
            merged[at] = patched(merged[at], entry) if name in _DEEP else entry
    return merged


def _same(name: str, one: Any, other: Any) -> bool:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    key = next((key for key in _KEYS[name] if key in one and key in other), None)
    return key is not None and bool(one[key] == other[key])


_PARAMETER = re.compile(r"\$\(([^()]+)\)")


def filled(value: Any, parameters: Mapping[str, str]) -> Any:
    """A tree with each `$(name)` in its texts replaced by the flow's parameter.  Names that are no
    parameters stay, because they may be variables of a container."""
    if isinstance(value, str):
        return _PARAMETER.sub(lambda found: parameters.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {key: filled(each, parameters) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, parameters) for each in value]
    return value
