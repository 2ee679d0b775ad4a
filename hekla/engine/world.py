"""A small cluster in memory: what tests, the benchmark and the simulator put objects into and run
actions on.

    world = World(policy(plugins=["gang", "predicates", "binpack"]))
    world.nodes("n1", "n2", cpu=4)
    world.job("train", pods=2, cpu=1, min_available=2)
    decisions = world.run("allocate")
    assert decisions.nodes_of("train") == {"n1"}

Time is handed in: `world.now` is what the clock says, `world.settle()` makes the decisions true as
a cluster would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.engine.cycle import cycle
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.policy import DEFAULT, Policy
from hekla.engine.model.decisions import Decisions, EvictionNotice
from hekla.engine.model.evictions.notices import EVICT_AT, EVICT_FOR
from hekla.engine.model.state import State
from hekla.engine.policies import read_policy

NAMESPACE = "default"
Amount = int | float | str
"""Of a resource, as an object of the API would have it."""


def policy(
    plugins: Sequence[str | Tree] | None = None,
    *,
    tiers: Sequence[Sequence[str | Tree]] | None = None,
    actions: str = "enqueue, allocate, backfill",
    configurations: Sequence[Tree] = (),
    custom: Iterable[type[Plugin]] = (),
) -> Policy:
    """A policy of one tier (`plugins`) or several (`tiers`); a plugin is a name or the mapping of
    the policy file."""
    if plugins is None and tiers is None:
        return read_policy({**DEFAULT, "actions": actions})
    listed = [plugins or ()] if tiers is None else tiers
    tree = {
        "actions": actions,
        "tiers": [
            {"plugins": [{"name": one} if isinstance(one, str) else dict(one) for one in tier]}
            for tier in listed
        ],
        "configurations": [dict(one) for one in configurations],
    }
    return read_policy(tree, plugins={one.name: one for one in custom})


class World:
    """State, policy and a clock."""

    def __init__(
        self, policy: Policy, *, now: float = 1_000_000.0, default_queue: bool = True
    ) -> None:
        self.policy = policy
        self.now = now
        self.state = State(bare_pod_schedulers=["default-scheduler"])
        self.pods: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.decisions = Decisions()
        self.tells_starts = False
        """Whether pods that are bound say when they started."""
        self._made = 0
        self._remade = 0
        if default_queue:
            self.queue("default")

    # -------------------------------------------------------------------------------------- objects

    def nodes(
        self,
        *names: str,
        cpu: Amount = 4,
        memory: Amount = "16Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
        unschedulable: bool = False,
        images: Mapping[str, int] | None = None,
        annotations: Mapping[str, str] | None = None,
        **others: Amount,
    ) -> None:
        """Nodes of one size.  A taint is written `key=value:Effect`; further resources go by
        keyword (`gpu` is NVIDIA's)."""
        amounts = {"cpu": str(cpu), "memory": str(memory), "pods": str(pods), **_named(others)}
        for name in names:
            self.state.upsert_node(
                {
                    "metadata": {
                        "name": name,
                        "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                        "annotations": dict(annotations or {}),
                    },
                    "spec": {
                        "taints": [_taint(one) for one in taints],
                        "unschedulable": unschedulable,
                    },
                    "status": {
                        "allocatable": amounts,
                        "images": [
                            {"names": [image], "sizeBytes": size}
                            for image, size in (images or {}).items()
                        ],
                    },
                }
            )

    def queue(self, name: str, *, weight: int = 1, state: str = "Open", **spec: object) -> None:
        """A queue; `capability`, `deserved` are mappings, `guarantee` too, the rest as in the API."""
        if "guarantee" in spec:
            spec["guarantee"] = {"resource": spec["guarantee"]}
        self.state.upsert_queue(
            {
                "metadata": {"name": name, "creationTimestamp": self._stamp()},
                "spec": {"weight": weight, **spec},
                "status": {"state": state},
            }
        )

    def priority_class(self, name: str, value: int, *, default: bool = False) -> None:
        self.state.upsert_priority_class(
            {"metadata": {"name": name}, "value": value, "globalDefault": default}
        )

    def selector(
        self, kind: str, name: str, labels: Mapping[str, str] | None, *, namespace: str = NAMESPACE
    ) -> None:
        """A Service, ReplicaSet, StatefulSet or ReplicationController that selects pods with these
        labels; None where it is gone."""
        if labels is None:
            self.state.remove_other(kind, f"{namespace}/{name}")
            return
        selector = (
            {"matchLabels": dict(labels)} if kind in ("ReplicaSet", "StatefulSet") else dict(labels)
        )
        self.state.upsert_other(
            kind,
            {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}},
        )

    def job(
        self,
        name: str,
        *,
        pods: int = 1,
        min_available: int | None = None,
        queue: str = "default",
        phase: str = "Inqueue",
        priority: str = "",
        min_resources: Mapping[str, Amount] | None = None,
        on: Sequence[str] = (),
        namespace: str = NAMESPACE,
        annotations: Mapping[str, str] | None = None,
        group: Tree | None = None,
        role: str = "",
        **pod: Any,
    ) -> None:
        """A PodGroup with pods of one template.  `on`: nodes on which the first pods run already.

        Further keywords describe the pods, see `pod`; `group` are further fields of the PodGroup's
        spec.
        """
        spec: Json = {
            "minMember": pods if min_available is None else min_available,
            "queue": queue,
            "priorityClassName": priority,
            **(group or {}),
        }
        if min_resources is not None:
            spec["minResources"] = {key: str(value) for key, value in min_resources.items()}
        made = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"group-{name}",
                "creationTimestamp": self._stamp(),
                "annotations": dict(annotations or {}),
            },
            "spec": spec,
            "status": {"phase": phase},
        }
        self.groups[f"{namespace}/{name}"] = made
        self.state.upsert_pod_group(made)
        for number in range(pods):
            node = on[number] if number < len(on) else ""
            self.pod(
                f"{name}-{role or 'task'}-{number}",
                job=name,
                node=node,
                namespace=namespace,
                role=role,
                **pod,
            )

    def pod(
        self,
        name: str,
        *,
        job: str = "",
        node: str = "",
        namespace: str = NAMESPACE,
        cpu: Amount | None = None,
        memory: Amount | None = None,
        role: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        scheduler: str = "volcano",
        phase: str = "",
        spec: Tree | None = None,
        port: int = 0,
        preemptable: bool | None = None,
        owner: str = "",
        **others: Amount,
    ) -> None:
        """One pod of one container.  `owner`: kind and name of its controller.  Further resources
        go by keyword."""
        requests = {
            key: str(value)
            for key, value in (("cpu", cpu), ("memory", memory))
            if value is not None
        }
        container: Json = {
            "name": "main",
            "resources": {"requests": {**requests, **_named(others)}},
        }
        if port:
            container["ports"] = [{"hostPort": port, "containerPort": port}]
        notes = dict(annotations or {})
        if job:
            notes["scheduling.k8s.io/group-name"] = job
        if role:
            notes["volcano.sh/task-spec"] = role
        if preemptable is not None:
            notes["volcano.sh/preemptable"] = str(preemptable).lower()
        tree: Json = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"{namespace}-{name}",
                "labels": dict(labels or {}),
                "annotations": notes,
                "creationTimestamp": self._stamp(),
            },
            "spec": {
                "schedulerName": scheduler,
                "containers": [container],
                "nodeName": node,
                **(spec or {}),
            },
            "status": {"phase": phase or ("Running" if node else "Pending")},
        }
        if owner:
            kind, _, called = owner.partition("/")
            version = "v1" if kind == "ReplicationController" else "apps/v1"
            tree["metadata"]["ownerReferences"] = [
                {"apiVersion": version, "kind": kind, "name": called, "controller": True}
            ]
        self.pods[f"{namespace}/{name}"] = tree
        self.state.upsert_pod(tree)

    # -------------------------------------------------------------------------------------- running

    def run(self, actions: str = "") -> Decisions:
        """One cycle; `actions` in place of the policy's own."""
        chosen = self.policy
        if actions:
            names = tuple(name.strip() for name in actions.split(","))
            chosen = self._with_actions(names)
        self.decisions = cycle(self.state, chosen, self.now)
        return self.decisions

    def _with_actions(self, names: tuple[str, ...]) -> Policy:
        return Policy(
            names,
            self.policy.tiers,
            self.policy.configurations,
            self.policy.metrics,
            self.policy.tie_seed,
        )

    def settle(self, *, coming_back: bool = False) -> None:
        """What was decided last happens: bound pods run, evicted ones are gone.

        `coming_back`: whoever owns them makes them anew at once, under their old names.
        """
        for bind in self.decisions.binds:
            tree = self.pods[bind.pod]
            tree["spec"]["nodeName"] = bind.node
            tree["metadata"]["annotations"].update(bind.annotations)
            tree["status"]["phase"] = "Running"
            if self.tells_starts:
                tree["status"]["startTime"] = stamp(self.now)
            self.state.upsert_pod(tree)
        for notice in self.decisions.notices or ():
            self._mark(notice)
        for eviction in self.decisions.evictions:
            gone = self.pods.pop(eviction.pod, None)
            self.state.remove_pod(eviction.pod)
            if coming_back and gone is not None:
                self._again(gone)
        for group in self.decisions.pod_groups:
            tree = self.groups[group.key]
            tree["status"] = {
                "phase": group.phase,
                "running": group.running,
                "succeeded": group.succeeded,
                "failed": group.failed,
                "conditions": group.conditions,
            }
            self.state.upsert_pod_group(tree)

    def _mark(self, notice: EvictionNotice) -> None:
        """A pod is told when it will be evicted, or that it may stay."""
        tree = self.pods[notice.pod]
        marks = tree["metadata"]["annotations"]
        marks.pop(EVICT_AT, None)
        marks.pop(EVICT_FOR, None)
        if notice.at:
            marks.update({EVICT_AT: stamp(notice.at), EVICT_FOR: notice.claimant})
        self.state.upsert_pod(tree)

    def _again(self, gone: Json) -> None:
        """A pod in place of one that was evicted: the same but for its uid and its age, and without
        a node."""
        self._remade += 1
        meta, spec = gone["metadata"], {**gone["spec"], "nodeName": ""}
        for mark in (EVICT_AT, EVICT_FOR):
            meta["annotations"].pop(mark, None)
        made = {
            "metadata": {
                **meta,
                "uid": f"{meta['uid']}+{self._remade}",
                "creationTimestamp": self._stamp(),
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        self.pods[f"{meta['namespace']}/{meta['name']}"] = made
        self.state.upsert_pod(made)

    def end(self, job: str, *, phase: str = "Succeeded", namespace: str = NAMESPACE) -> None:
        """All pods of a job end."""
        for tree in self.pods.values():
            if tree["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == job:
                tree["status"]["phase"] = phase
                self.state.upsert_pod(tree)

    def why(self, job: str, namespace: str = NAMESPACE) -> str:
        """Why a job waits, as of the last cycle; empty where it does not."""
        found = self.decisions.explanations.get(f"{namespace}/{job}")
        return found.text if found is not None else ""

    def phase(self, job: str, namespace: str = NAMESPACE) -> str:
        return self.state.jobs[f"{namespace}/{job}"].phase

    def _stamp(self) -> str:
        """Objects are made one second apart, so that age decides ties as it would in life."""
        self._made += 1
        return stamp(self.now - 100_000 + self._made)


def _named(others: Mapping[str, Amount]) -> dict[str, str]:
    return {
        ("nvidia.com/gpu" if key == "gpu" else key): str(value) for key, value in others.items()
    }


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}
