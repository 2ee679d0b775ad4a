"""HyperNodes: which nodes are near each other, as a tree of named sets by tier (a lower tier is a
closer network).

The tree is built again when a HyperNode or the set of nodes changed, and kept otherwise.  Over all
stands a virtual root that holds every node, so that "anywhere" is a domain like any other.
Reference: scheduler-core 2.13, 5.1; plugins-placement 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.api.text.patterns import found_in
from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Group, Job, Topology, is_allocated

if TYPE_CHECKING:
    from hekla.engine.model.state import State

ROOT = "<cluster-top-hypernode>"
KIND = "HyperNode"


@dataclass(slots=True)
class HyperNode:
    """One domain: its tier, its parent, and the rows of its nodes at any depth."""

    name: str
    tier: int
    parent: str
    rows: Rows
    children: list[str]


class HyperTree:
    """All domains, the virtual root included."""

    def __init__(
        self,
        nodes: NodeTable,
        infos: Mapping[str, tuple[int, str]],
        members: Mapping[str, Iterable[str]],
        tiers: Mapping[int, Iterable[str]],
        tier_names: Mapping[str, int],
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        self.size = len(nodes)
        self.left_out = dict(left_out or {})
        """HyperNodes that have no place in the tree, or are not all that they say, and why.  The
        rest of the tree is used."""
        self.tier_names = dict(tier_names)
        self.real = bool(infos)
        highest = max([*(tier for tier, _ in infos.values()), *tiers], default=0)
        self.by_name: dict[str, HyperNode] = {}
        for name in sorted(infos):
            tier, parent = infos[name]
            self.by_name[name] = HyperNode(
                name, tier, parent or ROOT, _rows(nodes, members.get(name, ())), []
            )
        self.by_name[ROOT] = HyperNode(
            ROOT, max(1, highest + 1), "", np.flatnonzero(nodes.ready), []
        )
        for one in self.by_name.values():
            if one.parent in self.by_name:
                self.by_name[one.parent].children.append(one.name)
        self.number = {name: number for number, name in enumerate(self.by_name)}
        """Each domain's place in what `sums` gives."""
        inside = [one.rows for one in self.by_name.values()]
        self._above = np.array([self.number.get(one.parent, -1) for one in self.by_name.values()])
        self._tier = np.array([one.tier for one in self.by_name.values()])
        self._flat = np.concatenate(inside)
        self._owner = np.repeat(np.arange(len(inside)), [len(rows) for rows in inside])
        self.tiers = sorted(
            {*tiers, *(tier for tier, _ in infos.values()), self.by_name[ROOT].tier}
        )
        lowest = [
            name for tier, names in tiers.items() if tier == self.tiers[0] for name in sorted(names)
        ]
        self.leaves = np.full(self.size, -1, dtype=np.int64)
        self.leaf_names = lowest or [ROOT]
        if not lowest:
            self.leaves[self.by_name[ROOT].rows] = 0
        self._chains: NDArray[np.int64] | None = None
        """`[leaves, depth]`: each leaf and the domains above it, by number; made when first asked
        for."""
        for number in range(len(lowest) - 1, -1, -1):
            self.leaves[_rows(nodes, members.get(lowest[number], ()))] = number

    def sums(self, values: Floats) -> Floats:
        """`[domains]`, by their `number`: what is given for each node, added up over the nodes of
        each domain."""
        return np.bincount(
            self._owner, weights=values[self._flat], minlength=len(self.number)
        ).astype(np.float64, copy=False)

    def highest_within(self, values: Floats) -> Floats:
        """`[domains]`: the largest value of the domain itself and of all below it."""
        result = values.copy()
        for tier in np.unique(self._tier):
            here = np.flatnonzero((self._tier == tier) & (self._above >= 0))
            np.maximum.at(result, self._above[here], result[here])
        return result

    def tier_shared_with(self, domain: str) -> NDArray[np.int64]:
        """`[leaves]`: the tier of the closest domain that holds both the leaf and this one; -1
        where there is none."""
        if self._chains is None:
            chains = [
                [self.number.get(name, -1) for name in self.ancestors(leaf)]
                for leaf in self.leaf_names
            ]
            deepest = max(map(len, chains))
            self._chains = np.array([chain + [-1] * (deepest - len(chain)) for chain in chains])
        result = np.full(len(self.leaf_names), -1)
        for name in reversed(self.ancestors(domain)):
            if name in self.number:
                result[(self._chains == self.number[name]).any(axis=1)] = self.tier_of(name)
        return result

    @property
    def root_tier(self) -> int:
        return self.by_name[ROOT].tier

    def leaf(self, row: int) -> str:
        """The domain of the lowest tier that a node is in, or nothing."""
        number = int(self.leaves[row])
        return self.leaf_names[number] if number >= 0 else ""

    def mask(self, name: str) -> Bools:
        """`[nodes]` of a domain."""
        result = np.zeros(self.size, dtype=np.bool_)
        result[self.by_name[name].rows] = True
        return result

    def ancestors(self, name: str) -> list[str]:
        """The domain itself, its parent, and so on."""
        result = [name]
        while name in self.by_name and self.by_name[name].parent:
            name = self.by_name[name].parent
            result.append(name)
        return result

    def common(self, left: str, right: str) -> str:
        """The closest domain that holds both; one of them empty gives the other, nothing shared
        gives nothing."""
        if not left or not right:
            return left or right
        mine = set(self.ancestors(left))
        return next((name for name in self.ancestors(right) if name in mine), "")

    def tier_of(self, name: str) -> int:
        found = self.by_name.get(name)
        return self.root_tier if found is None else found.tier

    def smallest_holding(self, rows: Sequence[int]) -> str:
        """The domain of the lowest tier that holds all of these nodes, or nothing."""
        wanted = set(rows)
        for one in sorted(self.by_name.values(), key=lambda one: (one.tier, one.name)):
            if wanted <= set(one.rows.tolist()):
                return one.name
        return ""


