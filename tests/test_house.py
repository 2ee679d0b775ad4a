"""The structure of the code: no large circle of imports, type-only ones counted, and no crowded
folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_IN_A_CIRCLE, MOST_IN_A_FOLDER = 5, 25


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / "hekla").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """Modules that reach each other: every reach is followed forwards and backwards (Kosaraju)."""
    order: list[str] = []
    seen: set[str] = set()
    for start in arrows:
        stack = [] if start in seen else [(start, iter(arrows[start]))]
        seen.add(start)
        while stack:
            module, rest = stack[-1]
            below = next((one for one in rest if one not in seen), None)
            if below is None:
                order.append(module)
                stack.pop()
            else:
                seen.add(below)
                stack.append((below, iter(arrows[below])))
    back: dict[str, set[str]] = {module: set() for module in arrows}
    for module, to in arrows.items():
        for one in to:
            back[one].add(module)
    found, left = [], set(arrows)
    for module in reversed(order):
        if module not in left:
            continue
        circle, edge = set(), {module}
        while edge:
            circle |= edge
            left -= edge
            edge = {one for member in edge for one in back[member]} & left
        found.append(circle)
    return found


def test_circles_are_found() -> None:
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": set()}
    assert sorted(map(sorted, circles(arrows))) == [["a", "b", "c"], ["d"], ["e"]]


def test_no_circle_of_imports_is_large() -> None:
    known = modules()
    arrows = {
        module: {one for one in imported(path, known) if one in known and one != module}
        for module, path in known.items()
    }
    large = [sorted(circle) for circle in circles(arrows) if len(circle) > MOST_IN_A_CIRCLE]
    assert not large


def test_no_folder_is_crowded() -> None:
    folders: dict[Path, int] = {}
    for path in modules().values():
        folders[path.parent] = folders.get(path.parent, 0) + 1
    assert not {str(folder): files for folder, files in folders.items() if files > MOST_IN_A_FOLDER}
