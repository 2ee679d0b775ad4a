"""The fields of a pod that the built-in controllers need: one cache of all pods serves them all.

Decoding only these fields keeps ten thousand pods at a few megabytes; msgspec skips the rest of
each event without making objects of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from sys import intern
from typing import Any, TypeVar

import msgspec

from hekla.api.bounded import BoundedCache
from hekla.api.kinds import read_as
from hekla.api.kubernetes.core import POD
from hekla.api.meta import OwnerReference
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.kube.client import Client

T = TypeVar("T", bound=Hashable)

MOST_SHARED = 20_000
_shared: BoundedCache[Any, Any] = BoundedCache(MOST_SHARED)


def shared(value: T) -> T:
    """The one copy of a value that many pods have: thousands of them come from one template."""
    found: T | None = _shared.get(value)
    if found is None:
        found = _shared[value] = value
    return found


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """The metadata that ownership and selection look at."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


class Port(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A named port of a container, for services that name their target."""

    container_port: int = 0
    name: str = ""
    protocol: str = "TCP"


class Container(msgspec.Struct, rename="camel", gc=False, frozen=True):
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class Toleration(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A toleration, with the seconds for which it holds if not for ever."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ClaimSource(msgspec.Struct, rename="camel", gc=False, frozen=True):
    claim_name: str = ""


class Template(msgspec.Struct, gc=False, frozen=True):
    """Whether there is a template; its content is read when it is needed."""


class Volume(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A volume that comes from a claim."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: Template | None = None


class ResourceClaim(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """A claim of devices, by its own name or by the template that it is to be made from."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class FieldTerm(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """One condition on a node's fields."""

    key: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(msgspec.Struct, rename="camel", gc=False, frozen=True):
    match_fields: tuple[FieldTerm, ...] = ()


class NodeTerms(msgspec.Struct, rename="camel", gc=False, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(msgspec.Struct, rename="camel", gc=False, frozen=True):
    required_during_scheduling_ignored_during_execution: NodeTerms | None = None


class Affinity(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """The affinity of a pod, reduced to whether it names one node, as that of DaemonSets' pods
    does."""

    node_affinity: NodeAffinity | None = None

    @property
    def node(self) -> str:
        terms = (
            self.node_affinity.required_during_scheduling_ignored_during_execution
            if self.node_affinity
            else None
        )
        for term in terms.node_selector_terms if terms is not None else ():
            for field in term.match_fields:
                if field.key == "metadata.name" and len(field.values) == 1:
                    return field.values[0]
        return ""


class Spec(msgspec.Struct, rename="camel", gc=False):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    affinity: Affinity | None = None
    target_node: str = ""
    """The one node that the affinity names; the affinity itself is not kept."""

    def __post_init__(self) -> None:
        if self.affinity is not None:
            self.target_node = intern(self.affinity.node)
            self.affinity = None
        self.node_name = intern(self.node_name)
        self.containers = shared(self.containers)
        if self.init_containers:
            self.init_containers = shared(self.init_containers)
        self.tolerations = shared(self.tolerations)
        if self.volumes:
            self.volumes = tuple(
                v
                for v in self.volumes
                if v.persistent_volume_claim is not None or v.ephemeral is not None
            )


class Condition(msgspec.Struct, rename="camel", gc=False):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None

    def __post_init__(self) -> None:
        self.type = intern(self.type)
        self.status = intern(self.status)


class ClaimStatus(msgspec.Struct, rename="camel", gc=False):
    """Which claim of devices was made from a template of the pod."""

    name: str = ""
    resource_claim_name: str | None = None


class Terminated(msgspec.Struct, rename="camel", gc=False):
    """How a container ended."""

    exit_code: int = 0
    finished_at: str = ""


class ContainerState(msgspec.Struct, gc=False):
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    """The status of a container that ended or was restarted; other containers' statuses are not
    kept."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState | None = None

    @property
    def terminated(self) -> Terminated | None:
        return self.state.terminated if self.state is not None else None

    @property
    def telling(self) -> bool:
        return self.restart_count > 0 or self.terminated is not None


class Status(msgspec.Struct, rename="camel", gc=False):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[ClaimStatus, ...] = ()
    extended_resource_claim_status: ClaimStatus | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()

    def __post_init__(self) -> None:
        if self.container_statuses:
            self.container_statuses = tuple(
                status for status in self.container_statuses if status.telling
            )
        if self.init_container_statuses:
            self.init_container_statuses = tuple(
                status for status in self.init_container_statuses if status.telling
            )


class Pod(msgspec.Struct, gc=False):
    """A pod as the built-in controllers see it."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)
    concerns: tuple[str, ...] = ()
    """What some controllers filter pods by: the kind that manages the pod or that none does, claims
    of volumes, of devices."""

    def __post_init__(self) -> None:
        spec, status = self.spec, self.status
        if (status.container_statuses or status.init_container_statuses) and not holder(self):
            status.container_statuses = (
                status.init_container_statuses
            ) = ()  # only workloads ask how their containers ended
        owner = self.controller()
        concerns = [managed_by(owner.api_version, owner.kind) if owner is not None else UNMANAGED]
        if spec.volumes:
            concerns.append(VOLUMES)
        if spec.resource_claims or status.extended_resource_claim_status is not None:
            concerns.append(DEVICES)
        self.concerns = shared(tuple(concerns))

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def reference(self) -> Json:
        """The pod as events refer to it."""
        meta = self.metadata
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": meta.name, "namespace": meta.namespace, "uid": meta.uid},
        }

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def active(self) -> bool:
        """Counts as a replica: neither finished nor on its way out."""
        return not self.finished and not self.deleting

    @property
    def ready_since(self) -> str | None:
        """When the Ready condition became true; None while it is not."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                return condition.last_transition_time or ""
        return None

    @property
    def ready(self) -> bool:
        return self.ready_since is not None

    @property
    def claims(self) -> Sequence[str]:
        """Keys of the volume claims that the pod names, those that are made for it included."""
        if not self.spec.volumes:
            return ()
        meta = self.metadata
        return [
            f"{meta.namespace}/{v.persistent_volume_claim.claim_name if v.persistent_volume_claim else f'{meta.name}-{v.name}'}"
            for v in self.spec.volumes
        ]

    def controller(self) -> OwnerReference | None:
        """The owner that manages this pod, if any."""
        for owner in self.metadata.owner_references:
            if owner.controller:
                return owner
        return None

    def available(self, minimum: float, now: float) -> bool:
        """Has been ready for so many seconds."""
        since = self.ready_since
        return since is not None and (
            not minimum or (bool(since) and now - instant(since) >= minimum)
        )

    @property
    def restarts(self) -> int:
        return sum(
            status.restart_count
            for status in (*self.status.init_container_statuses, *self.status.container_statuses)
        )


UNMANAGED, VOLUMES, DEVICES = "nobody's", "volumes", "devices"


def waiting(pods: Iterable[Pod]) -> int:
    """How many of these have not begun to run."""
    return sum(pod.active and pod.status.phase == "Pending" for pod in pods)


def managed_by(api_version: str, kind: str) -> str:
    """The concern (see `Cache.on_change_of`) of pods that objects of a kind manage."""
    return f"{kind} of {api_version}"


concerns: Callable[[Pod], tuple[str, ...]] = attrgetter("concerns")
"""By which the pods' cache sorts its listeners: most controllers have nothing to do with most pods.
"""

HOLDER = "holder"
"""The index of the pods' cache by the uid of the workload that manages them."""

WORKLOADS = frozenset(
    {
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("batch/v1", "Job"),
        ("v1", "ReplicationController"),
    }
)


def holder(pod: Pod) -> tuple[str, ...]:
    """The index function of HOLDER; pods without an owner and of other systems' kinds are not
    indexed."""
    found = pod.controller()
    return (
        (found.uid,) if found is not None and (found.api_version, found.kind) in WORKLOADS else ()
    )


async def patch_status(client: Client, pod: Pod, status: Json) -> None:
    """Merge a patch into the status of a pod.  Raises NotFound or Conflict when the pod is gone or
    another of its name."""
    meta = pod.metadata
    patch = {"metadata": {"uid": meta.uid}, "status": status}
    await client.patch(
        POD.untyped, meta.name, patch, meta.namespace, type="strategic", subresource="status"
    )


PODS = read_as(POD, Pod)


def matches(selector: Json | None, labels: dict[str, str]) -> bool:
    """Whether a LabelSelector in JSON matches these labels.  A missing selector matches nothing, an
    empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(satisfies(term, labels) for term in selector.get("matchExpressions", ()))


def satisfies(term: Json, labels: dict[str, str]) -> bool:
    """One matchExpressions term; NotIn and DoesNotExist hold for an absent label."""
    value, values = labels.get(term["key"]), term.get("values", ())
    operator = term["operator"]
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value not in values
    return bool((value is not None) == (operator == "Exists"))
