"""Metrics that an adapter of the cluster serves: of pods and other objects (`custom.metrics.k8s.io`), and of
what is outside of the cluster (`external.metrics.k8s.io`).  Amounts are in thousandths."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from hekla.api import meta
from hekla.api.meta import Struct
from hekla.api.selectors import SelectorError, of_object
from hekla.api.text import quantity
from hekla.api.text.times import instant
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.controller_manager.autoscaling.replicas import NoReplicas, Sample

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta2", "v1beta1")
"""The preferred first; what is read of them is the same."""
EXTERNAL_PATH = f"/apis/{EXTERNAL}/v1beta1"
WINDOW = 60
"""Seconds that a value without a window was measured over."""


class ObjectReference(Struct):
    name: str = ""


class MetricValue(Struct):
    described_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    timestamp: str | None = None
    window_seconds: int | None = None
    value: str | int | float = 0


class MetricValueList(Struct):
    items: list[MetricValue] = []


class ExternalMetricValue(Struct):
    value: str | int | float = 0


class ExternalMetricValueList(Struct):
    items: list[ExternalMetricValue] = []


class GroupVersion(Struct):
    version: str = ""


class Group(Struct):
    versions: list[GroupVersion] = []


Listed = TypeVar("Listed", Group, MetricValueList, ExternalMetricValueList)


class CustomMetrics:
    """Asks the adapters.  `plurals` gives the plural of a kind (apiVersion, kind), "" if unknown; which
    version is served is asked once in `period` seconds of the clock."""

    def __init__(
        self,
        client: Client,
        plurals: Callable[[str, str], str],
        period: float,
        clock: Callable[[], float],
    ) -> None:
        self._client = client
        self._plurals = plurals
        self._period = period
        self._clock = clock
        self._served = ""
        self._served_until = -math.inf

    async def of_pods(
        self, namespace: str, selector: str, metric: str, of: Json | None
    ) -> dict[str, Sample]:
        """A metric of each pod that is measured.  `of`: the metric's own selector.  Raises NoReplicas."""
        try:
            path = f"namespaces/{namespace}/pods/*/{quote(metric)}"
            found = await self._values(path, of, labelSelector=selector)
        except NoReplicas as error:
            raise NoReplicas(f"unable to get metric {metric}: {error}") from error
        if not found:
            raise NoReplicas(
                f"unable to get metric {metric}: no metrics returned from custom metrics API"
            )
        return {
            one.described_object.name: Sample(
                _moment(one.timestamp),
                WINDOW if one.window_seconds is None else one.window_seconds,
                _milli(one.value),
            )
            for one in found
        }

    async def of_object(self, namespace: str, described: Json, metric: str, of: Json | None) -> int:
        """A metric of one object.  Raises NoReplicas."""
        kind, name = described["kind"], described["name"]
        try:
            path = f"{self._object(namespace, described)}/{quote(metric)}"
            found = await self._values(path, of)
            if len(found) != 1:
                raise NoReplicas(
                    "unable to fetch metrics from custom metrics API: the custom metrics API server "
                    f"returned {len(found)} results when we asked for exactly one"
                )
        except NoReplicas as error:
            text = f"unable to get metric {metric} of {kind} {namespace}/{name}: {error}"
            raise NoReplicas(text) from error
        return _milli(found[0].value)

    async def external(self, namespace: str, metric: str, of: Json | None) -> int:
        """The sum of all values of a metric.  Raises NoReplicas."""
        try:
            query = urlencode(_given(labelSelector=_text(of)))
            path = f"{EXTERNAL_PATH}/namespaces/{namespace}/{quote(metric)}?{query}"
            found = (await self._get(path, ExternalMetricValueList, "external")).items
            if not found:
                raise NoReplicas("no metrics returned from external metrics API")
        except NoReplicas as error:
            text = f"unable to get external metric {namespace}/{metric}/{shown(of)}: {error}"
            raise NoReplicas(text) from error
        return sum(_milli(one.value) for one in found)

    def _object(self, namespace: str, described: Json) -> str:
        """The path of an object below a version of the API.  Raises NoReplicas."""
        version, kind = described.get("apiVersion") or "v1", described["kind"]
        if (version, kind) == ("v1", "Namespace"):
            return f"namespaces/{namespace}/metrics"
        plural, (group, _, _) = self._plurals(version, kind), version.rpartition("/")
        if not plural:
            raise NoReplicas(
                f"unable to fetch metrics from custom metrics API: unable to map kind {kind} to resource: "
                f'no matches for kind "{kind}" in group "{group}"'
            )
        resource = f"{plural}.{group}" if group else plural
        return f"namespaces/{namespace}/{resource}/{quote(described['name'])}"

    async def _values(self, path: str, of: Json | None, **query: str) -> list[MetricValue]:
        """Raises NoReplicas."""
        asked = urlencode(_given(**query, metricLabelSelector=_text(of)))
        if self._clock() >= self._served_until:
            self._served = await self._version()
            self._served_until = self._clock() + self._period
        whole = f"/apis/{CUSTOM}/{self._served}/{path}?{asked}"
        return (await self._get(whole, MetricValueList, "custom")).items

    async def _version(self) -> str:
        """The version of the custom metrics that is served.  Raises NoReplicas."""
        group = await self._get(f"/apis/{CUSTOM}", Group, "custom", missing_group=True)
        served = {one.version for one in group.versions}
        for version in CUSTOM_VERSIONS:
            if version in served:
                return version
        raise NoReplicas(
            "unable to fetch metrics from custom metrics API: no known available metric versions found"
        )

    async def _get(
        self, path: str, kind: type[Listed], api: str, missing_group: bool = False
    ) -> Listed:
        """Raises NoReplicas."""
        asked = f"unable to fetch metrics from {api} metrics API"
        try:
            answer = await self._client.request("GET", path)
            return msgspec.json.decode(answer.body, type=kind)
        except NotFound as error:
            why = f"no custom metrics API ({CUSTOM}) registered" if missing_group else error
            raise NoReplicas(f"{asked}: {why}") from error
        except (ApiError, TransportError, msgspec.DecodeError) as error:
            raise NoReplicas(f"{asked}: {error}") from error


def shown(selector: Json | None) -> str:
    """A selector in the words of Kubernetes' messages."""
    if selector is None:
        return "nil"
    labels = "".join(
        f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items())
    )
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{one['key']},Operator:{one['operator']},"
        f"Values:[{' '.join(one.get('values') or ())}],}},"
        for one in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _milli(value: str | int | float) -> int:
    """Raises NoReplicas."""
    try:
        return quantity.milli(value)
    except quantity.QuantityError as error:
        raise NoReplicas(f"the adapter's value {value!r} is no quantity") from error


def _moment(timestamp: str | None) -> float:
    """Raises NoReplicas."""
    try:
        return instant(timestamp)
    except (ValueError, OverflowError) as error:
        raise NoReplicas(f"the adapter's timestamp {timestamp!r} is no time") from error


def _text(selector: Json | None) -> str:
    """Raises NoReplicas."""
    if not selector:
        return ""
    try:
        return str(of_object(msgspec.convert(selector, meta.LabelSelector)))
    except SelectorError as error:
        raise NoReplicas(f"the metric's selector: {error}") from error


def _given(**query: str) -> dict[str, str]:
    return {name: value for name, value in query.items() if value}
