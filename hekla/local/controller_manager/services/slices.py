"""EndpointSlices: how the endpoints of one owner are spread over slices, with as few writes as
their changes need.

Pure functions.  An endpoint stays in the slice in which it is; what is new goes where there is
room, the fullest slice first, so that one pod more or less of a thousand is the write of one small
object.  Reference: local-cluster 10.8.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hekla.api.trees import Json

LARGEST = 100
"""Endpoints in one slice."""
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
HEADLESS = "service.kubernetes.io/headless"


class Changes(NamedTuple):
    """What is to be written."""

    create: list[Json]
    update: list[Json]
    delete: list[Json]


class Group(NamedTuple):
    """The endpoints that have the same ports, by an identity of each that lasts."""

    address_type: str
    ports: list[Json]
    endpoints: dict[str, Json]


def identity(endpoint: Json) -> str:
    """The identity of an endpoint while its conditions change: its pod, or its address."""
    target = endpoint.get("targetRef") or {}
    found: str = target.get("uid") or f"{endpoint['addresses'][0]}/{endpoint.get('hostname', '')}"
    return found


def port_key(ports: Iterable[Json] | None) -> tuple[tuple[object, ...], ...]:
    return tuple(
        sorted(
            (
                p.get("name") or "",
                p.get("port") or 0,
                p.get("protocol") or "TCP",
                p.get("appProtocol") or "",
            )
            for p in ports or ()
        )
    )


def plan(body: Json, there: list[Json], groups: list[Group]) -> Changes:
    """The changes that bring the slices `there` to the groups.

    `body` holds the metadata of a new slice (generateName, namespace, labels, ownerReferences).
    One slice always stays, to show that somebody looked after the owner.
    """
    changes = Changes([], [], [])
    left = list(there)
    for group in groups:
        kind = group.address_type, port_key(group.ports)
        mine = [
            piece
            for piece in left
            if (piece.get("addressType"), port_key(piece.get("ports"))) == kind
        ]
        left = [piece for piece in left if piece not in mine]
        spread(body, mine, group, changes)
    if not groups and left:
        keep = left.pop(0)
        write(keep, body, [], [], changes)
    elif not groups:
        changes.create.append(new_slice(body, "IPv4", [], []))
    changes.delete.extend(left)
    return changes


def spread(body: Json, mine: list[Json], group: Group, changes: Changes) -> None:
    """Brings the slices of one group to its endpoints."""
    waiting = dict(group.endpoints)
    kept: list[tuple[Json, list[Json]]] = []
    for piece in mine:
        held: list[Json] = []
        for endpoint in piece.get("endpoints") or ():
            wanted = waiting.pop(identity(endpoint), None)
            if wanted is not None and len(held) < LARGEST:
                held.append(wanted)
            elif wanted is not None:
                waiting[identity(endpoint)] = wanted
        kept.append((piece, held))
    rest = list(waiting.values())
    for _, held in sorted(kept, key=lambda pair: -len(pair[1])):
        room = LARGEST - len(held)
        if rest and room > 0:
            held += rest[:room]
            del rest[:room]
    for piece, held in kept:
        if held:
            write(piece, body, held, group.ports, changes)
        else:
            changes.delete.append(piece)
    for at in range(0, len(rest), LARGEST):
        changes.create.append(
            new_slice(body, group.address_type, rest[at : at + LARGEST], group.ports)
        )


def write(
    piece: Json, body: Json, endpoints: list[Json], ports: list[Json], changes: Changes
) -> None:
    """Notes the update of a slice where it says something else."""
    labels = body["metadata"]["labels"]
    same = (
        (piece.get("endpoints") or []) == endpoints
        and port_key(piece.get("ports")) == port_key(ports)
        and (piece["metadata"].get("labels") or {}) == labels
    )
    if not same:
        metadata = {**piece["metadata"], "labels": labels}
        changes.update.append(
            {
                **piece,
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata,
                "endpoints": endpoints,
                "ports": ports,
            }
        )


def new_slice(body: Json, address_type: str, endpoints: list[Json], ports: list[Json]) -> Json:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "addressType": address_type,
        "metadata": dict(body["metadata"]),
        "endpoints": endpoints,
        "ports": ports,
    }
