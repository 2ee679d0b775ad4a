"""Building blocks of printer columns: labels and selectors as text, container names. The functions
are pure; `now` is a parameter, in seconds since the epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hekla.api.text.ages import age
from hekla.api.trees import Json
from hekla.local.apiserver.objects.kind import Column

Cell = Callable[[Json, float], Any]
NONE, UNSET = "<none>", "<unset>"


def at(tree: Any, *path: str) -> Any:
    """The value at a path, None where it ends early."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def cell(*path: str, absent: Any = "") -> Cell:
    """A cell that shows the value at a path, or `absent` if there is none."""

    def value(tree: Json, _now: float) -> Any:
        value_at_path = at(tree, *path)
        return absent if value_at_path is None or value_at_path == "" else value_at_path

    return value


def labels(values: Json | None) -> str:
    """Labels as kubectl prints them: `a=1,b=2`."""
    return ",".join(f"{key}={value}" for key, value in sorted((values or {}).items())) or NONE


_OPERATORS = {"In": "in", "NotIn": "notin"}


def selector(value: Json | None) -> str:
    """A LabelSelector as kubectl prints it."""
    if value is None:
        return NONE
    terms = [f"{key}={text}" for key, text in sorted((value.get("matchLabels") or {}).items())]
    for wanted in value.get("matchExpressions") or ():
        key, operator = wanted.get("key", ""), wanted.get("operator", "")
        if operator == "Exists":
            terms.append(key)
        elif operator == "DoesNotExist":
            terms.append(f"!{key}")
        else:
            terms.append(
                f"{key} {_OPERATORS.get(operator, operator)} ({','.join(sorted(wanted.get('values') or ()))})"
            )
    return ",".join(terms) or NONE


def containers(*path: str) -> tuple[Column, Column]:
    """The columns of `-o wide` with the names and images of a pod template's containers."""

    def joined(field: str) -> Cell:
        def text(tree: Json, _now: float) -> str:
            containers = at(tree, *path, "containers") or ()
            return ",".join(str(container.get(field, "")) for container in containers)

        return text

    return (
        wide("Containers", joined("name"), "Names of each container in the template."),
        wide("Images", joined("image"), "Images referenced by each container in the template."),
    )


def column(
    name: str, value: Cell, description: str = "", type: str = "string", format: str = ""
) -> Column:
    """A printer column that `kubectl get` always shows."""
    return Column(name, type, format, description or f"{name} of the object.", 0, value)


def number(name: str, value: Cell, description: str = "") -> Column:
    """A column of integers."""
    return column(name, value, description, "integer")


def wide(name: str, value: Cell, description: str = "", type: str = "string") -> Column:
    """A column that only `-o wide` shows."""
    return Column(name, type, "", description or f"{name} of the object.", 1, value)


def listed(values: Iterable[str], limit: int = 3) -> str:
    """The first `limit` texts, and how many more there are."""
    texts = list(values)
    if len(texts) > limit:
        return ",".join(texts[:limit]) + f" + {len(texts) - limit} more..."
    return ",".join(texts) or NONE


NAME = Column(
    "Name",
    "string",
    "name",
    "Name of the object, unique among its kind in its namespace.",
    0,
    cell("metadata", "name"),
)
AGE = column(
    "Age",
    lambda tree, now: age(at(tree, "metadata", "creationTimestamp"), now),
    "How long ago the object was created.",
)
CREATED = Column(
    "Created At",
    "date",
    "",
    "When the object was created.",
    0,
    cell("metadata", "creationTimestamp"),
)
