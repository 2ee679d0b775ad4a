"""Which nodes the members of a hypernode name (reference: controllers 10.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hekla.api import topology
from hekla.api.selectors import of_object
from hekla.api.text.patterns import found_in

Nodes = Mapping[str, Mapping[str, str]]
"""The labels of each node, by its name."""


def names_of(member: topology.Member, nodes: Nodes) -> set[str]:
    """The names of a member's nodes.  An exact name need not exist; a pattern and a selector choose
    among the nodes, and choose none when they are invalid."""
    selector = member.selector
    if selector is None:
        return set()
    if selector.exact_match is not None:
        return {selector.exact_match.name} - {""}
    if selector.regex_match is not None:
        return found_in(selector.regex_match.pattern, nodes)
    if selector.label_match is not None:
        if not selector.label_match.match_labels and not selector.label_match.match_expressions:
            return set()
        try:
            wanted = of_object(selector.label_match)
        except ValueError:
            return set()
        return {name for name, labels in nodes.items() if wanted.matches(labels)}
    return set()


def node_count(members: Iterable[topology.Member], nodes: Nodes) -> int:
    """The number of different names among all members, whatever their types."""
    found: set[str] = set()
    for member in members:
        found |= names_of(member, nodes)
    return len(found)
