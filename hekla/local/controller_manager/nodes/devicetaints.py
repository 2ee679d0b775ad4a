"""Evicts pods from devices with NoExecute taints, at once or after the time that their claim
tolerates.  Reference: Kubernetes, dynamic resource allocation, device taints and tolerations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec

from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.events import Recorder
from hekla.local.controller_manager.nodes.evictions import evict, tolerates
from hekla.local.controller_manager.nodes.nodes import Taint
from hekla.local.controller_manager.pods import Pod, Toleration

Device = tuple[str, str, str]
"""Driver, pool and name."""


class DeviceTaintController(Controller):
    """Keys are claims."""

    name = "device-taint-eviction"

    def __init__(
        self,
        client: Client,
        slices: Cache[Json],
        claims: Cache[Json],
        pods: Cache[Pod],
        recorder: Recorder,
    ) -> None:
        super().__init__(slices, claims, pods)
        self.client = client
        self.slices = slices
        self.claims = claims
        self.pods = pods
        self.recorder = recorder
        self.tainted: dict[Device, list[tuple[Taint, float]]] = {}
        """Taints that evict, and since when they do."""
        slices.on_change(self.slice_changed)
        claims.on_change(self.claim_changed)

    def slice_changed(self, old: Json | None, new: Json | None) -> None:
        """Queue the claims of devices whose taints change."""
        concerned = {key for piece in (old, new) if piece is not None for key in devices_of(piece)}
        said = {
            key: taints
            for key, taints in (devices_of(new) if new is not None else {}).items()
            if taints
        }
        changed = set()
        for key in concerned:
            before = dict(self.tainted.get(key, ()))
            now = [
                (taint, before.get(taint, instant(taint.time_added) or time.time()))
                for taint in said.get(key, ())
            ]
            if now != self.tainted.get(key, []):
                changed.add(key)
            if now:
                self.tainted[key] = now
            else:
                self.tainted.pop(key, None)
        for claim in self.claims.all() if changed else ():
            if any(key in changed for key, _ in given(claim)):
                self.queue.add(key_of(claim))

    def claim_changed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and self.tainted and any(key in self.tainted for key, _ in given(new)):
            self.queue.add(key_of(new))

    async def reconcile(self, key: str) -> float | None:
        """Ends the pods of a claim if its time is over; gives the seconds that they have left."""
        claim = self.claims.get(key)
        ends = self.ends(claim) if claim is not None else None
        if claim is None or ends is None:
            return None
        left = ends - time.time()
        if left > 0:
            return left
        for user in (claim.get("status") or {}).get("reservedFor") or ():
            pod = (
                self.pods.get(f"{claim['metadata']['namespace']}/{user.get('name')}")
                if user.get("resource") == "pods"
                else None
            )
            if (
                pod is not None
                and pod.metadata.uid == user.get("uid")
                and not pod.deleting
                and not pod.finished
            ):
                await evict(self.client, self.recorder, pod, "Device Taint manager", time.time())
        return None

    def ends(self, claim: Json) -> float | None:
        """When the pods of a claim have to be deleted; None for never."""
        times = []
        for device, tolerations in given(claim):
            for taint, since in self.tainted.get(device, ()):
                covering = [one for one in tolerations if tolerates(one, taint)]
                limited = [
                    one.toleration_seconds for one in covering if one.toleration_seconds is not None
                ]
                if not covering:
                    times.append(since)
                elif limited:
                    times.append(since + max(0, min(limited)))
        return min(times, default=None)


def key_of(claim: Json) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"


def devices_of(piece: Json) -> dict[Device, list[Taint]]:
    """The devices of a slice, and which of their taints evict."""
    spec = piece["spec"]
    return {
        (spec["driver"], spec["pool"]["name"], device["name"]): [
            msgspec.convert({**taint, "value": taint.get("value") or ""}, Taint)
            for taint in device.get("taints") or ()
            if taint.get("effect") == "NoExecute"
        ]
        for device in spec.get("devices") or ()
    }


def given(claim: Json) -> Iterator[tuple[Device, list[Toleration]]]:
    """The devices that are allocated to a claim, and what it tolerates of each."""
    results: list[dict[str, Any]] = (
        ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
    ).get("results") or []
    for one in results:
        yield (
            (one["driver"], one["pool"], one["device"]),
            [
                msgspec.convert(toleration, Toleration)
                for toleration in one.get("tolerations") or ()
            ],
        )
