"""Allocations as the status of a ResourceClaim has them: read, and written for what a search has
found."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from hekla.api.text import quantity
from hekla.api.trees import Json, Tree
from hekla.engine.model.claims.pools import DeviceKey, Pool, PoolKey
from hekla.engine.model.claims.requests import ClaimRequest
from hekla.engine.model.claims.search import Pick

Booking = list[tuple[DeviceKey, dict[str, int]]]
"""Devices, and how much of their capacities is taken, in thousandths."""

_NAMESPACE = uuid.UUID("6b1f6c0e-6f5e-4a58-9a4f-0d6a86b6a1c5")


def allocation_of(claim: Tree | None) -> Tree | None:
    """What the API says that a claim has been given."""
    return ((claim or {}).get("status") or {}).get("allocation")


def booking_of(allocation: Tree) -> Booking:
    """The devices that an allocation keeps from others."""
    return [
        (
            (str(one["driver"]), str(one["pool"]), str(one["device"])),
            {
                name: quantity.milli(amount)
                for name, amount in (one.get("consumedCapacity") or {}).items()
            },
        )
        for one in (allocation.get("devices") or {}).get("results") or ()
        if not one.get("adminAccess")
    ]


def devices_of(allocation: Tree) -> set[DeviceKey]:
    """All devices of an allocation."""
    return {
        (one["driver"], one["pool"], one["device"])
        for one in (allocation.get("devices") or {}).get("results") or ()
    }


def allocation_for(
    owner: str,
    claim_request: ClaimRequest,
    picks: list[Pick],
    node: str,
    pools: Mapping[PoolKey, Pool],
    classes: Mapping[str, Tree],
) -> Tree:
    """The allocation of picked devices to a claim.  `owner` is the claim's uid, and makes the ids of
    shares."""
    results = [_result(pick, f"{owner}/{number}") for number, pick in enumerate(picks)]
    devices: Json = {"results": results}
    config = _config(claim_request, picks, classes)
    if config:
        devices["config"] = config
    allocation: Json = {"devices": devices}
    selector = _selector(picks, node, pools)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _config(
    claim_request: ClaimRequest, picks: list[Pick], classes: Mapping[str, Tree]
) -> list[Tree]:
    """Parameters for drivers: those of the classes first, then the claim's own, which so have the
    last word."""
    result: list[Tree] = []
    chosen = {pick.choice.name: pick.choice for pick in picks}
    for name, choice in chosen.items():
        made = (classes.get(choice.device_class) or {}).get("spec") or {}
        result.extend(
            {"source": "FromClass", "requests": [name], **one} for one in made.get("config") or ()
        )
    for one in claim_request.config:
        meant = one.get("requests") or ()
        if not meant or any(name in meant or name.partition("/")[0] in meant for name in chosen):
            result.append({"source": "FromClaim", **one})
    return result


def _selector(picks: list[Pick], node: str, pools: Mapping[PoolKey, Pool]) -> Tree | None:
    """Nodes that can use all of these devices; None for every node."""
    expressions: list[Tree] = []
    fields: list[Tree] = []
    bound = False
    for pick in picks:
        group = next(
            (one for one in pools[pick.device.key[:2]].groups if pick.device in one.devices), None
        )
        if group is None:
            continue
        if group.node or pick.device.tree.get("bindsToNode"):
            bound = True
        elif group.selector is not None:
            for term in (group.selector.get("nodeSelectorTerms") or ())[:1]:
                expressions.extend(
                    one for one in term.get("matchExpressions") or () if one not in expressions
                )
                fields.extend(one for one in term.get("matchFields") or () if one not in fields)
    if bound:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        return {"nodeSelectorTerms": [{"matchFields": [field]}]}
    if not expressions and not fields:
        return None
    term = {
        **({"matchExpressions": expressions} if expressions else {}),
        **({"matchFields": fields} if fields else {}),
    }
    return {"nodeSelectorTerms": [term]}


def _result(pick: Pick, share: str) -> Tree:
    driver, pool, name = pick.device.key
    result: Json = {
        "request": pick.choice.name,
        "driver": driver,
        "pool": pool,
        "device": name,
    }
    if pick.choice.admin:
        result["adminAccess"] = True
    if pick.choice.stated_tolerations:
        result["tolerations"] = list(pick.choice.stated_tolerations)
    for condition in ("bindingConditions", "bindingFailureConditions"):
        if pick.device.tree.get(condition):
            result[condition] = list(pick.device.tree[condition])
    if pick.device.shared and not pick.choice.admin:
        result["shareID"] = str(uuid.uuid5(_NAMESPACE, f"{share}/{driver}/{pool}/{name}"))
        result["consumedCapacity"] = {
            part: str(quantity.Quantity.of_milli(amount)) for part, amount in pick.consumed
        }
    return result
