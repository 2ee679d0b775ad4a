"""Dependency graphs of tasks and of flows.

The two kinds differ in what they tolerate: a task must name existing tasks, each once; a flow may
name a target twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


class UndefinedVertex(Exception):
    """An edge leads to a name that is not in the graph."""


def sorted_tasks(dependencies: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Names with every dependency before its dependents; None if there is no such order.

    Depth first in the given order, so that the result is stable.  A dependency on an unknown task,
    on the task itself, or a repeated one makes the whole graph invalid.
    """
    order: list[str] = []
    state: dict[str, int] = {}  # 1 being visited, 2 done
    for first in dependencies:
        if first in state:
            continue
        path: list[tuple[str, Iterator[str]]] = []
        name: str | None = first
        while name is not None or path:
            # By hand: a chain of tasks may be longer than calls may be deep.
            if name is not None:
                if name not in dependencies:
                    return None
                needed = list(dependencies[name])
                if len(set(needed)) != len(needed):
                    return None
                state[name] = 1
                path.append((name, iter(needed)))
            at, ahead = path[-1]
            name = next(ahead, None)
            if name is None:
                path.pop()
                state[at] = 2
                order.append(at)
            elif state.get(name) == 1:
                return None
            elif state.get(name) == 2:
                name = None
    return order


def is_acyclic(targets: Mapping[str, Iterable[str]]) -> bool:
    """Whether the graph has no cycle.  Raises UndefinedVertex for an unknown target."""
    for needed in targets.values():
        for name in needed:
            if name not in targets:
                raise UndefinedVertex(name)
    waits = {name: len(set(needed)) for name, needed in targets.items()}
    dependents: dict[str, list[str]] = {}
    for name, needed in targets.items():
        for target in set(needed):
            dependents.setdefault(target, []).append(name)
    free = [name for name, count in waits.items() if not count]
    done = 0
    while free:
        done += 1
        for name in dependents.get(free.pop(), ()):
            waits[name] -= 1
            if not waits[name]:
                free.append(name)
    return done == len(targets)
