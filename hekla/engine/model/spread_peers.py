"""Spread peers: pods that the same Services select and the same owner keeps, and how many of them each node
has.

Kubernetes spreads a pod that states no spread constraints among its peers.  Which pods these are,
Services, ReplicaSets, StatefulSets and ReplicationControllers say; of these objects nothing but the
selector is kept.  The answer belongs to a set of labels, not to a pod, so a gang asks once; pods
that nobody selects have no peers, and nothing is counted for them. Reference: plugins-placement 2.2
(topology spread, system defaults).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.matching import LabelSelector, Requirement
from hekla.engine.model.resources import Floats

if TYPE_CHECKING:
    from hekla.engine.model.podclass import LabelSet
    from hekla.engine.model.tasks import Task

SERVICE, CONTROLLER = "Service", "ReplicationController"
OWNERS = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", CONTROLLER: "v1"}
"""Whose pods are their peers, by the API version in which the pods name them."""
KINDS = frozenset((SERVICE, *OWNERS))

Pair = tuple[str, str]
Selected = tuple[Requirement, ...]


class SpreadPeers:
    """All pods of a namespace that one selector means."""

    __slots__ = ("_asked", "_counts", "members", "namespace", "rows", "selector")

    def __init__(self, namespace: str, selector: LabelSelector, asked: set[SpreadPeers]) -> None:
        self._asked = asked
        self.namespace = namespace
        self.selector = selector
        self.members: set[LabelSet] = set()
        self.rows: dict[int, int] | None = None
        """Node row -> pods there that are not on their way out; None until they have been counted.
        """
        self._counts: Floats | None = None

    def moved(self, row: int, by: int) -> None:
        """A pod came to a node (`by` 1) or left it (`by` -1)."""
        rows = self.rows
        if rows is None:
            return
        left = rows.get(row, 0) + by
        if left:
            rows[row] = left
        else:
            del rows[row]
        if self._counts is not None:
            if row < len(self._counts):
                self._counts[row] += by
            else:
                self._counts = None

    def counts(self, size: int) -> Floats:
        """`[nodes]`: how many are on each; to be read before the next placement."""
        counts = self._counts
        if counts is None or len(counts) < size:
            counts = self._counts = np.zeros(size)
            self._asked.add(self)
            if self.rows:
                counts[list(self.rows)] = list(self.rows.values())
        return counts[:size]

    def rest(self) -> None:
        """Nobody asks for a while: what can be made again is let go."""
        self._counts = None

    def renumber(self, moved: list[int]) -> None:
        """Nodes have other rows now."""
        self._counts = None
        if self.rows:
            self.rows = {moved[row]: count for row, count in self.rows.items()}


class SpreadPeersIndex:
    """Who selects whom.  A look-up costs by how many share the rarest label, not by how many there
    are."""

    def __init__(self) -> None:
        self.services: dict[str, dict[str, dict[str, str]]] = {}
        """Namespace -> name -> the labels that a Service selects by."""
        self.owners: dict[tuple[str, str], Selected] = {}
        """Namespace, and kind and name of a pod's owner -> what it selects by."""
        self.by_selectors: dict[tuple[str, Selected], SpreadPeers] = {}
        self.uncounted: list[SpreadPeers] = []
        self.asked: set[SpreadPeers] = set()
        """Spread peers that counts are kept of in this cycle."""
        self._here: dict[str, list[LabelSet]] = {}
        """Namespace -> all known sets of labels."""
        self._indexed: set[str] = set()
        """Namespaces in which somebody selects, so that `_labels` is kept for them."""
        self._labels: dict[tuple[str, Pair | None], set[LabelSet]] = {}
        self._owned: dict[tuple[str, str], set[LabelSet]] = {}
        self._services: dict[tuple[str, Pair], set[str]] = {}
        self._filed: dict[tuple[str, str], Pair] = {}
        """Service -> the one of its labels under which it is found."""
        self._by_pair: dict[tuple[str, Pair | None], list[SpreadPeers]] = {}

    # ---------------------------------------------------------------------------------- what is fed

    def changed(self, kind: str, key: str, tree: Tree | None) -> None:
        """A Service or an owner of pods came, changed or (None) left.  Raises ValueError for a
        selector that cannot be read."""
        namespace, _, name = key.rpartition("/")
        spec = (tree or {}).get("spec") or {}
        if kind == SERVICE:
            self._service(namespace, name, _pairs(spec.get("selector")))
            return
        if kind == CONTROLLER:
            selected = _equal(_pairs(spec.get("selector")))
        else:
            selected = _requirements(spec.get("selector"))
        owner = namespace, f"{kind}/{name}"
        if self.owners.get(owner, ()) == selected:
            return
        if selected:
            self.owners[owner] = selected
        else:
            del self.owners[owner]
        self._look_again(self._owned.get(owner, ()))

    def _service(self, namespace: str, name: str, selector: dict[str, str]) -> None:
        known = self.services.setdefault(namespace, {})
        old = known.pop(name, {})
        if selector:
            known[name] = selector
        if not known:
            del self.services[namespace]
        if old == selector:
            return
        affected = self._selected(namespace, _equal(old)) if old else set()
        if old:
            self._services[namespace, self._filed.pop((namespace, name))].discard(name)
        if selector:
            rarest = min(
                selector.items(), key=lambda pair: len(self._services.get((namespace, pair), ()))
            )
            self._filed[namespace, name] = rarest
            self._services.setdefault((namespace, rarest), set()).add(name)
            affected |= self._selected(namespace, _equal(selector))
        self._look_again(affected)

    def met(self, labels: LabelSet) -> None:
        """A new set of labels."""
        namespace = labels.namespace
        self._here.setdefault(namespace, []).append(labels)
        if namespace in self._indexed:
            self._index(labels)
        if labels.owner:
            self._owned.setdefault((namespace, labels.owner), set()).add(labels)
        if self.by_selectors:
            found = [
                peers
                for pair in (*labels.labels.items(), None)
                for peers in self._by_pair.get((namespace, pair), ())
            ]
            labels.counted = frozenset(
                peers for peers in found if peers.selector.matches(labels.labels)
            )
            for peers in labels.counted:
                peers.members.add(labels)
        if labels.owner or namespace in self.services:
            self._look_again((labels,))

    def keep(self, label_sets: Iterable[LabelSet]) -> None:
        """Forget all sets of labels but these, and peers that nobody has."""
        live = set(label_sets)
        self._here = {
            namespace: found
            for namespace, listed in self._here.items()
            if (found := [one for one in listed if one in live])
        }
        self._labels = {
            key: still for key, those in self._labels.items() if (still := those & live)
        }
        self._owned = {key: still for key, those in self._owned.items() if (still := those & live)}
        self._services = {key: names for key, names in self._services.items() if names}
        wanted = {labels.peers for labels in live}
        self.by_selectors = {
            key: peers for key, peers in self.by_selectors.items() if peers in wanted
        }
        for peers in self.by_selectors.values():
            peers.members &= live
        self._by_pair = {
            key: left
            for key, listed in self._by_pair.items()
            if (left := [peers for peers in listed if peers in wanted])
        }
        for labels in live:
            if labels.counted:
                labels.counted = frozenset(peers for peers in labels.counted if peers in wanted)

    # -------------------------------------------------------------------------------- what is asked

    def count(self, held: Iterable[Mapping[str, Task]]) -> None:
        """New peers learn where they are; `held` are the tasks of each node."""
        placed = [
            peers for peers in self.uncounted if any(labels.placed for labels in peers.members)
        ]
        for peers in self.uncounted:
            peers.rows = {}
        self.uncounted.clear()
        if not placed:
            return
        new = set(placed)
        for row, tasks in enumerate(held):
            for task in tasks.values():
                for peers in task.labels.counted:
                    if peers in new and not task.terminating:
                        peers.moved(row, 1)

    def rest(self) -> None:
        """A cycle ends."""
        for peers in self.asked:
            peers.rest()
        self.asked.clear()

    # --------------------------------------------------------------------------------------- inside

    def _index(self, labels: LabelSet) -> None:
        for pair in (*labels.labels.items(), None):
            self._labels.setdefault((labels.namespace, pair), set()).add(labels)

    def _look_again(self, affected: Iterable[LabelSet]) -> None:
        for labels in list(affected):
            selected = self._selector(labels)
            labels.peers = self._peers_of(labels.namespace, selected) if selected else None

    def _selector(self, labels: LabelSet) -> Selected:
        """What selects pods with these labels: all Services that do, in one, and their owner's
        selector."""
        own, namespace = labels.labels, labels.namespace
        merged: dict[str, str] = {}
        services = self.services.get(namespace, {})
        for pair in own.items() if services else ():
            for name in self._services.get((namespace, pair), ()):
                selector = services[name]
                if all(own.get(key) == value for key, value in selector.items()):
                    merged.update(selector)
        by_owner = self.owners.get((namespace, labels.owner), ()) if labels.owner else ()
        return tuple(sorted({*_equal(merged), *by_owner}, key=_text)) if merged or by_owner else ()

    def _peers_of(self, namespace: str, selected: Selected) -> SpreadPeers:
        known = self.by_selectors.get((namespace, selected))
        if known is not None:
            return known
        peers = self.by_selectors[namespace, selected] = SpreadPeers(
            namespace, LabelSelector(selected), self.asked
        )
        peers.members = self._selected(namespace, selected)
        for labels in peers.members:
            labels.counted |= {peers}
        pairs = _equalities(selected)
        filed = min(
            pairs, key=lambda pair: len(self._by_pair.get((namespace, pair), ())), default=None
        )
        self._by_pair.setdefault((namespace, filed), []).append(peers)
        self.uncounted.append(peers)
        return peers

    def _selected(self, namespace: str, selected: Selected) -> set[LabelSet]:
        """All known sets of labels that a selector means."""
        if namespace not in self._indexed:
            self._indexed.add(namespace)
            for labels in self._here.get(namespace, ()):
                self._index(labels)
        pairs: list[Pair | None] = [*_equalities(selected), None]
        found = min((self._labels.get((namespace, pair), set()) for pair in pairs), key=len)
        selector = LabelSelector(selected)
        return {labels for labels in found if selector.matches(labels.labels)}


