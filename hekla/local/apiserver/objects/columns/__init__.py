"""Printer columns: what `kubectl get` shows of each kind (local-cluster 1.10)."""

from __future__ import annotations

import json
from typing import Any

from hekla.api.text.ages import age
from hekla.api.trees import Json
from hekla.local.apiserver.objects import jsonpath
from hekla.local.apiserver.objects.columns import core, others, pod, workloads
from hekla.local.apiserver.objects.columns.cells import AGE, NAME
from hekla.local.apiserver.objects.kind import Column

__all__ = ["AGE", "COLUMNS", "NAME", "custom_column", "of"]

COLUMNS: dict[tuple[str, str], tuple[Column, ...]] = {
    ("", "Pod"): pod.COLUMNS,
    **core.COLUMNS,
    **workloads.COLUMNS,
    **others.COLUMNS,
}


def of(group: str, kind: str) -> tuple[Column, ...]:
    """The printer columns of a built-in kind; name and age if it has none of its own."""
    return COLUMNS.get((group, kind), (NAME, AGE))


def custom_column(declared: Json) -> Column:
    """The column that a CustomResourceDefinition declares in `additionalPrinterColumns`."""
    path, kind = declared.get("jsonPath") or "", declared.get("type") or "string"
    description = (
        declared.get("description")
        or f"Custom resource definition column (in JSONPath format): {path}"
    )
    try:
        find = jsonpath.compile_path(path)
    except ValueError:
        find = _nothing

    def cell(tree: Json, now: float) -> Any:
        values = find(tree)
        return _shown(values, kind, now) if values else None

    return Column(
        declared.get("name") or "",
        kind,
        declared.get("format") or "",
        description,
        declared.get("priority") or 0,
        cell,
    )


def _nothing(_tree: Any) -> list[Any]:
    return []


def _shown(values: list[Any], kind: str, now: float) -> Any:
    value = values[0]
    if kind == "date":
        return age(value, now)
    if kind == "string":
        return ",".join(_text(item) for item in values)
    if kind == "integer":
        return (
            int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
        )
    if kind == "number":
        return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    return value if isinstance(value, bool) else None


def _text(value: Any) -> str:

    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
