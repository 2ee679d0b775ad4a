"""How many replicas each type of metric asks for, and what is told about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from hekla.api.text import quantity
from hekla.api.text.quantity import Format, Quantity
from hekla.api.trees import Json
from hekla.local.controller_manager.autoscaling.custom_metrics import CustomMetrics, shown
from hekla.local.controller_manager.autoscaling.replicas import (
    NoReplicas,
    Patience,
    Tolerance,
    by_average,
    by_ratio,
    by_total,
    by_utilization,
    grouped,
)
from hekla.local.controller_manager.autoscaling.scales import Scale
from hekla.local.controller_manager.autoscaling.usage import Reader, TargetPod

FAILED = {
    "Resource": "FailedGetResourceMetric",
    "ContainerResource": "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}
"""Type of a metric -> the reason where it cannot be had."""


class Proposal(NamedTuple):
    """What one metric asks for, and its own words about it."""

    replicas: int
    name: str
    status: Json


@dataclass(frozen=True, slots=True)
class Target:
    """What is scaled, as every metric sees it."""

    namespace: str
    scale: Scale
    pods: list[TargetPod]
    tolerance: Tolerance
    now: float

    def need_pods(self) -> None:
        """Raises NoReplicas."""
        if not self.pods:
            raise NoReplicas("no pods returned by selector while calculating replica count")

    @property
    def ready(self) -> int:
        """Running pods that are ready.  Raises NoReplicas."""
        try:
            self.need_pods()
        except NoReplicas as error:
            raise NoReplicas(f"unable to calculate ready pods: {error}") from error
        return sum(pod.status.phase == "Running" and pod.ready for pod in self.pods)


class Proposals:
    """Asks for a metric and judges it."""

    def __init__(self, reader: Reader, custom: CustomMetrics, patience: Patience) -> None:
        self._reader = reader
        self._custom = custom
        self._patience = patience
        self._by_type: dict[str, Callable[[Json, Target], Awaitable[Proposal]]] = {
            "Resource": lambda metric, target: self._resource("resource", metric, target),
            "ContainerResource": lambda metric, target: self._resource(
                "containerResource", metric, target
            ),
            "Pods": self._pods,
            "Object": self._object,
            "External": self._external,
        }

    async def ask(self, metric: Json, target: Target) -> Proposal:
        """What one metric asks for.  Raises NoReplicas."""
        return await self._by_type[metric["type"]](metric, target)

    async def _resource(self, member: str, metric: Json, target: Target) -> Proposal:
        source, scale = metric[member], target.scale
        resource, container = source["name"], source.get("container", "")
        wanted, named = source["target"], f"{resource} {'container ' if container else ''}resource"
        share = wanted.get("averageUtilization")
        asked = f"failed to get {resource} {'usage' if share is None else 'utilization'}: "
        try:
            samples = await self._reader.samples(
                target.namespace, scale.selector, resource, container
            )
            target.need_pods()
            scaled = [pod.scaled(resource, container) for pod in target.pods]
            groups = grouped(scaled, samples, resource, self._patience, target.now)
            known = {pod.name for pod in scaled}
            samples = {name: sample for name, sample in samples.items() if name in known}
            if share is None:
                aim = quantity.milli(wanted["averageValue"])
                answer = by_average(scale.wanted, aim, samples, groups, target.tolerance)
            else:
                named += " utilization (percentage of request)"
                answer = by_utilization(
                    resource, scale.wanted, share, scaled, samples, groups, target.tolerance
                )
        except NoReplicas as error:
            raise NoReplicas(f"{asked}{error}") from error
        form = Format.BINARY if resource == "memory" else Format.DECIMAL
        current: Json = {"averageValue": amount(answer.average, form)}
        if answer.utilization is not None:
            current["averageUtilization"] = answer.utilization
        told: Json = {"name": resource, "current": current}
        if container:
            told["container"] = container
        return Proposal(answer.replicas, named, {"type": metric["type"], member: told})

    async def _pods(self, metric: Json, target: Target) -> Proposal:
        """The mean of what an adapter measures of each pod."""
        source, scale = metric["pods"], target.scale
        name, of = source["metric"]["name"], source["metric"].get("selector")
        samples = await self._custom.of_pods(target.namespace, scale.selector, name, of)
        target.need_pods()
        scaled = [pod.scaled("", "") for pod in target.pods]
        groups = grouped(scaled, samples, "", self._patience, target.now)
        aim = quantity.milli(source["target"]["averageValue"])
        answer = by_average(scale.wanted, aim, samples, groups, target.tolerance)
        told = {"metric": source["metric"], "current": {"averageValue": amount(answer.average)}}
        return Proposal(answer.replicas, f"pods metric {name}", {"type": "Pods", "pods": told})

    async def _object(self, metric: Json, target: Target) -> Proposal:
        """What an adapter measures of one object, for all pods or for each."""
        source = metric["object"]
        name, of = source["metric"]["name"], source["metric"].get("selector")
        described, wanted = source["describedObject"], source["target"]
        used = await self._custom.of_object(target.namespace, described, name, of)
        replicas, current = _judged(used, wanted, target)
        named = (
            f"{described['kind']} metric {name}"
            if wanted["type"] == "Value"
            else f"external metric {name}({shown(of)})"
        )
        told = {"metric": source["metric"], "describedObject": described, "current": current}
        return Proposal(replicas, named, {"type": "Object", "object": told})

    async def _external(self, metric: Json, target: Target) -> Proposal:
        """What an adapter measures of something outside, for all pods or for each."""
        source = metric["external"]
        name, of = source["metric"]["name"], source["metric"].get("selector")
        used = await self._custom.external(target.namespace, name, of)
        replicas, current = _judged(used, source["target"], target)
        told = {"metric": source["metric"], "current": current}
        named = f"external metric {name}({shown(of)})"
        return Proposal(replicas, named, {"type": "External", "external": told})


def _judged(used: int, wanted: Json, target: Target) -> tuple[int, Json]:
    """Replicas for one number, and how it is told.  Raises NoReplicas."""
    scale = target.scale
    if wanted.get("averageValue") is not None:
        each = quantity.milli(wanted["averageValue"])
        replicas, average = by_total(scale.current, used, each, target.tolerance)
        return replicas, {"averageValue": amount(average)}
    replicas = by_ratio(
        scale.wanted,
        used / quantity.milli(wanted["value"]),
        lambda: target.ready,
        target.tolerance,
    )
    return replicas, {"value": amount(used)}


def amount(thousandths: int, form: Format = Format.DECIMAL) -> str:
    return str(Quantity(Quantity.of_milli(thousandths).nanos, form))
