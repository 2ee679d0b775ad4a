"""Dependency graphs of tasks and of flows.

The two kinds differ in what they tolerate: a task must name existing tasks, each once; a flow may name a target twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class UndefinedVertex(Exception):
    """An edge leads to a name that the graph does not have."""


def sorted_tasks(dependencies: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Names with every dependency before what needs it, or None where that cannot be.

    Depth first in the order given, so that the result is stable.  A dependency on an unknown task, on itself, or named
    twice makes the whole graph invalid.
    """
    order: list[str] = []
    state: dict[str, int] = {}  # 1 being visited, 2 done

    def visit(name: str) -> bool:
        if name in state:
            return state[name] == 2
        if name not in dependencies:
            return False
        state[name] = 1
        needed = list(dependencies[name])
        if len(set(needed)) != len(needed) or not all(visit(need) for need in needed):
            return False
        state[name] = 2
        order.append(name)
        return True

    return order if all(visit(name) for name in dependencies) else None


def is_acyclic(targets: Mapping[str, Iterable[str]]) -> bool:
    """Whether no path leads back to its start.  Raises UndefinedVertex for a target that is no vertex."""
    for needed in targets.values():
        for name in needed:
            if name not in targets:
                raise UndefinedVertex(name)
    remaining = {name: set(needed) for name, needed in targets.items()}
    while remaining:
        free = [name for name, needed in remaining.items() if not needed]
        if not free:
            return False
        for name in free:
            del remaining[name]
        for needed in remaining.values():
            needed.difference_update(free)
    return True
