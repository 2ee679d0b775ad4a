"""JSON trees: objects of the API as Python's json has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
Tree = Mapping[str, Any]
"""A tree that is only read."""
NESTED = frozenset({dict, list})
"""What a walk over a tree goes into.  All else stands for itself, and a call for each of it would
be most of the work."""


def without_nulls(tree: Any) -> Any:
    """The same tree without object members that are null."""
    if isinstance(tree, dict):
        return {
            name: without_nulls(value) if type(value) in NESTED else value
            for name, value in tree.items()
            if value is not None
        }
    if isinstance(tree, list):
        return [without_nulls(item) if type(item) in NESTED else item for item in tree]
    return tree
