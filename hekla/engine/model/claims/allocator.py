"""Who has which device, and where a pod's claims can be had.

What the API says of claims is taken in as it comes; what a placement decided is a promise, which
counts like an allocation until the API shows it or no pod wants it any more.  Answers for all nodes
are kept for every pod that asks for the same, and renewed for the nodes that see a pool of which a
device was taken or given back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json, Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools
from hekla.engine.model.claims.allocation import (
    Booking,
    allocation_for,
    allocation_of,
    booking_of,
)
from hekla.engine.model.claims.extended import MARK, ExtendedResources, pod_of
from hekla.engine.model.claims.pools import NOTHING, NodeDevices
from hekla.engine.model.claims.requests import (
    CLAIM,
    CLASS,
    ClaimRequest,
    ClaimRequests,
    Unreadable,
)
from hekla.engine.model.claims.search import CANNOT, STEPS_A_SECOND, Found, Usage, find
from hekla.engine.model.claims.slice_tracker import SliceTracker
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import FINISHED, Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.state import State


SLICE, TAINT_RULE = "ResourceSlice", "DeviceTaintRule"
KINDS = frozenset({CLAIM, SLICE, CLASS, TAINT_RULE})
ELSEWHERE = "resourceclaim not available on the node"
MOST_PODS = 256
"""So many pods may share a claim."""


@dataclass(slots=True)
class AssumedClaim:
    """What a placement gave to a claim that the API shows without an allocation."""

    allocation: Tree
    booking: Booking
    owners: dict[str, str]
    """Pod key -> UID."""


@dataclass(slots=True)
class Answers:
    """For pods that ask for one list of claims: which nodes have it, and as of when that is known
    of each."""

    stamps: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    fits: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    scores: Floats = field(default_factory=lambda: np.zeros(0))
    reasons: dict[int, str] = field(default_factory=dict)
    """Row -> why not, where it is anything else than that there is not enough."""
    ranked: bool = False

    def grow(self, size: int) -> None:
        more = size - len(self.stamps)
        if more > 0:
            self.stamps = np.append(self.stamps, np.full(more, -1, dtype=np.int64))
            self.fits = np.append(self.fits, np.zeros(more, dtype=np.bool_))
            self.scores = np.append(self.scores, np.zeros(more))


class DeviceAllocator:
    """What each claim has been given or promised, and which nodes have devices for those that have
    nothing.  Kept with the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._slices = SliceTracker()
        self.extended = ExtendedResources(state, self._slices)
        self.usage = Usage()
        self.promises: dict[str, AssumedClaim] = {}
        self.limit = 10 * STEPS_A_SECOND
        """Steps that a search may take on one node."""
        self._claim_requests = ClaimRequests()
        self._shown: dict[str, Booking] = {}
        """Claim -> what the API says that it has."""
        self._answers: BoundedCache[tuple[int, ...], tuple[tuple[ClaimRequest, ...], Answers]] = (
            BoundedCache(512)
        )
        self._last: Answers | None = None

    # ---------------------------------------------------------------------------- what the API says

    def changed(self, kind: str, key: str, tree: Tree | None) -> None:
        """An object of one of `KINDS` came, changed or went (None).  What cannot be understood is
        left out, and noted."""
        problem = (kind, key)
        self._state.rejected.pop(problem, None)
        try:
            if kind == CLASS:
                self._answers.clear()
                self.extended.classes_changed()
            elif kind == TAINT_RULE:
                self._slices.rule_changed(key, tree)
            elif kind == SLICE:
                self._slices.slice_changed(key, tree)
            else:
                self._show(key, tree)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            self._state.rejected[problem] = str(error)

    def _show(self, key: str, tree: Tree | None) -> None:
        old = self._shown.pop(key, None)
        if old is not None:
            self._book(old, -1)
        allocation = allocation_of(tree)
        if allocation is not None:
            self._keep_no_promise(key)
            if tree is not None and (pod := pod_of(tree)):
                self._keep_no_promise(pod + MARK)
            booking = self._shown[key] = booking_of(allocation)
            self._book(booking, 1)
        elif tree is None:
            self._keep_no_promise(key)

    def _book(self, booking: Booking, by: int) -> None:
        for device, consumed in booking:
            self.usage.hold(device, consumed, by)
        for pool in {device[:2] for device, _ in booking}:
            self._slices.mark(pool)

    def _keep_no_promise(self, key: str) -> None:
        held = self.promises.pop(key, None)
        if held is not None:
            self._book(held.booking, -1)

    # ------------------------------------------------------------------------------- a pod's claims

    def _claim(self, key: str) -> Tree | None:
        if key.endswith(MARK):
            return self.extended.claim(key)
        return self._state.others.get(CLAIM, {}).get(key)

    def implied_by(self, task: Task) -> Json:
        """What has to be made and reserved for a pod's extended resources; empty where its node has
        them."""
        promise = self.promises.get(task.key + MARK) if MARK in task.pods.claims else None
        if promise is None:
            return {}
        made = self.extended.on(task.pods, self.extended.own(task, task.row))
        return {"spec": made.spec, "allocation": promise.allocation, "mappings": made.mappings}

    def useless(self, task: Task, nodes: NodeTable) -> list[str]:
        """Allocated claims that keep a pod from some node, and that nobody but the pod has
        reserved."""
        found = []
        for key in task.claims:
            claim = self._claim(key)
            allocation = allocation_of(claim)
            if (
                claim is None
                or key in self.promises
                or (allocation or {}).get("nodeSelector") is None
            ):
                continue
            users = (claim.get("status") or {}).get("reservedFor") or ()
            if (
                all(one.get("uid") == task.uid for one in users)
                and not self._usable(allocation, nodes).all()
            ):
                found.append(key)
        return found

    def trouble(self, task: Task) -> str:
        """Why no node at all will do; empty where nothing speaks against it."""
        if task.unmade:
            return f'waiting for the resource claim controller to create the claim for "{task.unmade[0]}"'
        classes = self._state.others.get(CLASS, {})
        for key in task.claims:
            claim, short = self._claim(key), key.partition("/")[2]
            if (CLAIM, key) in self._state.rejected:
                return f'resourceclaim "{short}" cannot be understood: {self._state.rejected[CLAIM, key]}'
            if claim is None:
                return f'resourceclaim "{short}" not found'
            owner = next(
                (
                    one
                    for one in claim["metadata"].get("ownerReferences") or ()
                    if one.get("kind") == "Pod"
                ),
                None,
            )
            if owner is not None and owner.get("uid") != task.uid:
                return f'resourceclaim "{short}" was not created for the pod'
            if claim["metadata"].get("deletionTimestamp"):
                return f'resourceclaim "{short}" is being deleted'
            promise, allocation = self.promises.get(key), allocation_of(claim)
            users = {
                one.get("uid", "") for one in (claim.get("status") or {}).get("reservedFor") or ()
            }
            users.update(promise.owners.values() if promise is not None else ())
            if len(users) >= MOST_PODS and task.uid not in users:
                return "resourceclaim in use"
            if allocation is None and promise is None:
                try:
                    claim_request = self._claim_requests.of(claim)
                except Unreadable as error:
                    return f'resourceclaim "{short}" cannot be understood: {error}'
                for request in claim_request.requests:
                    for choice in request.choices:
                        if choice.device_class not in classes:
                            return f"request {choice.name}: device class {choice.device_class} does not exist"
        return ""

    def _settled(self, key: str) -> Tree | None:
        """What a claim has been given, by the API or by a promise."""
        promise = self.promises.get(key)
        return promise.allocation if promise is not None else allocation_of(self._claim(key))

    def _open(
        self, task: Task, own: frozenset[str] = frozenset()
    ) -> list[tuple[str, ClaimRequest]]:
        """The claims of a pod that have nothing yet, on nodes that have the extended resources of
        `own` by themselves."""
        result = []
        for key in task.claims:
            claim = self._claim(key)
            if own and claim is not None and key.endswith(MARK):
                made = self.extended.on(task.pods, own)
                claim = {**claim, "spec": made.spec} if made.asks else None
            if claim is not None and self._settled(key) is None:
                try:
                    result.append((key, self._claim_requests.of(claim)))
                except Unreadable:
                    continue
        return result

    # ---------------------------------------------------------------------------- answers for nodes

    def reachable(self, task: Task, nodes: NodeTable) -> Bools:
        """`[nodes]`: where everything that the pod's claims have been given can be used."""
        result = np.ones(len(nodes), dtype=np.bool_)
        for key in task.claims:
            settled = self._settled(key)
            if settled is not None and settled.get("nodeSelector") is not None:
                result &= self._usable(settled, nodes)
        return result

    @staticmethod
    def _usable(allocation: Tree | None, nodes: NodeTable) -> Bools:
        """`[nodes]`: where an allocation that names nodes can be used."""
        selector = (allocation or {}).get("nodeSelector") or {}
        return matching.any_term(matching.node_terms(selector.get("nodeSelectorTerms")), nodes)

    def ask(self, task: Task, view: NodeView) -> Answers | None:
        """What the nodes of the view have for the pod's open claims; None where none is open."""
        claim_requests = tuple(claim_request for _, claim_request in self._open(task))
        if not claim_requests:
            return None
        lent = view.table.lent
        if MARK in task.pods.claims and any(
            name in lent and lent[name].own for name in task.pods.extended
        ):
            return self._ask_by_kind(task, view)
        return self._ask(claim_requests, view)

    def _ask_by_kind(self, task: Task, view: NodeView) -> Answers:
        """As `ask`, where some nodes have the pod's extended resources by themselves and others
        have devices for them."""
        table = view.table
        kinds: dict[frozenset[str], list[int]] = {}
        for row in range(len(table)) if view.rows is None else view.rows.tolist():
            kinds.setdefault(self.extended.own(task, row), []).append(row)
        result = Answers()
        result.grow(len(table))
        for own, listed in kinds.items():
            rows = np.array(listed, dtype=np.intp)
            claim_requests = tuple(claim_request for _, claim_request in self._open(task, own))
            if not claim_requests:
                result.fits[rows] = True
                continue
            one = self._ask(claim_requests, NodeView(table, rows))
            result.fits[rows], result.scores[rows] = one.fits[rows], one.scores[rows]
            result.ranked |= one.ranked
            result.reasons.update({row: one.reasons[row] for row in listed if row in one.reasons})
        self._last = result
        return result

    def _ask(self, claim_requests: tuple[ClaimRequest, ...], view: NodeView) -> Answers:
        table = view.table
        offers = self._slices.devices_of_nodes(table)
        key = tuple(id(claim_request) for claim_request in claim_requests)
        known = self._answers.get(key)
        if known is None:
            ranked = any(
                request.ranked
                for claim_request in claim_requests
                for request in claim_request.requests
            )
            known = self._answers[key] = claim_requests, Answers(ranked=ranked)
        answers = self._last = known[1]
        answers.grow(len(table))
        stale = answers.stamps[: len(table)] != self._slices.stamps
        rows = np.flatnonzero(stale) if view.rows is None else view.rows[stale[view.rows]]
        same: dict[int, Found] = {}
        for row in rows.tolist():
            devices = offers[row]
            found = same.get(id(devices))
            if found is None:
                found = same[id(devices)] = self._find(claim_requests, devices)
            answers.fits[row] = found.picks is not None
            answers.scores[row] = found.score if found.picks is not None else 0.0
            answers.reasons.pop(row, None)
            if found.reason != CANNOT:
                answers.reasons[row] = found.reason
        answers.stamps[rows] = self._slices.stamps[rows]
        return answers

    def _find(self, claim_requests: tuple[ClaimRequest, ...], devices: NodeDevices) -> Found:
        if devices is NOTHING and any(
            request.choices
            for claim_request in claim_requests
            for request in claim_request.requests
        ):
            return Found()
        try:
            return find(
                claim_requests,
                devices,
                self._slices.pools,
                self._state.others.get(CLASS, {}),
                self.usage,
                self.limit,
            )
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            return Found(reason=f"its devices cannot be understood: {error}")

    def last_reason(self, row: int) -> str:
        """Why one node had nothing for the pod that was asked about last."""
        return CANNOT if self._last is None else self._last.reasons.get(row, CANNOT)

    # ------------------------------------------------------------------------------------- promises

    def promise(self, task: Task) -> bool:
        """The pod has a node: its open claims get their devices.  False, and nothing done, where
        they cannot."""
        nodes = self._state.nodes
        wanted = self._open(
            task, self.extended.own(task, task.row) if MARK in task.pods.claims else frozenset()
        )
        found = (
            self._find(
                tuple(claim_request for _, claim_request in wanted),
                self._slices.devices_of_nodes(nodes)[task.row],
            )
            if wanted
            else Found([])
        )
        if found.picks is None:
            return False
        classes = self._state.others.get(CLASS, {})
        for (key, claim_request), picks in zip(wanted, found.picks):
            owner = (self._claim(key) or {"metadata": {}})["metadata"].get("uid") or key
            allocation = allocation_for(
                owner, claim_request, picks, nodes.names[task.row], self._slices.pools, classes
            )
            booking = booking_of(allocation)
            self._book(booking, 1)
            self.promises[key] = AssumedClaim(allocation, booking, {})
        for key in task.claims:
            if key in self.promises:
                self.promises[key].owners[task.key] = task.uid
        return True

    def withdraw(self, task: Task) -> None:
        """The pod has lost its node again."""
        for key in task.claims:
            held = self.promises.get(key)
            if held is not None and held.owners.pop(task.key, None) is not None and not held.owners:
                self._keep_no_promise(key)

    def tidy(self) -> None:
        """Forget promises that nobody waits for any more."""
        tasks = self._state.tasks
        for key, held in list(self.promises.items()):
            held.owners = {
                pod: uid
                for pod, uid in held.owners.items()
                if pod in tasks
                and tasks[pod].uid == uid
                and tasks[pod].status not in (Status.PENDING, *FINISHED)
            }
            if not held.owners:
                self._keep_no_promise(key)

    def given_to(self, task: Task) -> dict[str, Tree]:
        """Claim -> what it has been given."""
        given = {key: self._settled(key) for key in task.claims if not key.endswith(MARK)}
        return {key: allocation for key, allocation in given.items() if allocation is not None}
