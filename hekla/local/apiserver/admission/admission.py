"""The built-in admission chain (local-cluster 6.1) in its order, and the calls to webhooks.

Admission decides what depends on the state of the cluster; the kind's strategy decides what depends
on the object alone.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes, Plugin, TreeCache, remembered
from hekla.local.apiserver.objects.new_objects import random_suffix
from hekla.local.apiserver.objects.strategies import add_default_tolerations
from hekla.local.apiserver.request.status import Refusal, details, forbidden
from hekla.local.apiserver.storage.registry import Registry, Resource

if TYPE_CHECKING:
    from hekla.local.apiserver.admission.podsecurity import PodSecurity
    from hekla.local.apiserver.admission.policies.policies import Policies
    from hekla.local.apiserver.admission.quotas import Quotas
    from hekla.local.apiserver.admission.webhooks import Webhooks

UNDELETABLE = ("default", "kube-system", "kube-public")
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


class Admission:
    """The chain: mutating plugins, mutating policies and webhooks, validating policies and webhooks,
    validating plugins.  The plugins are synchronous; what is called gives None where nothing matches.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.webhooks: Webhooks | None = None
        self.policies: Policies
        self.quotas: Quotas | None = None
        self.pod_security: PodSecurity | None = None
        self.plugins: dict[tuple[str, str], list[Plugin]] = {
            ("pods", "CREATE"): [self.service_account, self.priority, default_tolerations],
        }
        self.reads: dict[str, tuple[str, ...]] = {
            "pods": ("serviceaccounts", "priorityclasses.scheduling.k8s.io")
        }
        """Collection -> all collections that its plugins read for a new object.  The create cache
        has their versions in its keys."""
        self.checks: dict[tuple[str, str], list[Plugin]] = {}
        """Plugins that only refuse; they see the finished object."""
        self.nodes: Plugin | None = None
        """Restricts nodes to their own objects."""
        self.creation: Plugin | None = None
        """Checks a new object that a PUT or a PATCH creates."""
        self._accounts = TreeCache()
        self._classes = TreeCache()
        self._default: Json | None = None
        self._default_at = -1

    # --- the chain --------------------------------------------------------------------------------

    def run_mutating_plugins(self, attributes: Attributes) -> None:
        """Let the built-in plugins change the object.  Raises Refusal, also for a namespace that is
        missing or ends."""
        if attributes.operation == "CREATE":
            self.namespace_lifecycle(attributes)
        if not attributes.subresource:
            for plugin in self.plugins.get(
                (attributes.resource.collection.name, attributes.operation), ()
            ):
                plugin(attributes)
        self.restrict_node(attributes)

    def call_mutating(self, attributes: Attributes) -> Awaitable[None] | None:
        """Let the policies and webhooks change the object, and fill in its defaults again.  None
        where none of them wants to see the write."""
        return self._call_mutating(attributes) if self._may_change(attributes) else None

    async def _call_mutating(self, attributes: Attributes) -> None:
        assert self.webhooks is not None
        if self.policies.mutating.wanted(attributes):
            self.policies.mutating.run(attributes)
        if await self.webhooks.mutate(attributes) and self.policies.mutating.wanted(attributes):
            before = attributes.object
            self.policies.mutating.run(attributes, again=True)
            if attributes.object != before:
                await self.webhooks.mutate(attributes, again=True)
        if (
            attributes.object is not None
            and attributes.subresource not in ("binding", "eviction")
            and attributes.operation != "CONNECT"
        ):
            strategy = attributes.resource.kind.strategy
            # What webhooks and policies made was read again.
            (strategy.default_decoded or strategy.default)(attributes.object)

    def call_validating(self, attributes: Attributes) -> Awaitable[None] | None:
        """Ask the policies and webhooks that may refuse the write.  None where none of them wants
        to see it."""
        return self._call_validating(attributes) if self._may_refuse(attributes) else None

    async def _call_validating(self, attributes: Attributes) -> None:
        assert self.webhooks is not None
        if self.policies.validating.wanted(attributes):
            self.policies.validating.run(attributes)
        await self.webhooks.validate(attributes)

    async def call_webhooks(self, attributes: Attributes) -> None:
        """Ask all policies and webhooks about a request that is no create or update of an object:
        first those that may change what it holds, then those that may refuse it."""
        if (calls := self.call_mutating(attributes)) is not None:
            await calls
        if (calls := self.call_validating(attributes)) is not None:
            await calls

    def run_validating_plugins(self, attributes: Attributes) -> None:
        """Check what must hold in the step in which the write is accepted.  Raises Refusal."""
        if attributes.operation == "CREATE":
            if attributes.namespace:
                self.namespace_lifecycle(attributes)
            if attributes.call.verb != "create" and self.creation is not None:
                self.creation(attributes)
        what = attributes.resource.collection.name
        if attributes.subresource:
            what = f"{what}/{attributes.subresource}"
        for check in self.checks.get((what, attributes.operation), ()):
            check(attributes)
        if self.pod_security is not None:
            self.pod_security.validate(attributes)
        if self.quotas is not None:
            self.quotas.admit(attributes)

    def restrict_node(self, attributes: Attributes) -> None:
        """Restrict a node to its own objects; other users may pass."""
        if self.nodes is not None and attributes.call.user.node is not None:
            self.nodes(attributes)

    # --- who wants to see a write ------------------------------------------------------------------

    def needs_plugins(self, attributes: Attributes) -> bool:
        """Whether a built-in plugin has to see such an update."""
        if attributes.call.user.node is not None:
            return True
        name = attributes.resource.collection.name
        if self.pod_security is not None and self.pod_security.applies_to(attributes):
            return True
        if attributes.subresource:
            return (f"{name}/{attributes.subresource}", attributes.operation) in self.checks
        return (name, attributes.operation) in self.plugins or (
            name,
            attributes.operation,
        ) in self.checks

    def matches_rules(self, attributes: Attributes) -> bool:
        """Whether the rules of a webhook or policy match such writes, whatever the object holds."""
        if self.webhooks is None:
            return False
        return bool(
            self.webhooks.mutating.by_rule(attributes)
            or self.policies.mutating.catalog.by_rule(attributes)
            or self.webhooks.validating.by_rule(attributes)
            or self.policies.validating.catalog.by_rule(attributes)
        )

    def wanted(self, attributes: Attributes) -> bool:
        """Whether a webhook or policy has to see this write."""
        return self._may_change(attributes) or self._may_refuse(attributes)

    def _may_change(self, attributes: Attributes) -> bool:
        return self.webhooks is not None and (
            self.webhooks.mutating.wanted(attributes) or self.policies.mutating.wanted(attributes)
        )

    def _may_refuse(self, attributes: Attributes) -> bool:
        return self.webhooks is not None and (
            self.webhooks.validating.wanted(attributes)
            or self.policies.validating.wanted(attributes)
        )

    # --- plugins ----------------------------------------------------------------------------------

    def namespace_lifecycle(self, attributes: Attributes) -> None:
        """Refuse objects in a namespace that does not exist or is being deleted."""
        if not attributes.namespace:
            return
        namespaces = self.registry["namespaces"]
        row = namespaces.collection.newest(attributes.namespace)
        if row is None:
            raise Refusal(
                404,
                f'namespaces "{attributes.namespace}" not found',
                details=details(namespaces.kind, attributes.namespace),
            )
        if (
            row.fields
            and row.fields[namespaces.collection.positions.get("status.phase", 0)] == "Terminating"
        ):
            kind, name = attributes.resource.kind, attributes.name
            why = f"unable to create new content in namespace {attributes.namespace} because it is being terminated"
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {attributes.namespace} is being terminated",
                "field": "metadata.namespace",
            }
            raise forbidden(kind, name, why, [cause])

    def service_account(self, attributes: Attributes) -> None:
        """Fill in a pod's service account, and mount the account's token."""
        pod = attributes.object
        assert pod is not None
        spec = pod.get("spec")
        if not isinstance(spec, dict) or (pod["metadata"].get("annotations") or {}).get(
            "kubernetes.io/config.mirror"
        ):
            return
        name = spec.get("serviceAccountName") or spec.get("serviceAccount") or "default"
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = self._account(attributes.namespace, name)
        if account is None:
            if name != "default":
                why = f'error looking up service account {attributes.namespace}/{name}: serviceaccount "{name}" not found'
                raise forbidden(attributes.resource.kind, attributes.name, why)
            # The controller makes `default` a moment after its namespace; a pod need not wait for
            # it.
            account = {}
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [dict(secret) for secret in account["imagePullSecrets"]]
        mount = spec.get("automountServiceAccountToken")
        if mount is None:
            mount = account.get("automountServiceAccountToken", True)
        if mount:
            mount_token(spec)

    def _account(self, namespace: str, name: str) -> Json | None:
        key = f"{namespace}/{name}"
        row = self.registry["serviceaccounts"].collection.newest(key)
        if row is None:
            return None
        return remembered(self._accounts, key, row)

    def priority(self, attributes: Attributes) -> None:
        """Fill in a pod's priority from its priority class."""
        pod = attributes.object
        assert pod is not None
        spec = pod.get("spec")
        if not isinstance(spec, dict):
            return
        resource = self.registry.get("scheduling.k8s.io", "v1", "priorityclasses")
        name = spec.get("priorityClassName") or ""
        found: Json | None = None
        if resource is not None:
            if name:
                row = resource.collection.newest(name)
                if row is None:
                    raise forbidden(
                        attributes.resource.kind,
                        attributes.name,
                        f"no PriorityClass with name {name} was found",
                    )
                found = remembered(self._classes, name, row)
            else:
                found = self._default_class(resource)
                if found is not None:
                    spec["priorityClassName"] = found["metadata"]["name"]
        value = found.get("value", 0) if found else 0
        given = spec.get("priority")
        if given is not None and given != value:
            raise forbidden(
                attributes.resource.kind,
                attributes.name,
                f"the integer value of priority ({given}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name",
            )
        spec["priority"] = value
        policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
        if spec.setdefault("preemptionPolicy", policy) != policy:
            raise forbidden(
                attributes.resource.kind,
                attributes.name,
                f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
                f"priority admission controller computed {policy} from the given PriorityClass name",
            )

    def _default_class(self, resource: Resource) -> Json | None:
        collection = resource.collection
        if not collection.overlay and self._default_at == collection.version:
            return self._default
        best: Json | None = None
        for row in collection.accepted():
            tree = remembered(self._classes, row.key, row)
            if tree.get("globalDefault") and (
                best is None or tree.get("value", 0) < best.get("value", 0)
            ):
                best = tree
        self._default, self._default_at = best, -1 if collection.overlay else collection.version
        return best


