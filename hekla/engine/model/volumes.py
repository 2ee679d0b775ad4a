"""Volumes and claims: which nodes a pod's volumes allow, and what a placement promises to its
claims.

Objects are read from the state's other objects when they are needed, and what was worked out is
kept until one of them changes. What was promised to an unbound claim (a node, and perhaps a volume)
holds until the claim is bound or no pod wants it any more. Reference: plugins-placement 1.6
(NodeVolumeLimits, VolumeZone, VolumeBinding).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hekla.api.text import quantity
from hekla.api.trees import Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools, Ints, Whole
from hekla.engine.model.nodes import ABSENT, NodeTable
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.state import State


CLAIM, VOLUME, CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
KINDS = frozenset({CLAIM, VOLUME, CLASS, "CSINode", "CSIDriver", "CSIStorageCapacity"})
WAIT = "WaitForFirstConsumer"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
EPHEMERAL = "ephemeral:"

NOT_AFFINE = "node(s) didn't match PersistentVolume's node affinity"
NOT_THERE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NOT_FOUND = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH = "node(s) did not have enough free storage"
IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
_ZONES = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}


@dataclass(slots=True)
class AssumedVolume:
    """What an unbound claim was promised by a placement."""

    node: str
    volume: str
    """Empty where the volume is to be provisioned."""
    owners: dict[str, str] = field(default_factory=dict)
    """Pod key -> UID."""


@dataclass(slots=True)
class Options:
    """Where the volumes of one pod allow it to go: `[nodes]` each, and for each unbound claim which
    volume a node offers."""

    allowed: dict[str, Bools]
    offers: dict[str, list[str]]
    """Claim -> volumes, and `[nodes]` indexes into them in `choice`; -1: to be provisioned."""
    choice: dict[str, Whole]


class Shape:
    """A broken line from utilisation (percent) to score (0 to 10 as it is written, 0 to 100 as it
    counts)."""

    def __init__(self, points: Iterable[Tree]) -> None:
        """Raises ValueError for points that make no line."""
        read = [{str(key).lower(): value for key, value in one.items()} for one in points]
        self.points = [(one.get("utilization", 0), one.get("score", 0)) for one in read]
        good = all(
            type(at) is int and type(score) is int and 0 <= at <= 100 and 0 <= score <= 10
            for at, score in self.points
        )
        if not good or any(one[0] >= other[0] for one, other in pairwise(self.points)):
            raise ValueError(
                "points {utilization: 0..100, score: 0..10}, in ascending order of utilization"
            )

    def __call__(self, part: Floats) -> Floats:
        if not self.points:
            return np.zeros(len(part))
        result: Floats = np.full(len(part), 10.0 * self.points[0][1])
        for (low, first), (high, last) in pairwise(self.points):
            within = part > low
            result[within] = 10 * first + np.trunc(
                10.0 * (last - first) * (np.minimum(part[within], high) - low) / (high - low)
            )
        return result


class VolumeBinder:
    """Kept with the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.version = 0
        """Goes up when an object of one of `KINDS` changes or a promise is made or given up."""
        self.promises: dict[str, AssumedVolume] = {}
        self._masks: dict[str, tuple[Tree, int, Bools]] = {}
        self._last: tuple[Hashable, Options] | None = None
        self._attached: dict[int, tuple[int, int, dict[str, frozenset[str]]]] = {}

    def _get(self, kind: str, key: str) -> Tree | None:
        return self._state.others.get(kind, {}).get(key)

    # ------------------------------------------------------------------------------ claims of a pod

    def claims(self, task: Task) -> list[str]:
        """Keys of the claims that a pod uses."""
        return [f"{task.namespace}/{_name(task, one)}" for one in task.pods.volumes]

    def trouble(self, task: Task) -> str:
        """Why no node at all will do; empty where nothing speaks against it."""
        for name, key in zip(task.pods.volumes, self.claims(task)):
            claim, short = self._get(CLAIM, key), key.partition("/")[2]
            if claim is None:
                if name.startswith(EPHEMERAL):
                    return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{short}"'
                return f'persistentvolumeclaim "{short}" not found'
            if (claim.get("status") or {}).get("phase") == "Lost":
                volume = (claim.get("spec") or {}).get("volumeName", "")
                return f'persistentvolumeclaim "{short}" bound to non-existent persistentvolume "{volume}"'
            if claim["metadata"].get("deletionTimestamp"):
                return f'persistentvolumeclaim "{short}" is being deleted'
        if any(not _volume_of(claim) and not self._waits(claim) for claim in self._known(task)):
            return IMMEDIATE
        return ""

    def _known(self, task: Task) -> list[Tree]:
        return [
            claim
            for claim in (self._get(CLAIM, key) for key in self.claims(task))
            if claim is not None
        ]

    def _waits(self, claim: Tree) -> bool:
        """Whether the claim is bound only once a pod that uses it has a node."""
        made = self._get(CLASS, _class_of(claim))
        return made is not None and made.get("volumeBindingMode") == WAIT

    # -------------------------------------------------------------------------------------- binding

    def options(self, task: Task) -> Options:
        """Computed once for a pod as long as neither nodes' objects nor volumes change."""
        nodes = self._state.nodes
        key = task.key, task.uid, self.version, nodes.static_version
        if self._last is None or self._last[0] != key:
            self._last = key, self._work_out(task, nodes)
        return self._last[1]

    def _work_out(self, task: Task, nodes: NodeTable) -> Options:
        size = len(nodes)
        allowed = {
            reason: np.ones(size, dtype=np.bool_)
            for reason in (NOT_AFFINE, NOT_THERE, NOT_FOUND, NOT_ENOUGH)
        }
        result = Options(allowed, {}, {})
        unbound: list[tuple[str, Tree]] = []
        for key in self.claims(task):
            claim = self._get(CLAIM, key)
            if claim is None:
                continue
            name = _volume_of(claim)
            if not name:
                unbound.append((key, claim))
                continue
            volume = self._get(VOLUME, name)
            if volume is None:
                allowed[NOT_THERE][:] = False
            else:
                allowed[NOT_AFFINE] &= self._affinity(name, volume, nodes)
        taken: list[Whole] = []
        volumes = self._free_volumes() if unbound else []
        for key, claim in sorted(unbound, key=lambda one: _size(one[1])):
            promise = self.promises.get(key)
            if promise is not None and task.key not in promise.owners:
                allowed[NOT_FOUND] &= _only(nodes, promise.node)
                continue
            selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if selected:
                allowed[NOT_FOUND] &= _only(nodes, selected)
            choice = self._match(key, claim, volumes, taken, nodes)
            taken.append(choice)
            result.offers[key] = [volume["metadata"]["name"] for volume in volumes]
            result.choice[key] = choice
            missing = choice < 0
            if missing.any():
                possible, roomy = self._provision(claim, nodes)
                allowed[NOT_FOUND] &= ~missing | possible
                allowed[NOT_ENOUGH] &= ~missing | ~possible | roomy
        return result

    def _free_volumes(self) -> list[Tree]:
        """Volumes that a claim may take, the smallest first."""
        promised = {promise.volume for promise in self.promises.values()}
        found = [
            volume
            for name, volume in self._state.others.get(VOLUME, {}).items()
            if name not in promised
            and (volume.get("status") or {}).get("phase", "Available") == "Available"
            and not volume["metadata"].get("deletionTimestamp")
        ]
        return sorted(found, key=lambda volume: (_capacity(volume), volume["metadata"]["name"]))

    def _match(
        self,
        key: str,
        claim: Tree,
        volumes: list[Tree],
        taken: list[Whole],
        nodes: NodeTable,
    ) -> Whole:
        """`[nodes]`: the smallest volume that suits the claim on each node, as an index; -1 where
        there is none."""
        choice = np.full(len(nodes), -1, dtype=np.int64)
        spec = claim.get("spec") or {}
        selector = matching.label_selector(spec.get("selector"))
        for index, volume in enumerate(volumes):
            if not _suits(key, claim, volume, selector):
                continue
            open_nodes = (choice < 0) & self._affinity(volume["metadata"]["name"], volume, nodes)
            for other in taken:
                open_nodes &= other != index
            choice[open_nodes] = index
        return choice

    def _affinity(self, name: str, volume: Tree, nodes: NodeTable) -> Bools:
        """`[nodes]`: which nodes reach the volume."""
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
        if required is None:
            return np.ones(len(nodes), dtype=np.bool_)
        known = self._masks.get(name)
        if known is not None and known[0] is volume and known[1] == nodes.static_version:
            return known[2]
        terms = matching.node_terms(required.get("nodeSelectorTerms"))
        mask = matching.any_term(terms, nodes)
        self._masks[name] = volume, nodes.static_version, mask
        return mask

    def _provision(self, claim: Tree, nodes: NodeTable) -> tuple[Bools, Bools]:
        """`[nodes]` twice: where a volume could be made, and where there is room for it."""
        none, every = np.zeros(len(nodes), dtype=np.bool_), np.ones(len(nodes), dtype=np.bool_)
        name = _class_of(claim)
        made = self._get(CLASS, name)
        provisioner = (made or {}).get("provisioner", "")
        if made is None or not provisioner or provisioner == NO_PROVISIONER:
            return none, none
        possible = every
        topologies = made.get("allowedTopologies") or ()
        if topologies:
            possible = none.copy()
            for one in topologies:
                wanted = [
                    {"key": at.get("key"), "operator": "In", "values": at.get("values")}
                    for at in one.get("matchLabelExpressions") or ()
                ]
                terms = matching.node_terms([{"matchExpressions": wanted}])
                possible |= matching.any_term(terms, nodes)
        driver = self._get("CSIDriver", provisioner)
        if driver is None or not (driver.get("spec") or {}).get("storageCapacity"):
            return possible, every
        roomy = none.copy()
        for one in self._state.others.get("CSIStorageCapacity", {}).values():
            room = one.get("maximumVolumeSize") or one.get("capacity")
            selector = matching.label_selector(one.get("nodeTopology"))
            if (
                one.get("storageClassName") != name
                or not room
                or selector is None
                or quantity.whole(room) < _size(claim)
            ):
                continue
            within = every.copy()
            for requirement in selector.requirements:
                within &= requirement.mask(nodes)
            roomy |= within
        return possible, roomy

    # ---------------------------------------------------------------------------------------- zones

    def zones(self, task: Task, nodes: NodeTable) -> Bools | None:
        """`[nodes]`: in the zones and regions of the pod's bound volumes; None where these name
        none."""
        result: Bools | None = None
        for claim in self._known(task):
            volume = self._get(VOLUME, _volume_of(claim)) if _volume_of(claim) else None
            labels = (volume or {"metadata": {}})["metadata"].get("labels") or {}
            for label, general in _ZONES.items():
                if label not in labels:
                    continue
                wanted = set(str(labels[label]).split("__"))
                own, other = nodes.labels(label), nodes.labels(general)
                codes = own.codes[: len(nodes)]
                fits = _in(own.values, codes, wanted) | (
                    (codes == ABSENT) & _in(other.values, other.codes[: len(nodes)], wanted)
                )
                result = fits if result is None else result & fits
        if result is None:
            return None
        without = np.ones(len(nodes), dtype=np.bool_)
        for label in _ZONES:
            without &= nodes.label_codes(label) == ABSENT
        return result | without

    # --------------------------------------------------------------------------------------- limits

    def within_limits(self, task: Task, nodes: NodeTable) -> Bools | None:
        """`[nodes]`: no driver has to attach more volumes than it can; None where no node states a
        limit."""
        described = self._state.others.get("CSINode", {})
        wanted = self._handles(task)
        if not described or not wanted:
            return None
        result = np.ones(len(nodes), dtype=np.bool_)
        for name, one in described.items():
            row = nodes.rows.get(name)
            limits = {
                driver.get("name", ""): int((driver.get("allocatable") or {}).get("count") or 0)
                for driver in (one.get("spec") or {}).get("drivers") or ()
                if (driver.get("allocatable") or {}).get("count") is not None
            }
            if row is None or not any(driver in limits for driver, _ in wanted):
                continue
            attached = self._attached_to(row, nodes)
            for driver, limit in limits.items():
                there = attached.get(driver, frozenset())
                new = {handle for own, handle in wanted if own == driver} - there
                if new and len(there) + len(new) > limit:
                    result[row] = False
        return result

    def _attached_to(self, row: int, nodes: NodeTable) -> dict[str, frozenset[str]]:
        stamp = int(nodes.stamps[row])
        known = self._attached.get(row)
        if known is not None and known[:2] == (stamp, self.version):
            return known[2]
        found: dict[str, set[str]] = {}
        for task in nodes.tasks[row].values():
            if task.pods.volumes:
                for driver, handle in self._handles(task):
                    found.setdefault(driver, set()).add(handle)
        frozen = {driver: frozenset(handles) for driver, handles in found.items()}
        self._attached[row] = stamp, self.version, frozen
        return frozen

    def _handles(self, task: Task) -> set[tuple[str, str]]:
        """Driver and handle of every volume; for an unbound claim its own name stands for the
        handle."""
        found = set()
        for key in self.claims(task):
            claim = self._get(CLAIM, key)
            if claim is None:
                continue
            volume = self._get(VOLUME, _volume_of(claim)) if _volume_of(claim) else None
            if volume is not None:
                csi = (volume.get("spec") or {}).get("csi") or {}
                if csi.get("driver"):
                    found.add((str(csi["driver"]), str(csi.get("volumeHandle", ""))))
            elif not _volume_of(claim):
                provisioner = (self._get(CLASS, _class_of(claim)) or {}).get("provisioner", "")
                if provisioner:
                    found.add((str(provisioner), key))
        return found

    def fullness(self, task: Task, shape: Shape) -> Floats | None:
        """`[nodes]`, 0 to 100: how well the volumes that each node offers would be used; None where
        none is to be chosen.

        For each storage class what is asked of it as a part of what would be taken, by the shape;
        then the mean over classes.
        """
        options = self.options(task)
        asked: dict[str, Floats] = {}
        taken: dict[str, Floats] = {}
        for key, choice in options.choice.items():
            claim = self._get(CLAIM, key)
            if claim is None:
                continue
            name, there = _class_of(claim), choice >= 0
            sizes = np.array(
                [*(_capacity(self._get(VOLUME, one) or {}) for one in options.offers[key]), 0],
                dtype=np.float64,
            )
            asked[name] = asked.get(name, 0.0) + np.where(there, float(_size(claim)), 0.0)
            taken[name] = taken.get(name, 0.0) + np.where(there, sizes[choice], 0.0)
        if not asked:
            return None
        total: Floats = np.zeros(len(self._state.nodes))
        classes: Floats = np.zeros(len(total))
        for name, amount in asked.items():
            has = taken[name] > 0
            part = np.floor(amount * 100.0 / np.where(has, taken[name], 1.0))
            total += np.where(has, shape(part), 0.0)
            classes += has
        return np.floor(total / np.maximum(classes, 1.0) + 0.5)

    # ------------------------------------------------------------------------------------- promises

    def promise(self, task: Task) -> None:
        """The pod has a node: its unbound claims go there with it."""
        options = self.options(task)
        node = self._state.nodes.names[task.row]
        for key in self.claims(task):
            held = self.promises.get(key)
            if held is not None and held.node == node:
                held.owners[task.key] = task.uid
            elif key in options.choice:
                index = int(options.choice[key][task.row])
                volume = options.offers[key][index] if index >= 0 else ""
                self.promises[key] = AssumedVolume(node, volume, {task.key: task.uid})
        self.version += 1

    def withdraw(self, task: Task) -> None:
        """The pod has lost its node again."""
        for key in self.claims(task):
            held = self.promises.get(key)
            if held is not None and held.owners.pop(task.key, None) is not None and not held.owners:
                del self.promises[key]
        self.version += 1

    def tidy(self) -> None:
        """Forget promises that were kept, or that nobody waits for any more."""
        tasks = self._state.tasks
        for key, held in list(self.promises.items()):
            claim = self._get(CLAIM, key)
            held.owners = {
                pod: uid
                for pod, uid in held.owners.items()
                if pod in tasks
                and tasks[pod].uid == uid
                and tasks[pod].status is not Status.PENDING
            }
            if not held.owners or claim is None or _volume_of(claim):
                del self.promises[key]
                self.version += 1

    def promised_to(self, task: Task) -> dict[str, str]:
        """Claim -> volume that it is to be bound to, empty where one is to be provisioned on the
        pod's node."""
        return {key: self.promises[key].volume for key in self.claims(task) if key in self.promises}


