"""A copy of what a scheduler knows: the objects of a snapshot by kind, which may be changed before a
state is made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hekla.api.trees import Tree
from hekla.engine.model.reading import key_of, title_of
from hekla.engine.tape import (
    HEADER,
    MOMENT,
    POLICY,
    STATE_CALLS,
    Frame,
    RecordingError,
    settings_of,
)

KINDS = {
    "upsert_priority_class": "PriorityClass",
    "upsert_namespace": "Namespace",
    "upsert_node": "Node",
    "upsert_queue": "Queue",
    "upsert_pod_group": "PodGroup",
    "upsert_pod": "Pod",
}
ENDED = frozenset(("Succeeded", "Failed"))


class ClusterCopy:
    """The objects of a cluster, the settings and the policy of its scheduler, and its clock.

    The objects are those of the snapshot: change a copy of one, and put it back.
    """

    def __init__(self, settings: dict[str, Any], now: float = 0.0) -> None:
        self.settings = settings
        self.policy: tuple[str, str, dict[str, str]] = ("", "", {})
        """Name, text and plugin files; an empty text is the built-in policy."""
        self.objects: dict[str, dict[str, Tree]] = {}
        """Kind -> key -> object."""
        self.now = now
        self._made = 0

    @classmethod
    def of(cls, frames: Iterable[Frame], name: str) -> ClusterCopy:
        """The copy that a snapshot makes.  Raises RecordingError for one that is not whole."""
        made: ClusterCopy | None = None
        whole = False
        for frame in frames:
            if frame[0] == HEADER:
                made = cls(settings_of(frame, name))
                continue
            if made is None:
                raise RecordingError(f"{name}: it has no header")
            whole = made._take(frame, name) or whole
        if made is None or not whole:
            raise RecordingError(f"{name}: it broke off before its end; ask again")
        return made

    def _take(self, frame: Frame, name: str) -> bool:
        """Take one frame; whether it was the last one of a snapshot."""
        word, *given = frame
        if word == MOMENT:
            self.now = float(given[0])
            return True
        if word == POLICY:
            self.policy = (given[0], given[1], dict(given[2]))
        elif word == "upsert_other":
            self.put(given[0], given[1])
        elif word in KINDS:
            self.put(KINDS[word], given[0])
        elif word not in STATE_CALLS:
            raise RecordingError(f'{name}: a frame "{word}" of which this program knows nothing')
        return False

    def put(self, kind: str, tree: Tree) -> None:
        """Add an object, or replace the one of its name."""
        self.objects.setdefault(kind, {})[key_of(tree)] = tree

    def drop(self, kind: str, key: str) -> None:
        self.objects.get(kind, {}).pop(key, None)

    def of_kind(self, kind: str) -> dict[str, Tree]:
        return self.objects.get(kind, {})

    def trees(self) -> Iterator[Tree]:
        """All objects with their kinds."""
        for kind, objects in self.objects.items():
            for tree in objects.values():
                yield tree if tree.get("kind") == kind else {**tree, "kind": kind}

    # ------------------------------------------------------------------------------------- looking

    def pods_on(self, node: str) -> list[tuple[str, Tree]]:
        """The pods that hold room on a node, with their keys."""
        return [(key, pod) for key, pod in self.of_kind("Pod").items() if node_of(pod) == node]

    def pods_of(self, group: str) -> list[tuple[str, Tree]]:
        """The pods of a PodGroup, by its key."""
        namespace, _, name = group.partition("/")
        return [
            (key, pod)
            for key, pod in self.of_kind("Pod").items()
            if group_of(pod) == name and key.partition("/")[0] == namespace
        ]

    def groups_named(self, namespace: str, name: str) -> list[str]:
        """The keys of the PodGroups that people know by this name: their own, or their job's."""
        return [
            key
            for key, group in self.of_kind("PodGroup").items()
            if key.partition("/")[0] == namespace
            and name in (group["metadata"]["name"], title_of(group["metadata"]))
        ]

    def new_uid(self) -> str:
        self._made += 1
        return f"what-if-{self._made}"


def node_of(pod: Tree) -> str:
    """The node on which a pod holds room; empty if it is on none, or has ended."""
    if (pod.get("status") or {}).get("phase") in ENDED:
        return ""
    return str((pod.get("spec") or {}).get("nodeName") or "")


def group_of(pod: Tree) -> str:
    """The name of a pod's PodGroup."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get("scheduling.k8s.io/group-name") or "")
