"""How far a rollout is: a Deployment's status, a pure function of its ReplicaSets.  Reference:
local-cluster 10.4."""

from __future__ import annotations

from typing import Any

from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.local.controller_manager.workloads.rollout import limits

NO_DEADLINE = 2**31 - 1

COMPLETE = "NewReplicaSetAvailable"
TIMED_OUT = "ProgressDeadlineExceeded"


class Conditions:
    """The conditions of an object, changed step by step; their transition times move only with
    their status."""

    def __init__(self, known: list[Json] | None, now: float) -> None:
        self.by_type: dict[str, Json] = {condition["type"]: condition for condition in known or ()}
        self.now = stamp(now)

    def get(self, kind: str) -> Json | None:
        return self.by_type.get(kind)

    def reason(self, kind: str) -> str:
        return str(self.by_type.get(kind, {}).get("reason", ""))

    def set(
        self, kind: str, status: str, reason: str, message: str, *, renew: bool = False
    ) -> None:
        """`renew` moves the time of the last update although nothing else changed."""
        old = self.by_type.get(kind)
        same = old is not None and (old["status"], old.get("reason")) == (status, reason)
        if old is not None and same and not renew and old.get("message") == message:
            return
        since = (
            old["lastTransitionTime"] if old is not None and old["status"] == status else self.now
        )
        self.by_type[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastUpdateTime": self.now,
            "lastTransitionTime": since,
        }

    def drop(self, kind: str) -> None:
        self.by_type.pop(kind, None)

    def list(self) -> list[Json]:
        return list(self.by_type.values())


def total(field: str, sets: list[Json]) -> int:
    return sum(replica_set.get("status", {}).get(field, 0) for replica_set in sets)


def counts(deployment: Json, new: Json | None, sets: list[Json]) -> Json:
    """The numbers of the status."""
    before = deployment.get("status", {})
    replicas, available = total("replicas", sets), total("availableReplicas", sets)
    asked = sum(replica_set["spec"].get("replicas", 1) for replica_set in sets)
    found: Json = {
        "replicas": replicas,
        "updatedReplicas": total("replicas", [new] if new is not None else []),
        "readyReplicas": total("readyReplicas", sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, asked - available),
        "collisionCount": before.get("collisionCount", 0),
    }
    found = {name: count for name, count in found.items() if count}
    if any("terminatingReplicas" in replica_set.get("status", {}) for replica_set in sets):
        found["terminatingReplicas"] = total("terminatingReplicas", sets)
    return {"observedGeneration": deployment["metadata"].get("generation", 0), **found}


def complete(deployment: Json, status: Json) -> bool:
    """Every pod is of the present template and available, and no other is left."""
    wanted = deployment["spec"].get("replicas", 1)
    return bool(
        status.get("updatedReplicas", 0)
        == status.get("replicas", 0)
        == status.get("availableReplicas", 0)
        == wanted
        and status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    )


def status_of(
    deployment: Json,
    new: Json | None,
    sets: list[Json],
    conditions: Conditions,
    now: float,
    *,
    rolling: bool = True,
) -> Json:
    """The whole status.  `rolling` is False while the deployment is paused or was just resized:
    then progress is not judged."""
    status = counts(deployment, new, sets)
    wanted = deployment["spec"].get("replicas", 1)
    spared = (
        limits(deployment["spec"]).unavailable
        if deployment["spec"].get("strategy", {}).get("type") != "Recreate"
        else 0
    )
    if status.get("availableReplicas", 0) >= wanted - spared:
        conditions.set(
            "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
        )
    else:
        conditions.set(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    if rolling:
        _judge(deployment, new, status, conditions, now)
    failure = next(
        (
            c
            for s in sets
            for c in s.get("status", {}).get("conditions") or ()
            if c["type"] == "ReplicaFailure"
        ),
        None,
    )
    if failure is None:
        conditions.drop("ReplicaFailure")
    else:
        conditions.set("ReplicaFailure", failure["status"], failure["reason"], failure["message"])
    status["conditions"] = conditions.list()
    return status


def _judge(
    deployment: Json, new: Json | None, status: Json, conditions: Conditions, now: float
) -> None:
    """Set the Progressing condition: it is renewed with every step, and turns false when none came
    in time."""
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    if deadline in (None, NO_DEADLINE):
        conditions.drop("Progressing")
        return
    subject = (
        f'ReplicaSet "{new["metadata"]["name"]}"'
        if new is not None
        else f'Deployment "{deployment["metadata"]["name"]}"'
    )
    if (
        status.get("replicas", 0) == status.get("updatedReplicas", 0)
        and conditions.reason("Progressing") == COMPLETE
    ):
        return  # the rollout has ended; pods that come and go afterwards are no rollout
    if complete(deployment, status):
        conditions.set("Progressing", "True", COMPLETE, f"{subject} has successfully progressed.")
    elif _moved(deployment.get("status", {}), status):
        conditions.set(
            "Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.", renew=True
        )
    elif until_timeout(deployment, conditions, now) == 0:
        conditions.set("Progressing", "False", TIMED_OUT, f"{subject} has timed out progressing.")


def _moved(before: Json, status: Json) -> bool:
    def value(tree: Json, name: str) -> int:
        return int(tree.get(name, 0))

    old = [value(tree, "replicas") - value(tree, "updatedReplicas") for tree in (before, status)]
    grown = any(
        value(status, name) > value(before, name)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return grown or old[1] < old[0]


def until_timeout(deployment: Json, conditions: Conditions, now: float) -> float | None:
    """Seconds until a rollout that does not move is called stuck; None when none is under way."""
    deadline: Any = deployment["spec"].get("progressDeadlineSeconds")
    condition = conditions.get("Progressing")
    if condition is None or deadline in (None, NO_DEADLINE) or condition.get("reason") == COMPLETE:
        return None
    if condition.get("reason") == TIMED_OUT:
        return 0.0
    return max(0.0, instant(condition.get("lastUpdateTime")) + float(deadline) - now)
