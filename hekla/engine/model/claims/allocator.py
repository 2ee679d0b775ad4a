"""Who has which device, and where a pod's claims can be had.

What the API says of claims is taken in as it comes; what a placement decided is a promise, which
counts like an allocation until the API shows it or no pod wants it any more.  Answers for all nodes
are kept for every pod that asks for the same, and renewed for the nodes that see a pool of which a
device was taken or given back.
"""

from __future__ import annotations

import uuid
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.api.bounded import BoundedCache
from hekla.api.text import quantity
from hekla.api.trees import Json, Tree
from hekla.engine.model import matching
from hekla.engine.model.arrays import Bools
from hekla.engine.model.claims.extended import ANNOTATION, MARK, Implied, backed_by, implied, pod_of
from hekla.engine.model.claims.pools import (
    NOTHING,
    DeviceKey,
    Map,
    NodeDevices,
    Pool,
    PoolKey,
    Slice,
    pools_of,
    read_slice,
)
from hekla.engine.model.claims.requests import ClaimRequest, ClaimRequests, Unreadable
from hekla.engine.model.claims.search import CANNOT, STEPS_A_SECOND, Found, Pick, Usage, find, meant
from hekla.engine.model.claims.taintrules import TaintRule, put_on, read_rule
from hekla.engine.model.nodes import NodeTable, NodeView
from hekla.engine.model.resources import Floats
from hekla.engine.model.tasks import FINISHED, Status, Task

if TYPE_CHECKING:
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.state import State


CLAIM, SLICE, CLASS, TAINT_RULE = "ResourceClaim", "ResourceSlice", "DeviceClass", "DeviceTaintRule"
KINDS = frozenset({CLAIM, SLICE, CLASS, TAINT_RULE})
ELSEWHERE = "resourceclaim not available on the node"
MOST_PODS = 256
"""So many pods may share a claim."""
_NAMESPACE = uuid.UUID("6b1f6c0e-6f5e-4a58-9a4f-0d6a86b6a1c5")
_Booking = list[tuple[DeviceKey, dict[str, int]]]


