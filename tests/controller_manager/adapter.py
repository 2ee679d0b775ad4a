"""A small adapter of metrics behind the aggregation layer: it answers custom.metrics.k8s.io and
external.metrics.k8s.io from tables."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.http.server import Request, Response, serve
from hekla.local.machine.certificates import Authority, Leaf

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
VERSIONS = {CUSTOM: "v1beta2", EXTERNAL: "v1beta1"}


class Adapter:
    """`custom`: by `resource/name/metric`, `pods/*/metric` and `nodes/*/metric` with a value by name.  `external`: by metric, or
    `metric?selector`."""

    def __init__(self) -> None:
        self.custom: dict[str, dict[str, str]] = {}
        self.external: dict[str, list[str]] = {}
        self.asked: list[tuple[str, str]] = []
        """Path and selector of each question."""

    def __call__(self, request: Request) -> Response:
        if request.peer.common_name != "front-proxy-client":
            return Response(401, b"who are you?", "text/plain")
        group, version, *rest = request.path.removeprefix("/apis/").split("/")
        if not rest:
            listed = {"kind": "APIResourceList", "groupVersion": f"{group}/{version}"}
            return Response(200, json.dumps({**listed, "resources": []}).encode())
        what = rest[2:] if rest[0] == "namespaces" else rest
        selector = request.option("labelSelector") or ""
        self.asked.append((request.path, selector))
        items = self.of(group, "/".join(what), selector)
        if items is None:
            text = f"the server could not find the metric {what[-1]} for {'/'.join(what[:-1])}"
            status = {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure"}
            body = {**status, "message": text, "reason": "NotFound", "code": 404}
            return Response(404, json.dumps(body).encode())
        kind = "MetricValueList" if group == CUSTOM else "ExternalMetricValueList"
        whole = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items}
        return Response(200, json.dumps(whole).encode())

    def of(self, group: str, what: str, selector: str) -> list[Json] | None:
        if group == EXTERNAL:
            values = self.external.get(f"{what}?{selector}" if selector else what)
            if values is None:
                return None
            return [
                {
                    "metricName": what,
                    "metricLabels": {},
                    "timestamp": stamp(time.time()),
                    "value": one,
                }
                for one in values
            ]
        found = self.custom.get(what)
        if found is None:
            return None
        return [
            {
                "describedObject": {"kind": "Object", "apiVersion": "v1", "name": name},
                "metric": {"name": what.rpartition("/")[2]},
                "timestamp": stamp(time.time()),
                "value": value,
            }
            for name, value in found.items()
        ]


@asynccontextmanager
async def adapter(directory: Path, front_proxy: Path, client: Client) -> AsyncIterator[Adapter]:
    """An adapter that the API server hands both groups to.  `front_proxy`: the authority of what it
    shows."""
    pki = directory / "adapter"
    pki.mkdir()
    authority = Authority(pki)
    authority.ensure(Leaf("serving", "adapter", names=("adapter.default.svc",), client=False))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "serving.crt", pki / "serving.key")
    context.load_verify_locations(front_proxy)
    context.verify_mode = ssl.CERT_REQUIRED
    made = Adapter()
    listener: Any = await serve(made, host="127.0.0.1", port=0, ssl=context)
    ports = [{"port": listener.port}]
    spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
    service = {"metadata": {"name": "adapter"}, "spec": spec}
    await client.request("POST", "/api/v1/namespaces/default/services", body=service)
    for group, version in VERSIONS.items():
        spec = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"name": "adapter", "namespace": "default", "port": listener.port},
            "caBundle": base64.b64encode(authority.certificate_file.read_bytes()).decode(),
        }
        body = {"metadata": {"name": f"{version}.{group}"}, "spec": spec}
        await client.request("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body=body)
    try:
        yield made
    finally:
        await listener.close(0.1)