def _rows(nodes: NodeTable, names: Iterable[str]) -> Rows:
    found = sorted(nodes.rows[name] for name in names if name in nodes.rows)
    rows = np.array(found, dtype=np.intp)
    return rows[nodes.ready[rows]] if len(rows) else rows


def tree_of(state: State) -> HyperTree:
    """The tree of the state's HyperNode objects, built again when they or the nodes changed."""
    key = (state.hyper_version, state.nodes.static_version)
    known = state.tree
    if isinstance(known, tuple) and known[0] == key and isinstance(known[1], HyperTree):
        return known[1]
    if isinstance(known, tuple):
        for name in known[1].left_out:
            state.rejected.pop((KIND, name), None)
    stated = state.hyper_nodes
    tree = build(state) if stated is None else _as_stated(state, stated)
    for name, reason in tree.left_out.items():
        state.rejected[KIND, name] = reason
    state.tree = (key, tree)
    return tree


def build(state: State) -> HyperTree:
    """From the objects alone."""
    objects = state.others.get("HyperNode", {})
    infos: dict[str, tuple[int, str]] = {}
    own: dict[str, set[str]] = {}
    below: dict[str, list[str]] = {}
    tier_names: dict[str, int] = {}
    for name, tree in objects.items():
        spec = tree.get("spec") or {}
        infos[name] = (int(spec.get("tier", 0) or 0), "")
        if spec.get("tierName"):
            tier_names[str(spec["tierName"])] = infos[name][0]
        own[name], below[name] = _members(state, spec.get("members") or ())
    parents, left_out = _parents(below)
    circles = _circles(parents)
    left_out |= circles
    parents = {
        child: above
        for child, above in parents.items()
        if child not in circles and above not in circles
    }
    infos = {
        name: (tier, parents.get(name, ""))
        for name, (tier, _) in infos.items()
        if name not in circles
    }
    everything = {name: set(rows) for name, rows in own.items()}
    for name in infos:
        above = parents.get(name, "")
        while above:
            if above in everything:
                everything[above] |= own[name]
            above = parents.get(above, "")
    tiers: dict[int, list[str]] = {}
    for name, (tier, _) in infos.items():
        tiers.setdefault(tier, []).append(name)
    return HyperTree(state.nodes, infos, everything, tiers, tier_names, left_out)


