"""Evictions: deletions that respect disruption budgets (local-cluster 5.2)."""

from __future__ import annotations

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.objects.conditions import set_condition
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.objects.new_objects import now
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.selection import selects
from hekla.local.apiserver.request.status import CREATED, Refusal, bad_request, not_found
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.write.delete_options import options_of
from hekla.local.apiserver.write.deletion import Deleter
from hekla.local.apiserver.write.stages import committed
from hekla.local.apiserver.write.writing import Writer

BODY = reader("policy", "v1", "Eviction", also=("policy/v1beta1",))
BLOCKED = "Cannot evict pod as it would violate the pod's disruption budget."


class Evictions:
    def __init__(self, writer: Writer, deleter: Deleter) -> None:
        self.writer = writer
        self.deleter = deleter

    async def evict(self, call: Call) -> Response:
        registry = self.writer.registry
        tree = decode_body(call, BODY)
        name = (tree.get("metadata") or {}).get("name")
        if name and name != call.route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        options = options_of(tree.get("deleteOptions") or {})
        dry = (tree.get("deleteOptions") or {}).get("dryRun")
        call.dry_run = call.dry_run or dry == ["All"]
        pods = registry["pods"]
        row = pods.collection.newest(call.route.key)
        if row is None:
            raise not_found(pods.kind, call.route.name)
        attributes = Attributes(
            call, pods, "CREATE", row.namespace, row.name, tree, None, "eviction"
        )
        admission = self.writer.admission
        admission.restrict_node(attributes)
        if (calls := admission.call_validating(attributes)) is not None:
            await calls
        pod = row.tree()
        if (pod.get("status") or {}).get("phase") not in (
            "Pending",
            "Succeeded",
            "Failed",
        ) and "deletionTimestamp" not in pod["metadata"]:
            await self._ask_budgets(call, row, pod)
            if not call.dry_run:
                await self._mark(call)
        await self.deleter.remove(call, pods, call.route.key, options)
        return call.respond(201, CREATED)

    async def _mark(self, call: Call) -> None:
        def change(pod: Json) -> Json:
            set_condition(
                pod.setdefault("status", {}),
                "DisruptionTarget",
                "True",
                "EvictionByEvictionAPI",
                "Eviction API: evicting",
                probed=True,
            )
            return pod

        pods = self.writer.registry["pods"]
        await self.writer.change(
            call, pods, call.route.key, change, retry=True, subresource="status", admit=False
        )

    async def _ask_budgets(self, call: Call, row: Row, pod: Json) -> None:
        resource = self.writer.registry.get("policy", "v1", "poddisruptionbudgets")
        if resource is None:
            return
        matching = [
            (budget_row, tree)
            for budget_row in resource.collection.accepted()
            if budget_row.namespace == row.namespace
            for tree in [budget_row.tree()]
            if selects((tree.get("spec") or {}).get("selector"), row.labels)
        ]
        if not matching:
            return
        if len(matching) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise Refusal(500, message, details={})
        budget, tree = matching[0]
        spec, status = tree.get("spec") or {}, tree.get("status") or {}
        ready = any(
            c.get("type") == "Ready" and c.get("status") == "True"
            for c in (pod.get("status") or {}).get("conditions") or []
        )
        if not ready and spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
        if (
            not ready
            and healthy >= desired > 0
            and status.get("observedGeneration", 0) >= tree["metadata"].get("generation", 0)
        ):
            return
        if status.get("observedGeneration", 0) < tree["metadata"].get("generation", 0):
            raise blocked(
                f"The disruption budget {budget.name} is still being processed by the server.", 10
            )
        if status.get("disruptionsAllowed", 0) <= 0:
            raise blocked(
                f"The disruption budget {budget.name} needs {desired} healthy pods and has {healthy} currently"
            )
        if call.dry_run:
            return
        status["disruptionsAllowed"] = status["disruptionsAllowed"] - 1
        status.setdefault("disruptedPods", {})[row.name] = now()
        if resource.collection.newest(budget.key) is not budget:
            raise Refusal(429, BLOCKED, retry_after=1)
        await committed(resource.collection.update(tree, budget).done)


def blocked(why: str, retry_after: int | None = None) -> Refusal:
    return Refusal(
        429,
        BLOCKED,
        details={"causes": [{"reason": "DisruptionBudget", "message": why}]},
        retry_after=retry_after,
    )
