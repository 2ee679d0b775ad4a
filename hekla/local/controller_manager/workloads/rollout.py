"""The arithmetic of a rolling update: how large the new ReplicaSet and the old ones may be now.
Reference: local-cluster 10.4.

Pure functions over counts, apart from the controller that carries them out.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import NamedTuple

from hekla.api.trees import Json

SAFE = "bcdfghjklmnpqrstvwxz2456789"


class Limits(NamedTuple):
    """Of a rolling update: pods above and below the wanted number."""

    surge: int
    unavailable: int


def share(value: int | str, total: int, *, up: bool) -> int:
    """A number, or a percentage of a total rounded up or down."""
    if isinstance(value, int):
        return value
    exact = int(value.rstrip("%")) * total / 100
    return math.ceil(exact) if up else math.floor(exact)


def limits(spec: Json) -> Limits:
    """maxSurge rounds up, maxUnavailable down; where both come to nothing, one pod may be
    unavailable."""
    rolling = spec.get("strategy", {}).get("rollingUpdate") or {}
    replicas = spec.get("replicas", 1)
    surge = share(rolling.get("maxSurge", "25%"), replicas, up=True)
    unavailable = share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
    return Limits(surge, min(unavailable, replicas) or (0 if surge else 1))


class Size(NamedTuple):
    """Of one ReplicaSet: what its spec asks for and how many of its pods are available."""

    replicas: int
    available: int


def new_size(wanted: int, new: Size, old: list[Size], limit: Limits) -> int:
    """The replicas that the new ReplicaSet may have now."""
    total = new.replicas + sum(size.replicas for size in old)
    room = wanted + limit.surge - total
    if new.replicas >= wanted:
        return wanted
    return min(wanted, new.replicas + max(0, room))


def old_sizes(wanted: int, new: Size, old: list[Size], limit: Limits) -> list[int]:
    """The replicas that each old ReplicaSet may keep now: what is not available goes first, then
    what can be spared."""
    keep = [size.replicas for size in old]
    floor = wanted - limit.unavailable
    total = new.replicas + sum(keep)
    unavailable_new = new.replicas - new.available
    budget = total - floor - unavailable_new
    for index, size in enumerate(old):  # unhealthy pods serve nobody, so they go first
        if budget <= 0:
            break
        gone = min(budget, size.replicas - min(size.available, size.replicas))
        keep[index] -= gone
        budget -= gone
    spare = new.available + sum(min(size.available, left) for size, left in zip(old, keep)) - floor
    for index in range(len(old)):
        if spare <= 0:
            break
        gone = min(spare, keep[index])
        keep[index] -= gone
        spare -= gone
    return keep


class Share(NamedTuple):
    """A ReplicaSet while its deployment is resized: its replicas, and for which most replicas of
    the deployment it was sized."""

    replicas: int
    most: int


def proportional_sizes(
    wanted: int, limit: Limits, most_before: int, shares: list[Share]
) -> list[int]:
    """The replicas of each active ReplicaSet after the deployment was resized in the middle of a
    rollout.

    Each grows or shrinks in proportion; what rounding leaves goes to the first.  `shares` come
    largest first, among equals the newest first when growing and the oldest first when shrinking.
    `most_before` is used where a ReplicaSet does not say what it was sized for.
    """
    allowed = wanted + limit.surge if wanted else 0
    change = allowed - sum(share.replicas for share in shares)
    sizes, given = [], 0
    for replicas, most in shares:
        part = 0
        if change and replicas and change != given:
            part = _fraction(replicas, wanted, limit, most or most_before)
            part = min(part, change - given) if change > 0 else max(part, change - given)
        given += part
        sizes.append(replicas + part)
    if sizes:
        sizes[0] = max(0, sizes[0] + change - given)
    return sizes


def _fraction(replicas: int, wanted: int, limit: Limits, most: int) -> int:
    """By how much a ReplicaSet would change if parts of pods existed, rounded half away from zero."""
    if not wanted:
        return -replicas
    if not most:
        return 0
    return math.floor(replicas * (wanted + limit.surge) / most + 0.5) - replicas


def template_hash(template: Json, collisions: int) -> str:
    """Ten characters that stand for a pod template; `collisions` tells apart those that happened to
    agree."""
    text = json.dumps([template, collisions], sort_keys=True, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    letters = []
    for _ in range(10):
        number, index = divmod(number, len(SAFE))
        letters.append(SAFE[index])
    return "".join(letters)


def same_template(one: Json, other: Json) -> bool:
    """Whether two pod templates are the same but for the hash label."""
    return bare(one) == bare(other)


def bare(template: Json) -> Json:
    meta = dict(template.get("metadata") or {})
    labels = {
        key: value
        for key, value in (meta.pop("labels", None) or {}).items()
        if key != "pod-template-hash"
    }
    meta.pop("creationTimestamp", None)
    return {
        "metadata": {**meta, **({"labels": labels} if labels else {})},
        "spec": template.get("spec", {}),
    }