@dataclass(slots=True)
class AssumedClaim:
    """What a placement gave to a claim that the API shows without an allocation."""

    allocation: Tree
    booking: _Booking
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
    """Kept with the state."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.usage = Usage()
        self.promises: dict[str, AssumedClaim] = {}
        self.limit = 10 * STEPS_A_SECOND
        """Steps that a search may take on one node."""
        self._claim_requests = ClaimRequests()
        self._slices: dict[str, Slice] = {}
        self._pools: dict[PoolKey, Pool] = {}
        self._pools_stale = False
        self._rules: dict[str, TaintRule] = {}
        self._shown: dict[str, _Booking] = {}
        """Claim -> what the API says that it has."""
        self._map: Map | None = None
        self._map_of: tuple[int, int] | None = None
        self._maps = 0
        """How many maps there have been."""
        self._clock = 0
        self._stamps: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._answers: BoundedCache[tuple[int, ...], tuple[tuple[ClaimRequest, ...], Answers]] = (
            BoundedCache(512)
        )
        self._last: Answers | None = None
        self._backed: dict[str, str] = {}
        """Extended resource -> class."""
        self._implied: BoundedCache[tuple[PodClass, frozenset[str]], Implied] = BoundedCache(512)
        self._lent_of: tuple[Hashable, ...] = ()
        """As of when nodes know what devices they have under the names of extended resources."""
        self.abandoned: dict[str, str] = {}
        """Claim that was made for extended resources -> the pod that was not bound with it."""

    # ---------------------------------------------------------------------------- what the API says

    def changed(self, kind: str, key: str, tree: Tree | None) -> None:
        """An object of one of `KINDS` came, changed or went (None).  What cannot be understood is
        left out, and noted."""
        problem = (kind, key)
        self._state.rejected.pop(problem, None)
        try:
            if kind == CLASS:
                self._answers.clear()
                self._relate()
            elif kind == TAINT_RULE:
                self._pools_stale = True
                self._rules.pop(key, None)
                if tree is not None:
                    self._rules[key] = read_rule(tree)
            elif kind == SLICE:
                self._slices.pop(key, None)
                self._pools_stale = True
                if tree is not None:
                    self._slices[key] = read_slice(tree)
            else:
                self._show(key, tree)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            self._state.rejected[problem] = str(error)

    def _show(self, key: str, tree: Tree | None) -> None:
        old = self._shown.pop(key, None)
        if old is not None:
            self._book(old, -1)
        allocation = _allocation(tree)
        if allocation is not None:
            self._keep_no_promise(key)
            if tree is not None and (pod := pod_of(tree)):
                self._keep_no_promise(pod + MARK)
            booking = self._shown[key] = _booking(allocation)
            self._book(booking, 1)
        elif tree is None:
            self._keep_no_promise(key)

    def _book(self, booking: _Booking, by: int) -> None:
        for device, consumed in booking:
            self.usage.hold(device, consumed, by)
        for pool in {device[:2] for device, _ in booking}:
            self._mark(pool)

    def _keep_no_promise(self, key: str) -> None:
        held = self.promises.pop(key, None)
        if held is not None:
            self._book(held.booking, -1)

    def _mark(self, pool: PoolKey) -> None:
        """Devices of the pool changed hands: nodes that see it have to be asked again."""
        self._clock += 1
        if self._map is not None and pool in self._map.reach:
            self._stamps[self._map.reach[pool]] = self._clock

    def _devices_of_nodes(self, nodes: NodeTable) -> list[NodeDevices]:
        """What each node sees, brought up to date."""
        if self._pools_stale:
            self._pools, self._pools_stale, self._map = pools_of(self._slices.values()), False, None
            put_on(self._rules.values(), self._pools.values())
        wanted = nodes.static_version, len(nodes)
        if self._map is None or self._map_of != wanted:
            self._map, self._map_of = Map(self._pools, nodes), wanted
            self._maps += 1
            self._clock += 1
            self._stamps = np.full(len(nodes), self._clock, dtype=np.int64)
        return self._map.offers

    # ------------------------------------------------------------------------------- a pod's claims

    def _claim(self, key: str) -> Tree | None:
        if key.endswith(MARK):
            return self._implied_claim(key)
        return self._state.others.get(CLAIM, {}).get(key)

    # --------------------------------------------------------------------------- extended resources

    def _relate(self) -> None:
        """Classes changed, and so perhaps which extended resources they back."""
        self._lent_of = ()
        backed = backed_by(self._state.others.get(CLASS, {}))
        if backed == self._backed:
            return
        self._backed = backed
        self._implied.clear()
        concerned = {
            id(pods)
            for pods in self._state.classes.by_key.values()
            if pods.extended and self._marked(pods)
        }
        for task in self._state.tasks.values() if concerned else ():
            if id(task.pods) in concerned and task.status is Status.PENDING:
                named = tuple(key for key in task.claims if not key.endswith(MARK))
                task.claims = (*named, task.key + MARK) if MARK in task.pods.claims else named
                if task.job is not None:
                    self._state.job_table.touch(task.job)

    def _marked(self, pods: PodClass) -> bool:
        """Says in a class whether it has such a claim; gives whether that is another answer than
        before."""
        named = tuple(name for name in pods.claims if name != MARK)
        claims = (*named, MARK) if any(name in self._backed for name in pods.extended) else named
        changed = claims != pods.claims
        pods.claims = claims
        pods.settle()
        return changed

    def imply(self, task: Task, spec: Tree, status: Tree) -> None:
        """A pod that was read: whether its extended resources are a claim."""
        if not task.pods.extended:
            return
        self._marked(task.pods)
        if spec.get("nodeName"):
            return
        if MARK in task.pods.claims:
            task.claims = (*task.claims, task.key + MARK)
        left = (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
        if left:
            self.abandoned[f"{task.namespace}/{left}"] = task.key

    def _implied_claim(self, key: str) -> Tree | None:
        task = self._state.tasks.get(key.removesuffix(MARK))
        if task is None:
            return None
        owner = {"apiVersion": "v1", "kind": "Pod", "name": task.name, "uid": task.uid}
        metadata = {
            "name": MARK.strip(),
            "namespace": task.namespace,
            "uid": task.uid,
            "ownerReferences": [owner],
        }
        return {"metadata": metadata, "spec": self._implied_in(task.pods, frozenset()).spec}

    def _implied_in(self, pods: PodClass, own: frozenset[str]) -> Implied:
        found = self._implied.get((pods, own))
        if found is None:
            found = self._implied[pods, own] = implied(pods, self._backed, own)
        return found

    def _own(self, task: Task, row: int) -> frozenset[str]:
        """Extended resources of a pod that a node has by itself."""
        lent = self._state.nodes.lent
        return frozenset(
            name for name in task.pods.extended if name in lent and row in lent[name].own
        )

    def lend(self, nodes: NodeTable) -> None:
        """Nodes have as much of a backed resource as there are devices of its class that they see."""
        asked = [name for name in self._backed if name in nodes.space.index]
        if not asked and not nodes.lent:
            return
        offers = self._devices_of_nodes(nodes)
        as_of = (self._maps, *asked)
        if as_of == self._lent_of:
            return
        self._lent_of = as_of
        classes = self._state.others.get(CLASS, {})
        for name in sorted({*asked, *nodes.lent}):
            counts: dict[int, float] = {}
            made = classes.get(self._backed.get(name, "")) or {}
            for devices in offers if made else ():
                if id(devices) not in counts:
                    counts[id(devices)] = 1000.0 * sum(
                        meant(made, device) for device in devices.usable(self._pools)
                    )
            amounts = {
                nodes.names[row]: counts[id(devices)]
                for row, devices in enumerate(offers)
                if counts.get(id(devices))
            }
            if name not in nodes.lent or nodes.lent[name].amounts != amounts:
                nodes.lend(name, amounts)

    def implied_by(self, task: Task) -> Json:
        """What has to be made and reserved for a pod's extended resources; empty where its node has
        them."""
        promise = self.promises.get(task.key + MARK) if MARK in task.pods.claims else None
        if promise is None:
            return {}
        made = self._implied_in(task.pods, self._own(task, task.row))
        return {"spec": made.spec, "allocation": promise.allocation, "mappings": made.mappings}

    def useless(self, task: Task, nodes: NodeTable) -> list[str]:
        """Allocated claims that keep a pod from some node, and that nobody but the pod has
        reserved."""
        found = []
        for key in task.claims:
            claim = self._claim(key)
            allocation = _allocation(claim)
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

    def left_behind(self) -> list[tuple[str, str]]:
        """Claims for extended resources, and the uids of their pods, that were made for binds that
        never were."""
        found, tasks = [], self._state.tasks
        for key, pod in list(self.abandoned.items()):
            task = tasks.get(pod)
            claim = self._claim(key)
            annotations = ((claim or {}).get("metadata") or {}).get("annotations") or {}
            if (
                task is None
                or claim is None
                or task.status is not Status.PENDING
                or annotations.get(ANNOTATION) != "true"
            ):
                if task is None or task.status is not Status.PENDING:
                    del self.abandoned[key]
                continue
            del self.abandoned[key]
            found.append((key, task.uid))
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
            promise, allocation = self.promises.get(key), _allocation(claim)
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
        return promise.allocation if promise is not None else _allocation(self._claim(key))

    def _open(
        self, task: Task, own: frozenset[str] = frozenset()
    ) -> list[tuple[str, ClaimRequest]]:
        """The claims of a pod that have nothing yet, on nodes that have the extended resources of
        `own` by themselves."""
        result = []
        for key in task.claims:
            claim = self._claim(key)
            if own and claim is not None and key.endswith(MARK):
                made = self._implied_in(task.pods, own)
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
        either = np.zeros(len(nodes), dtype=np.bool_)
        for term in matching.node_terms(
            ((allocation or {}).get("nodeSelector") or {}).get("nodeSelectorTerms")
        ):
            either |= term.mask(nodes)
        return either

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
            kinds.setdefault(self._own(task, row), []).append(row)
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
        offers = self._devices_of_nodes(table)
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
        stale = answers.stamps[: len(table)] != self._stamps
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
        answers.stamps[rows] = self._stamps[rows]
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
                self._pools,
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
            task, self._own(task, task.row) if MARK in task.pods.claims else frozenset()
        )
        found = (
            self._find(
                tuple(claim_request for _, claim_request in wanted),
                self._devices_of_nodes(nodes)[task.row],
            )
            if wanted
            else Found([])
        )
        if found.picks is None:
            return False
        for (key, claim_request), picks in zip(wanted, found.picks):
            allocation = self._written(key, claim_request, picks, nodes.names[task.row])
            booking = _booking(allocation)
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

    # ---------------------------------------------------------------------------------- in API form

    def _written(self, key: str, claim_request: ClaimRequest, picks: list[Pick], node: str) -> Tree:
        """An allocation as a claim's status has it."""
        claim = self._claim(key) or {"metadata": {}}
        owner = claim["metadata"].get("uid") or key
        results = [_result(pick, f"{owner}/{number}") for number, pick in enumerate(picks)]
        devices: Json = {"results": results}
        config = self._config(claim_request, picks)
        if config:
            devices["config"] = config
        allocation: Json = {"devices": devices}
        selector = self._selector(picks, node)
        if selector is not None:
            allocation["nodeSelector"] = selector
        return allocation

    def _config(self, claim_request: ClaimRequest, picks: list[Pick]) -> list[Tree]:
        """Parameters for drivers: those of the classes first, then the claim's own, which so have
        the last word."""
        classes = self._state.others.get(CLASS, {})
        result: list[Tree] = []
        chosen = {pick.choice.name: pick.choice for pick in picks}
        for name, choice in chosen.items():
            made = (classes.get(choice.device_class) or {}).get("spec") or {}
            result.extend(
                {"source": "FromClass", "requests": [name], **one}
                for one in made.get("config") or ()
            )
        for one in claim_request.config:
            meant = one.get("requests") or ()
            if not meant or any(
                name in meant or name.partition("/")[0] in meant for name in chosen
            ):
                result.append({"source": "FromClaim", **one})
        return result

    def _selector(self, picks: list[Pick], node: str) -> Tree | None:
        """Nodes that can use all of these devices; None for every node."""
        expressions: list[Tree] = []
        fields: list[Tree] = []
        bound = False
        for pick in picks:
            group = next(
                (
                    one
                    for one in self._pools[pick.device.key[:2]].groups
                    if pick.device in one.devices
                ),
                None,
            )
            if group is None:
                continue
            if group.node or pick.device.tree.get("bindsToNode"):
                bound = True
            elif group.selector is not None:
                for term in (group.selector.get("nodeSelectorTerms") or ())[:1]:
                    expressions.extend(
                        one for one in term.get("matchExpressions") or () if one not in expressions
                    )
                    fields.extend(one for one in term.get("matchFields") or () if one not in fields)
        if bound:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [field]}]}
        if not expressions and not fields:
            return None
        term = {
            **({"matchExpressions": expressions} if expressions else {}),
            **({"matchFields": fields} if fields else {}),
        }
        return {"nodeSelectorTerms": [term]}