def mount_token(spec: Json) -> None:
    """Add the projected token volume, and mount it in containers that have no other mount at its
    path."""
    containers = [
        c
        for name in ("initContainers", "containers")
        for c in spec.get(name) or ()
        if isinstance(c, dict)
    ]
    wanting = [
        c
        for c in containers
        if not any(m.get("mountPath") == TOKEN_PATH for m in c.get("volumeMounts") or ())
    ]
    if not wanting:
        return
    volumes = spec.setdefault("volumes", [])
    name = next(
        (v["name"] for v in volumes if str(v.get("name", "")).startswith("kube-api-access-")), ""
    )
    if not name:
        name = "kube-api-access-" + random_suffix()
        volumes.append(
            {
                "name": name,
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                        {
                            "configMap": {
                                "name": "kube-root-ca.crt",
                                "items": [{"key": "ca.crt", "path": "ca.crt"}],
                            }
                        },
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {
                                            "apiVersion": "v1",
                                            "fieldPath": "metadata.namespace",
                                        },
                                    }
                                ]
                            }
                        },
                    ],
                    "defaultMode": 420,
                },
            }
        )
    for container in wanting:
        container.setdefault("volumeMounts", []).append(
            {"name": name, "readOnly": True, "mountPath": TOKEN_PATH}
        )


def default_tolerations(attributes: Attributes) -> None:
    """Let a pod tolerate a lost node for five minutes, unless it has a toleration of its own."""
    pod = attributes.object
    assert pod is not None
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    add_default_tolerations(spec)
