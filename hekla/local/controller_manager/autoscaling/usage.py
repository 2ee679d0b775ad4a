"""What the pods of a target use and ask for, read from the API server."""

from __future__ import annotations

from urllib.parse import urlencode

import msgspec

from hekla.api.kinds import read_as
from hekla.api.kubernetes.core import POD
from hekla.api.meta import Struct
from hekla.api.text import quantity
from hekla.api.text.durations import seconds
from hekla.api.text.times import instant
from hekla.kube.client import Client
from hekla.kube.errors import ApiError
from hekla.kube.http.client import TransportError
from hekla.local.controller_manager.autoscaling.replicas import NoReplicas, Sample, ScaledPod

METRICS = "/apis/metrics.k8s.io/v1beta1"


class Identity(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


class Resources(Struct):
    requests: dict[str, str | int | float] = {}


class Container(Struct):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)


class Spec(Struct):
    containers: list[Container] = []
    init_containers: list[Container] = []


class Condition(Struct):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class Status(Struct):
    phase: str = ""
    start_time: str | None = None
    conditions: list[Condition] = []


class TargetPod(Struct):
    api_version: str = ""
    kind: str = ""
    metadata: Identity = msgspec.field(default_factory=Identity)
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    @property
    def ready(self) -> bool:
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)

    def scaled(self, resource: str, container: str) -> ScaledPod:
        """As it is judged by one resource, of all its containers or of one."""
        request, lacking = self._request(resource, container)
        ready = next((one for one in self.status.conditions if one.type == "Ready"), None)
        return ScaledPod(
            self.metadata.name,
            self.status.phase,
            self.metadata.deletion_timestamp is not None,
            instant(self.status.start_time) if self.status.start_time else None,
            None if ready is None else ready.status == "True",
            instant(ready.last_transition_time) if ready is not None else 0.0,
            request,
            lacking,
        )

    def _request(self, resource: str, container: str) -> tuple[int | None, str]:
        sidecars = [one for one in self.spec.init_containers if one.restart_policy == "Always"]
        total = 0
        for one in [*self.spec.containers, *sidecars]:
            if container and one.name != container:
                continue
            amount = one.resources.requests.get(resource)
            if amount is None:
                return None, one.name
            total += quantity.milli(amount)
        return total, ""


TARGET_POD = read_as(POD, TargetPod)


class ContainerMetrics(Struct):
    name: str = ""
    usage: dict[str, str] = {}


class PodMetrics(Struct):
    metadata: Identity = msgspec.field(default_factory=Identity)
    timestamp: str | None = None
    window: str = "0s"
    containers: list[ContainerMetrics] = []


class PodMetricsList(Struct):
    items: list[PodMetrics] = []


class Reader:
    """Asks for pods and their metrics."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def pods(self, namespace: str, selector: str) -> list[TargetPod]:
        """Raises ApiError and TransportError."""
        return (await self._client.list(TARGET_POD, namespace, labels=selector)).items

    async def samples(
        self, namespace: str, selector: str, resource: str, container: str
    ) -> dict[str, Sample]:
        """What each pod that is measured uses.  Raises NoReplicas."""
        query = urlencode({"labelSelector": selector})
        try:
            answer = await self._client.request(
                "GET", f"{METRICS}/namespaces/{namespace}/pods?{query}"
            )
            found = msgspec.json.decode(answer.body, type=PodMetricsList).items
        except (ApiError, TransportError, msgspec.DecodeError) as error:
            raise NoReplicas(
                f"unable to get metrics for resource {resource}: unable to fetch metrics from "
                f"resource metrics API: {error}"
            ) from error
        if not found:
            raise NoReplicas(
                f"unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
            )
        try:
            return samples_of(found, resource, container)
        except (ValueError, OverflowError) as error:
            raise NoReplicas(
                f"unable to get metrics for resource {resource}: what the metrics API says cannot be read: {error}"
            ) from error


def samples_of(found: list[PodMetrics], resource: str, container: str) -> dict[str, Sample]:
    """By pod; one that has no such container is left out, and one of which a container does not say
    what it uses.  Raises ValueError and OverflowError where an amount or a time is none."""
    samples = {}
    for pod in found:
        parts = [one for one in pod.containers if not container or one.name == container]
        if not parts or any(resource not in one.usage for one in parts):
            continue
        total = sum(quantity.milli(one.usage[resource]) for one in parts)
        samples[pod.metadata.name] = Sample(instant(pod.timestamp), seconds(pod.window), total)
    return samples
