"""Disruption budgets: how many pods of an application may be missing, and how many of those are
already promised.

The eviction subresource decides by the status: it lowers `disruptionsAllowed` itself and writes
down for which pod, so that a pod that is being deleted is not counted twice.  Reference:
local-cluster 10.10.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec

from hekla.api.kinds import Kind
from hekla.api.kubernetes.policy import POD_DISRUPTION_BUDGET
from hekla.api.meta import OwnerReference
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.local.controller_manager.pods import Pod, matches

PATIENCE = 120.0
"""Seconds within which a pod whose eviction was allowed must have been deleted."""
LONGEST_WAIT = 0.5
SCALED = {
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "Deployment"): "deployments",
    ("", "ReplicationController"): "replicationcontrollers",
}
UNMANAGED = (
    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB "
    "cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set "
    '".spec.minAvailable" field of the PDB to an integer value.'
)


class NoScale(Exception):
    """It cannot be found out how many pods their controllers want.  The text says why, `again` in
    how many seconds it may be known."""

    def __init__(self, why: str, again: float = 60.0) -> None:
        super().__init__(why)
        self.again = again


def portion(value: int | str, total: int) -> int:
    """A number, or a percentage of a total, rounded up."""
    return value if isinstance(value, int) else math.ceil(int(value.rstrip("%")) * total / 100)


def needs_scale(spec: Json) -> bool:
    return spec.get("maxUnavailable") is not None or isinstance(spec.get("minAvailable"), str)


class BudgetController(Controller):
    """Keeps the status of disruption budgets."""

    name = "disruption"

    def __init__(
        self,
        client: Client,
        budgets: Cache[Json],
        pods: Cache[Pod],
        scaled: list[Cache[Json]],
        plurals: Callable[[str, str], str],
        recorder: Recorder,
    ) -> None:
        """`scaled` are caches of kinds that have a scale; `plurals` gives the plural of a kind
        (apiVersion, kind), "" if unknown."""
        super().__init__(budgets, pods)
        self.client = client
        self.budgets = budgets
        self.pods = pods
        self.plurals = plurals
        self.recorder = recorder
        self.enqueue(budgets)
        pods.on_change(self.pod_changed)
        for cache in scaled:
            self.caches.append(cache)
            cache.on_change(self.scaled_changed)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """The budgets that a change of a pod touches; many changes of one application are counted
        together."""
        either = new if new is not None else old
        assert either is not None
        budgets = self.budgets.by("namespace", either.metadata.namespace)
        if not budgets or (old is not None and new is not None and seen(old) == seen(new)):
            return
        wait = min(LONGEST_WAIT, self.pods.count("namespace", either.metadata.namespace) / 2000)
        for budget in budgets:
            selector = budget["spec"].get("selector")
            if any(
                pod is not None and matches(selector, pod.metadata.labels) for pod in (old, new)
            ):
                self.queue.add_after(
                    f"{either.metadata.namespace}/{budget['metadata']['name']}", wait
                )

    def scaled_changed(self, old: Json | None, new: Json | None) -> None:
        """A change of how many pods there should be."""
        either = new if new is not None else old
        assert either is not None
        namespace = either["metadata"]["namespace"]
        if (
            old is not None
            and new is not None
            and old["spec"].get("replicas") == new["spec"].get("replicas")
        ):
            return
        for budget in self.budgets.by("namespace", namespace):
            if needs_scale(budget["spec"]):
                self.queue.add(f"{namespace}/{budget['metadata']['name']}")

    async def reconcile(self, key: str) -> float | None:
        """Count the pods and write the status if it differs.  Gives the seconds until an allowed
        eviction counts as forgotten."""
        budget = self.budgets.get(key)
        if budget is None or budget["metadata"].get("deletionTimestamp") is not None:
            return None
        selector = budget["spec"].get("selector")
        pods = [
            pod
            for pod in self.pods.by("namespace", budget["metadata"]["namespace"])
            if matches(selector, pod.metadata.labels)
        ]
        if not pods:
            self.recorder.event(with_kind(budget), "Normal", "NoPods", "No matching pods found")
        try:
            expected, desired = await self.counts(budget, pods)
        except NoScale as error:
            self.recorder.event(
                with_kind(budget),
                "Warning",
                "CalculateExpectedPodCountFailed",
                f"Failed to calculate the number of expected pods: {error}",
            )
            await self.fail_safe(budget, str(error))
            return error.again
        disrupted, wait = self.still_disrupted(budget, pods)
        healthy = sum(
            1
            for pod in pods
            if pod.ready and not pod.deleting and pod.metadata.name not in disrupted
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        await self.write(
            budget,
            {
                "observedGeneration": budget["metadata"].get("generation", 0),
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
                "disruptedPods": disrupted,
                "conditions": [
                    condition(
                        "True" if allowed else "False",
                        "SufficientPods" if allowed else "InsufficientPods",
                    )
                ],
            },
        )
        return wait

    # --- counting ---------------------------------------------------------------------------------

    async def counts(self, budget: Json, pods: list[Pod]) -> tuple[int, int]:
        """(expected pods, how many of them must be healthy).  Raises NoScale."""
        spec = budget["spec"]
        if not needs_scale(spec):
            least = spec.get("minAvailable")
            return len(pods), 1 if least is None else least
        expected = await self.scale(budget, pods)
        if spec.get("maxUnavailable") is not None:
            return expected, max(0, expected - portion(spec["maxUnavailable"], expected))
        return expected, portion(spec["minAvailable"], expected)

    async def scale(self, budget: Json, pods: list[Pod]) -> int:
        """What the controllers of the pods want, each counted once."""
        controllers: dict[str, OwnerReference] = {}
        unmanaged = False
        for pod in pods:
            owner = pod.controller()
            if owner is None:
                unmanaged = True
            else:
                controllers[owner.uid] = owner
        if unmanaged:
            self.recorder.event(
                with_kind(budget),
                "Warning",
                "UnmanagedPods",
                UNMANAGED.format(budget["spec"].get("selector")),
            )
        total, counted = 0, set()
        for owner in controllers.values():
            uid, replicas = await self.scale_of(owner, budget["metadata"]["namespace"])
            if uid not in counted:
                counted.add(uid)
                total += replicas
        return total

    async def scale_of(self, owner: OwnerReference, namespace: str) -> tuple[str, int]:
        """(uid, replicas) of a controller; of a ReplicaSet that is a Deployment's, the
        Deployment's."""
        group, _, version = owner.api_version.rpartition("/")
        plural = SCALED.get((group, owner.kind)) or self.plurals(owner.api_version, owner.kind)
        if not plural:
            raise NoScale(f"no kind {owner.kind} of {owner.api_version} is served", again=1.0)
        kind: Kind[Json] = Kind(group, version, owner.kind, plural, True, dict)
        if (group, owner.kind) == ("apps", "ReplicaSet"):
            tree = await self.read(kind, owner, namespace)
            above = next(
                (
                    one
                    for one in tree["metadata"].get("ownerReferences") or ()
                    if one.get("controller")
                ),
                None,
            )
            if above is not None and above["kind"] == "Deployment":
                deployment = OwnerReference(
                    api_version=above["apiVersion"],
                    kind="Deployment",
                    name=above["name"],
                    uid=above["uid"],
                    controller=True,
                )
                return await self.scale_of(deployment, namespace)
            return owner.uid, tree["spec"].get("replicas", 1)
        scale = await self.read(kind, owner, namespace, "scale")
        return owner.uid, (scale.get("spec") or {}).get("replicas", 0)

    async def read(
        self,
        kind: Kind[Json],
        owner: OwnerReference,
        namespace: str,
        subresource: str | None = None,
    ) -> Json:
        try:
            if subresource is None:
                return await self.client.get(kind, owner.name, namespace)
            answer = await self.client.request("GET", kind.path(namespace, owner.name, subresource))
        except NotFound as error:
            raise NoScale(
                f"{owner.kind.lower()}s.{kind.group} does not implement the scale subresource"
                if subresource
                else str(error)
            ) from error
        except ApiError as error:
            if error.code == 405:
                raise NoScale(
                    f"{owner.kind.lower()}s.{kind.group} does not implement the scale subresource"
                ) from error
            raise
        tree: Json = msgspec.json.decode(answer.body)
        return tree

    def still_disrupted(self, budget: Json, pods: list[Pod]) -> tuple[dict[str, str], float | None]:
        """The pods whose eviction was allowed and that are not on their way out yet; seconds until
        the first is forgotten."""
        present = {pod.metadata.name: pod for pod in pods}
        kept: dict[str, str] = {}
        wait: float | None = None
        for name, since in ((budget.get("status") or {}).get("disruptedPods") or {}).items():
            pod = present.get(name)
            if pod is None or pod.deleting:
                continue
            left = instant(since) + PATIENCE - time.time()
            if left <= 0:
                self.recorder.event(
                    pod.reference(),
                    "Warning",
                    "NotDeleted",
                    f"Pod was expected by PDB {pod.metadata.namespace}/{budget['metadata']['name']} to be deleted but it wasn't",
                )
                continue
            kept[name] = since
            wait = left if wait is None else min(wait, left)
        return kept, wait

    # --- writing ----------------------------------------------------------------------------------

    async def fail_safe(self, budget: Json, why: str) -> None:
        """Allow no disruption while the pods cannot be counted."""
        status = budget.get("status") or {}
        await self.write(
            budget,
            {
                **status,
                "disruptionsAllowed": 0,
                "observedGeneration": budget["metadata"].get("generation", 0),
                "conditions": [condition("False", "SyncFailed", why)],
            },
        )

    async def write(self, budget: Json, status: Json) -> None:
        """Write a status that differs.  The request carries the version that was read, because an
        eviction may have been allowed meanwhile."""
        before = budget.get("status") or {}
        if not status.get("disruptedPods"):
            status.pop("disruptedPods", None)
        for one in status["conditions"]:
            one["observedGeneration"] = status["observedGeneration"]
            known = next(
                (c for c in before.get("conditions") or () if c["type"] == one["type"]), None
            )
            same = known is not None and known["status"] == one["status"]
            one["lastTransitionTime"] = (
                known["lastTransitionTime"] if known is not None and same else stamp(time.time())
            )
        others = [c for c in before.get("conditions") or () if c["type"] != "DisruptionAllowed"]
        status["conditions"] = [*others, *status["conditions"]]
        if bare(before) == bare(status):
            return
        with suppress(NotFound):
            await self.client.update_status(
                POD_DISRUPTION_BUDGET.untyped, {**with_kind(budget), "status": status}
            )


def bare(status: Json) -> Json:
    """A status in which zero and absent are the same."""
    return {name: value for name, value in status.items() if value}


def condition(status: str, reason: str, message: str = "") -> Json:
    return {"type": "DisruptionAllowed", "status": status, "reason": reason, "message": message}


def with_kind(budget: Json) -> Json:
    return {
        **budget,
        "apiVersion": POD_DISRUPTION_BUDGET.api_version,
        "kind": POD_DISRUPTION_BUDGET.kind,
    }


def seen(pod: Pod) -> tuple[object, ...]:
    """What of a pod a budget depends on."""
    return pod.metadata.labels, pod.ready, pod.deleting, pod.metadata.owner_references
