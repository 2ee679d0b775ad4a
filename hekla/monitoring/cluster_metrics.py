"""What a cluster's own metrics APIs say: `metrics.k8s.io` (a metrics server) and
`custom.metrics.k8s.io` (an adapter)."""

from __future__ import annotations

import json
from typing import NamedTuple

from hekla.api.text import quantity
from hekla.api.text.durations import seconds
from hekla.api.text.times import instant
from hekla.kube.client import Client

CUSTOM_METRICS = "/apis/custom.metrics.k8s.io/v1beta2"
RESOURCE_METRICS = "/apis/metrics.k8s.io/v1beta1"


class Sample(NamedTuple):
    """What a node or pod uses: millicores, bytes, when that was measured, and over how many seconds
    before."""

    cpu: float
    memory: float
    at: float
    window: float = 0.0


async def node_usage(client: Client) -> dict[str, Sample]:
    """What each measured node uses.  Raises ApiError and TransportError."""
    answer = await client.request("GET", f"{RESOURCE_METRICS}/nodes")
    return {
        item["metadata"]["name"]: Sample(
            float(quantity.milli(item["usage"]["cpu"])),
            quantity.milli(item["usage"]["memory"]) / 1000,
            instant(item["timestamp"]),
            _seconds(item.get("window")),
        )
        for item in json.loads(answer.body).get("items") or ()
    }


async def pod_usage(client: Client) -> dict[str, Sample]:
    """What each measured pod uses in all its containers, by `namespace/name`.  Raises ApiError and
    TransportError."""
    answer = await client.request("GET", f"{RESOURCE_METRICS}/pods")
    found = {}
    for item in json.loads(answer.body).get("items") or ():
        usages = [container["usage"] for container in item.get("containers") or ()]
        found[f"{item['metadata']['namespace']}/{item['metadata']['name']}"] = Sample(
            float(sum(quantity.milli(usage.get("cpu", "0")) for usage in usages)),
            sum(quantity.milli(usage.get("memory", "0")) for usage in usages) / 1000,
            instant(item["timestamp"]),
            _seconds(item.get("window")),
        )
    return found


async def node_metric(client: Client, metric: str) -> dict[str, tuple[float, float]]:
    """A custom metric of all nodes: value and time by node.  Raises ApiError and TransportError."""
    answer = await client.request("GET", f"{CUSTOM_METRICS}/nodes/*/{metric}")
    return {
        item["describedObject"]["name"]: (
            quantity.milli(item["value"]) / 1000,
            instant(item["timestamp"]),
        )
        for item in json.loads(answer.body).get("items") or ()
    }


def _seconds(text: str | None) -> float:
    return seconds(text) if text else 0.0
