"""What a rule sees, and what it answers.

The three pieces are kept apart so that a rule is a pure function: the request (`Review`), what else
is in the cluster (`Lookup`, filled from caches by the server and from lists by tests) and how the
process was started (`Settings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hekla.api.sizes import MOST_PODS, MOST_TASKS

Tree = Mapping[str, Any]
Patch = list[dict[str, Any]]

DEFAULT_SCHEDULER = "volcano"
ROOT_QUEUE = "root"
DEFAULT_QUEUE = "default"
POD_LEVEL_RESOURCES_SINCE = 34
"""The minor version of Kubernetes since which pods may have resources of their own."""


class Lookup(Protocol):
    """What rules may ask about the rest of the cluster; answers may be late, as those of any cache."""

    def queue(self, name: str) -> Tree | None: ...

    def queues(self) -> Iterable[Tree]: ...

    def children(self, parent: str) -> Sequence[Tree]:
        """Queues whose `spec.parent` is `parent`, in the order of the cache."""
        ...

    def namespace(self, name: str) -> Tree | None: ...

    def reservations(self) -> Iterable[Tree]:
        """The Reservations; none if they are not watched."""
        ...

    def hypernode(self, name: str) -> Tree | None:
        """The HyperNode; None also if HyperNodes are not watched."""
        ...


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """One entry of the admission configuration (reference: api-and-admission 5.4)."""

    name: str = ""
    key: str = ""
    values: tuple[str, ...] = ()
    scheduler_name: str = ""
    tolerations: tuple[dict[str, Any], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags that change rules.  `resource_groups` is None if no configuration was loaded."""

    scheduler_names: tuple[str, ...] = (DEFAULT_SCHEDULER,)
    max_queue_depth: int = 5
    queue_allocated_pods_check: bool = False
    root_queue_protection: bool = True
    pod_level_resources: bool = True
    scheduling_gates: bool = False
    resource_groups: tuple[ResourceGroup, ...] | None = None
    max_job_pods: int = MOST_PODS
    max_job_tasks: int = MOST_TASKS
    """Of a job the tasks, of a JobFlow the flows.  0 is no bound, here and above."""


@dataclass(frozen=True, slots=True)
class Review:
    """One request.  Its objects are trees, empty if the operation has none."""

    operation: str
    object: Tree
    old: Tree
    name: str
    namespace: str
    lookup: Lookup
    settings: Settings


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    message: str = ""
    patch: Patch | None = None


class StaticLookup:
    """A lookup over given objects, for tests, recorded cases and tools."""

    def __init__(
        self,
        queues: Iterable[Tree] = (),
        namespaces: Iterable[Tree] = (),
        hypernodes: Iterable[Tree] = (),
        reservations: Iterable[Tree] = (),
    ) -> None:
        self._reservations = tuple(reservations)
        self._hypernodes = {name_of(hypernode): hypernode for hypernode in hypernodes}
        self._queues = {name_of(queue): queue for queue in queues}
        self._namespaces = {name_of(namespace): namespace for namespace in namespaces}

    def queue(self, name: str) -> Tree | None:
        return self._queues.get(name)

    def queues(self) -> Iterable[Tree]:
        return self._queues.values()

    def children(self, parent: str) -> Sequence[Tree]:
        return [queue for queue in self._queues.values() if spec_of(queue).get("parent") == parent]

    def namespace(self, name: str) -> Tree | None:
        return self._namespaces.get(name)

    def reservations(self) -> Iterable[Tree]:
        return self._reservations

    def hypernode(self, name: str) -> Tree | None:
        return self._hypernodes.get(name)


def spec_of(tree: Tree) -> Tree:
    return tree.get("spec") or {}


def with_spec(tree: Tree, patch: Patch) -> Patch | None:
    """A patch of a spec, which may be missing.  A spec that is no mapping is left for the schema to
    refuse."""
    spec = tree.get("spec")
    if spec is None:
        return [{"op": "add", "path": "/spec", "value": {}}, *patch]
    return patch or None if isinstance(spec, Mapping) else None


def metadata_of(tree: Tree) -> Tree:
    return tree.get("metadata") or {}


def status_of(tree: Tree) -> Tree:
    return tree.get("status") or {}


def queue_state(queue: Tree) -> str:
    """The state of a Queue.  A new one, which the controller has not seen yet, counts as open."""
    return status_of(queue).get("state") or "Open"


def annotations_of(tree: Tree) -> Mapping[str, str]:
    return metadata_of(tree).get("annotations") or {}


def name_of(tree: Tree) -> str:
    return metadata_of(tree).get("name") or ""


def queue_not_found(name: str) -> str:
    """The API server's message for a missing Queue."""
    return f'queue.scheduling.volcano.sh "{name}" not found'


def both_tiers(topology: Tree | None) -> bool:
    """Whether a networkTopology limits its tier both by number and by name."""
    topology = topology or {}
    return topology.get("highestTierAllowed") is not None and bool(topology.get("highestTierName"))


BOTH_TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)
