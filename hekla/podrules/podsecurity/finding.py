"""The findings of the checks in a pod, and their words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from hekla.api.text.fieldrules import Tree
from hekla.podrules.walking import containers_of


class Finding(NamedTuple):
    """Why a pod is not allowed."""

    reason: str
    detail: str


Check = Callable[[Tree, Tree], Finding | None]
"""(metadata, spec) of a pod or of a template -> what is wrong with it"""


def containers(spec: Tree) -> Iterator[Tree]:
    """All containers, of every kind."""
    return (container for container, _ in containers_of(spec, ""))


def context_of(thing: Tree) -> Tree:
    return thing.get("securityContext") or {}


def name_of(container: Tree) -> str:
    return container.get("name") or ""


def in_quotes(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def plural(singular: str, names: Sequence[str] | set[str]) -> str:
    return singular if len(names) == 1 else singular + "s"


def named(singular: str, names: Sequence[str]) -> str:
    """`container "a"`, `containers "a", "b"`."""
    return f"{plural(singular, names)} {in_quotes(names)}"


def use(names: Sequence[str] | set[str]) -> str:
    return "uses" if len(names) == 1 else "use"


def setters(pod: bool, containers: Sequence[str]) -> str:
    """Who sets something: the pod, some containers, or both."""
    return " and ".join(
        (["pod"] if pod else []) + ([named("container", containers)] if containers else [])
    )
