"""Printer columns of pods (local-cluster 1.10)."""

from __future__ import annotations

from hekla.api.text.podsummary import has_condition, summary
from hekla.api.trees import Json
from hekla.local.apiserver.objects.columns.cells import (
    AGE,
    NAME,
    NONE,
    at,
    cell,
    column,
    wide,
)


def _address(pod: Json, _now: float) -> str:
    addresses = at(pod, "status", "podIPs") or ()
    return str((addresses[0].get("ip") if addresses else at(pod, "status", "podIP")) or NONE)


def _gates(pod: Json, _now: float) -> str:
    gates = at(pod, "spec", "readinessGates") or ()
    if not gates:
        return NONE
    status = pod.get("status") or {}
    met = sum(has_condition(status, gate.get("conditionType", "")) for gate in gates)
    return f"{met}/{len(gates)}"


COLUMNS = (
    NAME,
    column(
        "Ready",
        lambda pod, _now: summary(pod).readiness(),
        "How many of the pod's containers are ready, of how many.",
    ),
    column(
        "Status",
        lambda pod, _now: summary(pod).status,
        "The pod's phase, or what keeps it from its next one.",
    ),
    column(
        "Restarts",
        lambda pod, now: summary(pod).restarts_text(now),
        "How often containers of the pod were started again, and when last.",
    ),
    AGE,
    wide("IP", _address, "The pod's address; empty until it has one."),
    wide("Node", cell("spec", "nodeName", absent=NONE), "The node that the pod was bound to."),
    wide(
        "Nominated Node",
        cell("status", "nominatedNodeName", absent=NONE),
        "The node that is being cleared for the pod.",
    ),
    wide("Readiness Gates", _gates, "How many of the further conditions of readiness are met."),
)
