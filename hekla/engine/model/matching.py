"""Label selectors and node selectors, compiled once a pod class and asked as masks over nodes.

Reference: plugins-placement 1.6 (NodeAffinity, TaintToleration).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hekla.api.trees import Tree
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import (
    ABSENT,
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    NodeTable,
    Taint,
)
from hekla.engine.model.resources import Floats

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", NO_SCHEDULE)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression over a label (or over the node's name)."""

    key: str
    operator: str
    values: tuple[str, ...]

    def holds(self, labels: Mapping[str, str]) -> bool:
        """For one set of labels."""
        present = self.key in labels
        if self.operator == "In":
            return present and labels[self.key] in self.values
        if self.operator == "NotIn":
            return not present or labels[self.key] not in self.values
        if self.operator == "Exists":
            return present
        if self.operator == "DoesNotExist":
            return not present
        return present and self._compare(labels[self.key])

    def _compare(self, value: str) -> bool:
        if not self.values or not _WHOLE.fullmatch(value) or not _WHOLE.fullmatch(self.values[0]):
            return False
        left, right = int(value), int(self.values[0])
        return left > right if self.operator == "Gt" else left < right

    def mask(self, nodes: NodeTable) -> Bools:
        """For all nodes."""
        column = nodes.labels(self.key)
        codes = column.codes[: len(nodes)]
        if self.operator in ("Exists", "DoesNotExist"):
            present: Bools = codes != ABSENT
            return present if self.operator == "Exists" else ~present
        if self.operator in ("In", "NotIn"):
            wanted = [column.index[value] for value in self.values if value in column.index]
            hit: Bools = codes == wanted[0] if len(wanted) == 1 else np.isin(codes, wanted)
            return hit if self.operator == "In" else ~hit
        # One verdict a distinct value; the last entry answers for code -1, which is "absent".
        verdicts = np.array(
            [*(self._compare(value) for value in column.values), False], dtype=np.bool_
        )
        return verdicts[codes]


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative of a node selector: all of its expressions must hold; without any, it matches
    nothing."""

    expressions: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    def mask(self, nodes: NodeTable) -> Bools:
        if not self.expressions and not self.fields:
            return np.zeros(len(nodes), dtype=np.bool_)
        result = np.ones(len(nodes), dtype=np.bool_)
        for expression in self.expressions:
            result &= expression.mask(nodes)
        for field in self.fields:
            named = np.zeros(len(nodes), dtype=np.bool_)
            rows = [nodes.rows[name] for name in field.values if name in nodes.rows]
            named[rows] = True
            result &= named if field.operator == "In" else ~named
        return result


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector; `None` in its place selects nothing, an empty one everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def requirements(expressions: Sequence[Tree] | None) -> tuple[Requirement, ...]:
    """Expressions of a selector.  Raises ValueError for an operator that does not exist."""
    result = []
    for expression in expressions or ():
        operator = expression.get("operator", "")
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"):
            raise ValueError(f"{operator!r} is not an operator of a selector")
        values = tuple(str(value) for value in expression.get("values") or ())
        result.append(Requirement(expression.get("key", ""), operator, values))
    return tuple(result)


def label_selector(tree: Tree | None) -> LabelSelector | None:
    """A LabelSelector as Kubernetes writes it."""
    if tree is None:
        return None
    equal = tuple(
        Requirement(key, "In", (value,)) for key, value in (tree.get("matchLabels") or {}).items()
    )
    return LabelSelector((*equal, *requirements(tree.get("matchExpressions"))))


def sound_label_selector(tree: Tree | None) -> LabelSelector | None:
    """The same where nobody has looked at it before: None for one that Kubernetes would not take."""
    try:
        found = label_selector(tree)
    except ValueError:
        return None
    lists = {"In": True, "NotIn": True, "Exists": False, "DoesNotExist": False}
    if found is None or any(
        lists.get(one.operator) is not bool(one.values) for one in found.requirements
    ):
        return None
    return found


def _fields(expressions: Sequence[Tree] | None) -> tuple[Requirement, ...]:
    """Expressions over a node's fields, of which there is one: its name, one at a time.  Raises
    ValueError for any other."""
    result = requirements(expressions)
    for one in result:
        if (
            one.key != "metadata.name"
            or one.operator not in ("In", "NotIn")
            or len(one.values) != 1
        ):
            raise ValueError(
                f"{one.key!r} {one.operator} {list(one.values)}: a field is metadata.name, In or NotIn one value"
            )
    return result


def node_terms(trees: Sequence[Tree] | None) -> tuple[NodeTerm, ...]:
    """The alternatives of a node selector; one that cannot be read is left out, as if it matched
    nothing."""
    result = []
    for tree in trees or ():
        try:
            term = NodeTerm(
                requirements(tree.get("matchExpressions")), _fields(tree.get("matchFields"))
            )
        except ValueError:
            continue
        result.append(term)
    return tuple(result)


def any_term(terms: Iterable[NodeTerm], nodes: NodeTable) -> Bools:
    """`[nodes]`: those that one of the alternatives of a node selector means."""
    either = np.zeros(len(nodes), dtype=np.bool_)
    for term in terms:
        either |= term.mask(nodes)
    return either


def tolerations(trees: Sequence[Tree] | None) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            tree.get("key", ""),
            tree.get("operator", "") or "Equal",
            tree.get("value", ""),
            tree.get("effect", ""),
        )
        for tree in trees or ()
    )


def tolerated(taints: Sequence[Taint], by: Sequence[Toleration], effects: tuple[str, ...]) -> bool:
    """Every taint of these effects is tolerated."""
    return all(
        taint.effect not in effects or any(one.tolerates(taint) for one in by) for taint in taints
    )


def hard_taints_mask(nodes: NodeTable, by: Sequence[Toleration]) -> Bools:
    """`[nodes]`: no taint keeps the pod away.  Computed once a distinct list of taints, then looked
    up."""
    verdicts = [tolerated(taints, by, (NO_SCHEDULE, NO_EXECUTE)) for taints in nodes.taint_sets]
    return np.array(verdicts, dtype=np.bool_)[nodes.taint_codes]


def soft_taints_count(nodes: NodeTable, by: Sequence[Toleration]) -> Floats:
    """`[nodes]`: how many taints would rather keep the pod away."""
    heard = [one for one in by if one.effect in ("", PREFER_NO_SCHEDULE)]
    counts = [
        sum(
            1
            for taint in taints
            if taint.effect == PREFER_NO_SCHEDULE and not any(one.tolerates(taint) for one in heard)
        )
        for taints in nodes.taint_sets
    ]
    return np.array(counts, dtype=np.float64)[nodes.taint_codes]
