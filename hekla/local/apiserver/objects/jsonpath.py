"""The part of JSONPath that printer columns and scale paths use: fields, positions, `*`, and
filters such as `[?(@.type=="Ready")]`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_STEP = re.compile(
    r"""\.(?P<field>(?:\\.|[^.\[\]\\])+)
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | \[(?P<index>-?\d+)\]
      | (?P<star>\[\*\])
      | \[\?\(\s*@\.(?P<key>[^\s=!<>)]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)

Finder = Callable[[Any], list[Any]]
_Step = Callable[[Any], list[Any]]


def compile_path(path: str) -> Finder:
    """A function that returns what the path finds in a tree, in order. Raises ValueError for a path
    that is not supported."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[_Step] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError(
                f"{path!r} is not a path that can be followed: {text[at:]!r} is no step of one"
            )
        steps.append(_step(match))
        at = match.end()

    def find(tree: Any) -> list[Any]:
        nodes = [tree]
        for step in steps:
            nodes = [value for node in nodes for value in step(node)]
            if not nodes:
                break
        return nodes

    return find


def _step(match: re.Match[str]) -> _Step:
    if match["star"]:
        return lambda node: (
            list(node)
            if isinstance(node, list)
            else list(node.values())
            if isinstance(node, dict)
            else []
        )
    if match["index"]:
        position = int(match["index"])
        return lambda node: (
            [node[position]]
            if isinstance(node, list) and -len(node) <= position < len(node)
            else []
        )
    if match["key"]:
        return _filter(match["key"].split("."), match["op"], match["value"])
    name = match["quoted"] or match["field"].replace("\\", "")
    if name == "*":
        return lambda node: (
            list(node)
            if isinstance(node, list)
            else list(node.values())
            if isinstance(node, dict)
            else []
        )
    return lambda node: (
        [node[name]] if isinstance(node, dict) and node.get(name) is not None else []
    )


def _filter(keys: list[str], operator: str, text: str) -> _Step:
    if text[0] in "'\"":
        wanted: Any = text[1:-1]
    else:
        try:
            wanted = json.loads(text)
        except ValueError:
            wanted = text

    def keep(node: Any) -> bool:
        for key in keys:
            if not isinstance(node, dict) or key not in node:
                return False
            node = node[key]
        return bool(node == wanted) == (operator == "==")

    return lambda node: [item for item in node if keep(item)] if isinstance(node, list) else []