def _name(task: Task, volume: str) -> str:
    return (
        f"{task.name}-{volume.removeprefix(EPHEMERAL)}" if volume.startswith(EPHEMERAL) else volume
    )


def _volume_of(claim: Tree) -> str:
    return str((claim.get("spec") or {}).get("volumeName") or "")


def _class_of(claim: Tree) -> str:
    return str((claim.get("spec") or {}).get("storageClassName") or "")


def _size(claim: Tree) -> int:
    return quantity.whole(
        (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get(
            "storage", "0"
        )
    )


def _capacity(volume: Tree) -> int:
    return quantity.whole(((volume.get("spec") or {}).get("capacity") or {}).get("storage", "0"))


def _suits(key: str, claim: Tree, volume: Tree, selector: matching.LabelSelector | None) -> bool:
    wanted, spec = claim.get("spec") or {}, volume.get("spec") or {}
    owner = spec.get("claimRef")
    if owner is not None and f"{owner.get('namespace', '')}/{owner.get('name', '')}" != key:
        return False
    return (
        (wanted.get("storageClassName") or "") == (spec.get("storageClassName") or "")
        and (wanted.get("volumeMode") or "Filesystem") == (spec.get("volumeMode") or "Filesystem")
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and _capacity(volume) >= _size(claim)
        and (selector is None or selector.matches(volume["metadata"].get("labels") or {}))
    )


def _only(nodes: NodeTable, name: str) -> Bools:
    mask = np.zeros(len(nodes), dtype=np.bool_)
    if name in nodes.rows:
        mask[nodes.rows[name]] = True
    return mask


def _in(values: Iterable[str], codes: Ints, wanted: set[str]) -> Bools:
    verdicts = np.array([*(value in wanted for value in values), False], dtype=np.bool_)
    return verdicts[codes]
