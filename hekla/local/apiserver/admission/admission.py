"""The built-in admission chain (local-cluster 6.1), in its order, and the door to the webhooks.

What needs the cluster's state to decide is here; what follows from an object alone is the kind's
strategy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes, Plugin, TreeCache, remembered
from hekla.local.apiserver.objects.new_objects import random_suffix
from hekla.local.apiserver.objects.strategies import tolerate_lost_nodes
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
    """The chain.  `mutate` and `last_look` are synchronous; the webhooks are asked only when one
    matches."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.webhooks: Webhooks | None = None
        self.policies: Policies
        self.quotas: Quotas | None = None
        self.pod_security: PodSecurity | None = None
        self.plugins: dict[tuple[str, str], list[Plugin]] = {
            ("pods", "CREATE"): [self.service_account, self.priority, default_tolerations],
        }
        self.looks: dict[str, tuple[str, ...]] = {
            "pods": ("serviceaccounts", "priorityclasses.scheduling.k8s.io")
        }
        """Collection -> the collections that are all that its plugins look at for a new object,
        besides its spec."""
        self.checks: dict[tuple[str, str], list[Plugin]] = {}
        """What only refuses, asked of the finished object."""
        self.nodes: Plugin | None = None
        """What holds nodes to their own things."""
        self.creation: Plugin | None = None
        """The same of a new object that no POST makes."""
        self._accounts = TreeCache()
        self._classes = TreeCache()
        self._default: Json | None = None
        self._default_at = -1

    # --- the chain --------------------------------------------------------------------------------

    def mutate(self, attributes: Attributes) -> Json:
        """Runs the built-in plugins and gives the object."""
        if attributes.operation == "CREATE":
            self.namespace_lifecycle(attributes)
        if not attributes.subresource:
            for plugin in self.plugins.get(
                (attributes.resource.collection.name, attributes.operation), ()
            ):
                plugin(attributes)
        self.restrict_node(attributes)
        assert attributes.object is not None
        return attributes.object

    def restrict_node(self, attributes: Attributes) -> None:
        """Holds a node to its own things; nobody else."""
        if self.nodes is not None and attributes.call.user.node is not None:
            self.nodes(attributes)

    def last_look(self, attributes: Attributes) -> None:
        """What must still hold in the very step in which the write is accepted."""
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

    def concerned(self, attributes: Attributes) -> bool:
        """Whether a plugin looks at such a write, webhooks and policies apart."""
        if attributes.call.user.node is not None:
            return True
        name = attributes.resource.collection.name
        if self.pod_security is not None and self.pod_security.concerned(attributes):
            return True
        if attributes.subresource:
            return (f"{name}/{attributes.subresource}", attributes.operation) in self.checks
        return (name, attributes.operation) in self.plugins or (
            name,
            attributes.operation,
        ) in self.checks

    def asked(self, attributes: Attributes) -> bool:
        """Whether there is a webhook or a policy for such writes, whatever the object holds."""
        if self.webhooks is None:
            return False
        rooms = (
            self.webhooks.mutating,
            self.policies.mutating.catalog,
            self.webhooks.validating,
            self.policies.validating.catalog,
        )
        return any(room.by_rule(attributes) for room in rooms)

    def wanted(self, attributes: Attributes) -> bool:
        """Whether a webhook or a policy wants to see this write."""
        return self.mutating_webhooks(attributes) or self.validating_webhooks(attributes)

    async def connect(self, attributes: Attributes) -> None:
        """Lets the webhooks see that somebody connects to a pod, a service or a node; what they
        change is of no effect."""
        if self.mutating_webhooks(attributes):
            await self.call_mutating(attributes)
        if self.validating_webhooks(attributes):
            await self.call_validating(attributes)

    def mutating_webhooks(self, attributes: Attributes) -> bool:
        if self.webhooks is None:
            return False
        return self.webhooks.mutating.wanted(attributes) or self.policies.mutating.wanted(
            attributes
        )

    def validating_webhooks(self, attributes: Attributes) -> bool:
        if self.webhooks is None:
            return False
        return self.webhooks.validating.wanted(attributes) or self.policies.validating.wanted(
            attributes
        )

    async def call_mutating(self, attributes: Attributes) -> Json:
        """Asks the webhooks; gives the object with defaults filled again (of a deletion: nothing of
        importance)."""
        assert self.webhooks is not None
        if self.policies.mutating.wanted(attributes):
            self.policies.mutating.run(attributes)
        if await self.webhooks.mutate(attributes) and self.policies.mutating.wanted(attributes):
            before = attributes.object
            self.policies.mutating.run(attributes, again=True)
            if attributes.object != before:
                await self.webhooks.mutate(attributes, again=True)
        if attributes.object is None:
            return {}
        if (
            attributes.subresource not in ("binding", "eviction")
            and attributes.operation != "CONNECT"
        ):
            strategy = attributes.resource.kind.strategy
            (strategy.fill or strategy.default)(
                attributes.object
            )  # what webhooks and policies made was read again
        return attributes.object

    async def call_validating(self, attributes: Attributes) -> None:
        assert self.webhooks is not None
        if self.policies.validating.wanted(attributes):
            self.policies.validating.run(attributes)
        await self.webhooks.validate(attributes)

    # --- plugins ----------------------------------------------------------------------------------

    def namespace_lifecycle(self, attributes: Attributes) -> None:
        """A namespace must be there to be filled, and must not be on its way out."""
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
        """Gives a pod its account, and the account's token as a volume."""
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
        """Turns a priority class into a number."""
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
    """Adds the projected token volume, and mounts it where nothing else is mounted in its place."""
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
    """A pod stands a lost node for five minutes, unless it says otherwise."""
    pod = attributes.object
    assert pod is not None
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    tolerate_lost_nodes(spec)