def _result(pick: Pick, share: str) -> Tree:
    driver, pool, name = pick.device.key
    result: Json = {
        "request": pick.choice.name,
        "driver": driver,
        "pool": pool,
        "device": name,
    }
    if pick.choice.admin:
        result["adminAccess"] = True
    if pick.choice.stated_tolerations:
        result["tolerations"] = list(pick.choice.stated_tolerations)
    for condition in ("bindingConditions", "bindingFailureConditions"):
        if pick.device.tree.get(condition):
            result[condition] = list(pick.device.tree[condition])
    if pick.device.shared and not pick.choice.admin:
        result["shareID"] = str(uuid.uuid5(_NAMESPACE, f"{share}/{driver}/{pool}/{name}"))
        result["consumedCapacity"] = {
            part: str(quantity.Quantity.of_milli(amount)) for part, amount in pick.consumed
        }
    return result


def _allocation(claim: Tree | None) -> Tree | None:
    return ((claim or {}).get("status") or {}).get("allocation")


def _booking(allocation: Tree) -> _Booking:
    """The devices that an allocation keeps from others."""
    return [
        (
            (str(one["driver"]), str(one["pool"]), str(one["device"])),
            {
                name: quantity.milli(amount)
                for name, amount in (one.get("consumedCapacity") or {}).items()
            },
        )
        for one in (allocation.get("devices") or {}).get("results") or ()
        if not one.get("adminAccess")
    ]


def devices_of(allocation: Tree) -> set[DeviceKey]:
    """All devices of an allocation."""
    return {
        (one["driver"], one["pool"], one["device"])
        for one in (allocation.get("devices") or {}).get("results") or ()
    }


__all__ = [
    "CANNOT",
    "CLAIM",
    "CLASS",
    "ELSEWHERE",
    "KINDS",
    "SLICE",
    "Answers",
    "AssumedClaim",
    "DeviceAllocator",
    "devices_of",
]
