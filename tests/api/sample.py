"""Objects with every field set, made here or found beside the repository, to see that nothing is
lost on the wire."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

SAMPLES = Path(__file__).parents[2].parent / "shared" / "conformance" / "k8s-wire"

NEWER = {
    "bindMountOptions",
    "defaultUser",
    "evictionResponders",
    "healthStatus",
    "mapping",
    "mode",
    "nodeAllocatableResources",
    "overhead",
    "partitionTypeAttribute",
    "podPreemptionPolicy",
    "protocol",
    "scheduling",
    "skipNodeOperations",
    "status",
    "user",
    "volumeHealth",
}
"""Members of the samples that came to Kubernetes after the version that the structs describe."""

NOT_KEPT = {"managedFields", "selfLink", "disruptedPods"}
"""Members left out on purpose; disruptedPods is null in its sample."""


def filled(struct: type[msgspec.Struct]) -> Any:
    """An instance of `struct` in which no field has its default."""
    hints = get_type_hints(struct)
    return struct(
        **{
            field.name: _value(hints[field.name], field.name)
            for field in msgspec.structs.fields(struct)
        }
    )


def _value(hint: Any, name: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _value(arguments[0], name)
    if origin in (Union, types.UnionType):
        return _value(arguments[0], name)
    if origin is list:
        return [_value(arguments[0], name)]
    if origin is dict:
        return {f"{name}-key": _value(arguments[1], name)}
    if hint is Any:
        return {"anything": [1, "two", None]}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return filled(hint)
    scalars: dict[Any, Any] = {str: f"{name}-value", int: 7, bool: True, float: 0.5}
    return scalars[hint]