def owner_of(meta: Tree) -> str:
    """Kind and name of the owner whose pods are this pod's peers; "" for any other owner."""
    for one in meta.get("ownerReferences") or ():
        if one.get("controller"):
            kind = one.get("kind", "")
            return (
                f"{kind}/{one.get('name', '')}"
                if kind in OWNERS and OWNERS[kind] == one.get("apiVersion")
                else ""
            )
    return ""


def _pairs(selector: Tree | None) -> dict[str, str]:
    """A selector that is a map.  Raises ValueError where it is none."""
    found = dict(selector or {})
    if not all(type(value) is str for value in found.values()):
        raise ValueError(f"spec.selector = {selector!r}: a selector is a map from label to text")
    return found


def _requirements(selector: Tree | None) -> Selected:
    """A selector with expressions.  Raises ValueError where it is none."""
    _pairs((selector or {}).get("matchLabels"))
    found = matching.label_selector(selector)
    selected = found.requirements if found is not None else ()
    if not all(type(one.key) is str for one in selected):
        raise ValueError(f"spec.selector = {selector!r}: the key of an expression is a text")
    return selected


def _equal(pairs: Mapping[str, str]) -> Selected:
    return tuple(Requirement(key, "In", (value,)) for key, value in pairs.items())


def _equalities(selected: Selected) -> list[Pair]:
    return [
        (one.key, one.values[0])
        for one in selected
        if one.operator == "In" and len(one.values) == 1
    ]


def _text(one: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return one.key, one.operator, one.values
