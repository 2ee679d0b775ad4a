"""The resources `nodes` and `pods` of `metrics.k8s.io/v1beta1`.

Only the API server is answered, by its certificate as a front proxy: it has checked who asks and what
he may.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from hekla.api.selectors import SelectorError, parse_labels
from hekla.api.text.durations import duration_text
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.metrics_server.collector import Collector
from hekla.local.metrics_server.objects import Identity
from hekla.local.metrics_server.points import Measured, Usage

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
FRONT_PROXY = "front-proxy-client"
RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": GROUP_VERSION,
    "resources": [
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": ["get", "list"]},
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]},
    ],
}  # fmt: skip

Found = Iterable[tuple[Identity, Json]]


class MetricsApi:
    """Answers requests below /apis/metrics.k8s.io."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def __call__(self, request: Request) -> Response:
        if request.peer.common_name != FRONT_PROXY:
            return status(401, "Unauthorized", "only the API server is answered here")
        if request.method != "GET":
            return status(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        match request.path.strip("/").split("/"):
            case ["apis", group, version, *rest] if (group, version) == (GROUP, VERSION):
                return self._resource(rest, request)
        return not_found("the server could not find the requested resource")

    def _resource(self, rest: list[str], request: Request) -> Response:
        match rest:
            case []:
                return answer(RESOURCES)
            case ["nodes"]:
                return listed("NodeMetricsList", self._nodes(), request)
            case ["nodes", name]:
                return one(self._nodes(), lambda it: it.name == name, "nodes", name)
            case ["pods"]:
                return listed("PodMetricsList", self._pods(), request)
            case ["namespaces", namespace, "pods"]:
                return listed("PodMetricsList", self._pods(namespace), request)
            case ["namespaces", namespace, "pods", name]:
                return one(
                    self._pods(namespace), lambda it: it.name == name, "pods", f"{namespace}/{name}"
                )
        return not_found("the server could not find the requested resource")

    def _nodes(self) -> Found:
        for node, measured in self._collector.of_nodes():
            yield node.metadata, node_metrics(node.metadata, measured)

    def _pods(self, namespace: str = "") -> Found:
        for pod, containers in self._collector.of_pods():
            if not namespace or pod.metadata.namespace == namespace:
                yield pod.metadata, pod_metrics(pod.metadata, containers)


def node_metrics(metadata: Identity, measured: Measured) -> Json:
    return {
        "kind": "NodeMetrics",
        "apiVersion": GROUP_VERSION,
        "metadata": _metadata(metadata, measured.at),
        "timestamp": stamp(measured.at),
        "window": duration_text(round(measured.window, 3)),
        "usage": _amounts(measured.usage),
    }


def pod_metrics(metadata: Identity, containers: Mapping[str, Measured]) -> Json:
    """The moment and window are those of the container that was measured first."""
    first = min(containers.values(), key=lambda measured: measured.at)
    return {
        "kind": "PodMetrics",
        "apiVersion": GROUP_VERSION,
        "metadata": _metadata(metadata, first.at),
        "timestamp": stamp(first.at),
        "window": duration_text(round(first.window, 3)),
        "containers": [
            {"name": name, "usage": _amounts(measured.usage)}
            for name, measured in containers.items()
        ],
    }


def _metadata(metadata: Identity, at: float) -> Json:
    found: Json = {"name": metadata.name, "creationTimestamp": stamp(at)}
    if metadata.namespace:
        found["namespace"] = metadata.namespace
    if metadata.labels:
        found["labels"] = metadata.labels
    return found


def _amounts(usage: Usage) -> Json:
    """As metrics servers write them: nanocores, rounded up, and kibibytes."""
    return {"cpu": f"{math.ceil(usage.cpu * 1e9)}n", "memory": f"{int(usage.memory) // 1024}Ki"}


def listed(kind: str, found: Found, request: Request) -> Response:
    """Those that the label selector of the request lets through."""
    try:
        selector = parse_labels(request.option("labelSelector"))
    except SelectorError as error:
        return status(400, "BadRequest", str(error))
    items = [tree for metadata, tree in found if selector.matches(metadata.labels)]
    return answer({"kind": kind, "apiVersion": GROUP_VERSION, "metadata": {}, "items": items})


def one(found: Found, wanted: Callable[[Identity], bool], plural: str, name: str) -> Response:
    for metadata, tree in found:
        if wanted(metadata):
            return answer(tree)
    return not_found(f'{plural}.{GROUP} "{name}" not found')


def answer(tree: Json) -> Response:
    return Response(200, msgspec.json.encode(tree))


def not_found(message: str) -> Response:
    return status(404, "NotFound", message)


def status(code: int, reason: str, message: str) -> Response:
    tree = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return Response(code, msgspec.json.encode(tree))