def _parents(below: Mapping[str, Iterable[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Each domain's parent, the first in order of names where several want to be, and what is said
    to the others."""
    parents: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in sorted(below):
        for child in below[name]:
            if parents.setdefault(child, name) != name:
                refused[name] = (
                    f"HyperNode {child} already has a parent {parents[child]}, and cannot set another parent {name}"
                )
    return parents, refused


def _circles(parents: Mapping[str, str]) -> dict[str, str]:
    """The domains that are above themselves, each with its circle.  Those below them stand without
    a parent."""
    found: dict[str, str] = {}
    known: set[str] = set()
    for first in sorted(parents):
        chain: list[str] = []
        place: dict[str, int] = {}
        name = first
        while name in parents and name not in known and name not in place:
            place[name] = len(chain)
            chain.append(name)
            name = parents[name]
        if name in place:
            circle = chain[place[name] :]
            words = f"cyclic dependency detected: HyperNode {name} is already in the ancestor chain {circle}"
            found.update(dict.fromkeys(circle, words))
        known.update(chain)
    return found


def _members(state: State, members: Iterable[Tree]) -> tuple[set[str], list[str]]:
    """Names of nodes and of domains below."""
    names: set[str] = set()
    below: list[str] = []
    for member in members:
        selector = member.get("selector") or {}
        exact = (selector.get("exactMatch") or {}).get("name", "")
        if member.get("type") == "HyperNode":
            if exact:
                below.append(exact)
            continue
        if exact:
            names.add(exact)
        pattern = (selector.get("regexMatch") or {}).get("pattern", "")
        if pattern:
            names |= found_in(pattern, state.nodes.rows)
        labelled = selector.get("labelMatch")
        if labelled:
            chosen = matching.sound_label_selector(labelled)
            if chosen is not None and chosen.requirements:
                names |= {
                    facts.name
                    for facts in state.nodes.facts
                    if facts is not None and chosen.matches(facts.labels)
                }
    return names, below


def _as_stated(state: State, stated: Tree) -> HyperTree:
    """From ready-made sets: what the recorded cases bring along."""
    parents: dict[str, str] = {}
    tier_names: dict[str, int] = {}
    for name, tree in state.others.get("HyperNode", {}).items():
        spec = tree.get("spec") or {}
        if spec.get("tierName"):
            tier_names[str(spec["tierName"])] = int(spec.get("tier", 0))
        for child in _members(state, spec.get("members") or ())[1]:
            parents[child] = name
    infos = {
        name: (int(info.get("tier", 0)), parents.get(name, info.get("parent", "")))
        for name, info in stated["infos"].items()
    }
    tiers = {int(tier): list(names) for tier, names in stated["tiers"].items()}
    return HyperTree(state.nodes, infos, stated["members"], tiers, tier_names)


# --------------------------------------------------------------------------------- jobs in the tree


def settle_topology(tree: HyperTree, job: Job) -> None:
    """What a job's topology means in this cycle, and where it already is.  Reference:
    scheduler-core 5.1, 5 and 6."""
    job.effective = _effective(tree, job.topology, None)
    above = job.effective.highest_tier if job.effective is not None else None
    for sub_job in job.sub_jobs.values():
        sub_job.effective = (
            job.effective
            if sub_job.topology is job.topology
            else _effective(tree, sub_job.topology, above)
        )
    _place(tree, job)


def _effective(tree: HyperTree, topology: Topology | None, above: int | None) -> Topology | None:
    if topology is None:
        return None
    tier = topology.highest_tier
    if topology.mode == "soft":
        return Topology("hard", tree.root_tier if above is None else above, "")
    if tier is None and topology.highest_tier_name in tree.tier_names:
        tier = tree.tier_names[topology.highest_tier_name]
    return Topology(topology.mode, tier, topology.highest_tier_name)


def _held_rows(group: Group) -> list[int]:
    return [
        task.row for task in group.tasks.values() if is_allocated(task.status) and task.row >= 0
    ]


def _place(tree: HyperTree, job: Job) -> None:
    changed = False
    for sub_job in job.sub_jobs.values():
        rows = _held_rows(sub_job)
        if not rows or sub_job.allocated_domain not in tree.by_name:
            changed = changed or bool(sub_job.allocated_domain)
            sub_job.allocated_domain = ""
        if rows and not sub_job.allocated_domain and sub_job.effective is not None:
            sub_job.allocated_domain = _recovered(tree, rows)
            changed = True
    if not _held_rows(job) or job.allocated_domain not in tree.by_name:
        job.allocated_domain = ""
    if changed or not job.allocated_domain:
        domain = ""
        for sub_job in job.sub_jobs.values():
            domain = tree.common(domain, sub_job.allocated_domain)
        job.allocated_domain = domain


def _recovered(tree: HyperTree, rows: list[int]) -> str:
    """Where its tasks are; nothing when one of them is on a node that is not in the session."""
    return tree.smallest_holding(rows)
