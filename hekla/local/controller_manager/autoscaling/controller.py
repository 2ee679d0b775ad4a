"""Looks at each HorizontalPodAutoscaler every fifteen seconds: what do the pods use, how many should
there be, how many may there be by now.  Conditions and events have Kubernetes' names."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from hekla.api.kinds import Kind
from hekla.api.selectors import SelectorError, parse_labels
from hekla.api.text import quantity
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.events import Recorder
from hekla.kube.http.client import TransportError
from hekla.local.controller_manager.autoscaling import behavior as rules
from hekla.local.controller_manager.autoscaling.behavior import Bounds, Memory
from hekla.local.controller_manager.autoscaling.custom_metrics import CustomMetrics
from hekla.local.controller_manager.autoscaling.proposals import (
    FAILED,
    Proposal,
    Proposals,
    Target,
)
from hekla.local.controller_manager.autoscaling.replicas import NoReplicas, Patience, tolerances
from hekla.local.controller_manager.autoscaling.scales import Scale, Scales, UnknownKind
from hekla.local.controller_manager.autoscaling.usage import Reader, TargetPod

log = logging.getLogger("kube-controllers.autoscaling")

AUTOSCALER: Kind[Json] = Kind(
    "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", True, dict
)
CONDITIONS = ("AbleToScale", "ScalingActive", "ScalingLimited")


@dataclass(frozen=True, slots=True)
class Settings:
    """As the flags of Kubernetes' controller manager have them, in seconds."""

    period: float = 15.0
    tolerance: float = 0.1
    downscale_stabilization: float = 300.0
    patience: Patience = field(default_factory=Patience)


class Stuck(Exception):
    """This time nothing can be decided: the condition that says why, with an event of that reason
    unless another has been told."""

    def __init__(self, kind: str, reason: str, text: str, *, told: bool = False) -> None:
        super().__init__(text)
        self.kind, self.reason, self.told = kind, reason, told


@dataclass(slots=True)
class Status:
    """The status as it is put together; a condition keeps its time while it says the same."""

    before: Json
    now: float
    current: int = 0
    desired: int = 0
    metrics: list[Json] = field(default_factory=list)
    scaled: bool = False
    said: dict[str, tuple[bool, str, str]] = field(default_factory=dict)

    def set(self, kind: str, status: bool, reason: str, text: str) -> None:
        self.said[kind] = status, reason, text

    def tree(self) -> Json:
        known = {one["type"]: one for one in self.before.get("conditions") or ()}
        for kind, (status, reason, text) in self.said.items():
            word = "True" if status else "False"
            before = known.get(kind)
            same = before is not None and before["status"] == word
            known[kind] = {
                "type": kind,
                "status": word,
                "lastTransitionTime": before["lastTransitionTime"]
                if before is not None and same
                else stamp(self.now),
                "reason": reason,
                "message": text,
            }
        tree: Json = {
            "currentReplicas": self.current,
            "desiredReplicas": self.desired,
            "currentMetrics": self.metrics or None,
            "conditions": [known[kind] for kind in CONDITIONS if kind in known],
        }
        last = stamp(self.now) if self.scaled else self.before.get("lastScaleTime")
        if last:
            tree["lastScaleTime"] = last
        return tree


class AutoscalingController(Controller):
    """Scales targets."""

    name = "horizontal-pod-autoscaler"
    workers = 5

    def __init__(
        self,
        client: Client,
        autoscalers: Cache[Json],
        plurals: Callable[[str, str], str],
        recorder: Recorder,
        settings: Settings,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(autoscalers)
        self.client = client
        self.autoscalers = autoscalers
        self.scales = Scales(client, plurals)
        self.reader = Reader(client)
        custom = CustomMetrics(client, plurals, settings.period, clock)
        self.proposals = Proposals(self.reader, custom, settings.patience)
        self.recorder = recorder
        self.settings = settings
        self.clock = clock
        self.memories: dict[str, Memory] = {}
        self.selectors: dict[str, str] = {}
        """Of the targets, by autoscaler."""
        autoscalers.on_change(self.changed)

    def changed(self, old: Json | None, new: Json | None) -> None:
        """A new one, or one whose spec is another; its status is our own."""
        either = new if new is not None else old
        assert either is not None
        if old is None or new is None or old.get("spec") != new.get("spec"):
            self.queue.add(f"{either['metadata']['namespace']}/{either['metadata']['name']}")

    async def reconcile(self, key: str) -> float | None:
        """Look once.  Gives the seconds until the next look."""
        autoscaler = self.autoscalers.get(key)
        if autoscaler is None:
            self.memories.pop(key, None)
            self.selectors.pop(key, None)
            return None
        status = Status(autoscaler.get("status") or {}, self.clock())
        status.metrics = list(status.before.get("currentMetrics") or ())
        status.desired = int(status.before.get("desiredReplicas") or 0)
        status.current = int(status.before.get("currentReplicas") or 0)
        try:
            await self.look(key, autoscaler, status)
        except Stuck as stuck:
            status.set(stuck.kind, False, stuck.reason, str(stuck))
            if not stuck.told:
                self.tell(autoscaler, "Warning", stuck.reason, str(stuck))
        await self.write(autoscaler, status)
        return self.settings.period

    async def look(self, key: str, autoscaler: Json, status: Status) -> None:
        """One look at the target.  Raises Stuck."""
        spec, namespace = autoscaler["spec"], autoscaler["metadata"]["namespace"]
        try:
            scale = await self.scales.get(namespace, spec["scaleTargetRef"])
        except (ApiError, TransportError, UnknownKind) as error:
            self.selectors.pop(key, None)
            text = f"the HPA controller was unable to get the target's current scale: {error}"
            raise Stuck("AbleToScale", "FailedGetScale", text) from error
        able = "the HPA controller was able to get the target's current scale"
        status.set("AbleToScale", True, "SucceededGetScale", able)
        status.current = scale.wanted
        memory = self.memories.setdefault(key, Memory())
        memory.begin(scale.wanted, status.now)
        least = spec.get("minReplicas")
        bounds = Bounds(1 if least is None else least, spec["maxReplicas"])
        wanted, why = await self.decide(key, autoscaler, scale, bounds, memory, status)
        status.desired = wanted
        if wanted != scale.wanted:
            await self.scale(autoscaler, scale, wanted, why, status)
            memory.note(spec.get("behavior"), scale.wanted, wanted, status.now)

    async def decide(
        self,
        key: str,
        autoscaler: Json,
        scale: Scale,
        bounds: Bounds,
        memory: Memory,
        status: Status,
    ) -> tuple[int, str]:
        """How many replicas there should be, and why there should be more or fewer.  Raises Stuck."""
        current, spec = scale.wanted, autoscaler["spec"]
        if current == 0 and bounds.least != 0:
            text = "scaling is disabled since the replica count of the target is zero"
            status.set("ScalingActive", False, "ScalingDisabled", text)
            return 0, ""
        if current > bounds.most:
            return bounds.most, "Current number of replicas above Spec.MaxReplicas"
        if current < bounds.least:
            return bounds.least, "Current number of replicas below Spec.MinReplicas"
        proposal = await self.propose(key, autoscaler, scale, status)
        behavior, usual = spec.get("behavior"), self.settings.downscale_stabilization
        held = rules.stabilized(memory, behavior, current, proposal.replicas, usual, status.now)
        status.set("AbleToScale", True, held.reason, held.text)
        judged = rules.limited(memory, behavior, current, held.replicas, bounds, status.now)
        status.set("ScalingLimited", judged.replicas != held.replicas, judged.reason, judged.text)
        wanted = judged.replicas
        above = wanted > current
        return wanted, f"{proposal.name} above target" if above else "All metrics below target"

    # --- what the metrics ask for -----------------------------------------------------------------

    async def propose(self, key: str, autoscaler: Json, scale: Scale, status: Status) -> Proposal:
        """What the metric asks for that asks for most.  Where some cannot be had, the others may raise
        the number and not lower it.  Raises Stuck."""
        pods = await self.pods(key, autoscaler, scale)
        target = Target(
            autoscaler["metadata"]["namespace"],
            scale,
            pods,
            tolerances(self.settings.tolerance, stated(autoscaler)),
            status.now,
        )
        found: list[Proposal] = []
        status.metrics = []
        failed: list[Stuck] = []
        metrics = autoscaler["spec"].get("metrics") or []
        for metric in metrics:
            try:
                proposal = await self.proposals.ask(metric, target)
                found.append(proposal)
                status.metrics.append(proposal.status)
            except NoReplicas as error:
                reason = FAILED[metric["type"]]
                self.tell(autoscaler, "Warning", reason, str(error))
                text = f"the HPA was unable to compute the replica count: {error}"
                failed.append(Stuck("ScalingActive", reason, text, told=True))
                # readers find the state of a metric at its place in the spec
                status.metrics.append({"type": ""})
        most = max(found, key=lambda proposal: proposal.replicas, default=None)
        if most is None or (failed and most.replicas < scale.wanted):
            text = f"invalid metrics ({len(failed)} invalid out of {len(metrics)}), first error is: {failed[0]}"
            self.tell(autoscaler, "Warning", "FailedComputeMetricsReplicas", text)
            raise failed[0]
        text = f"the HPA was able to successfully calculate a replica count from {most.name}"
        status.set("ScalingActive", True, "ValidMetricFound", text)
        return most

    async def pods(self, key: str, autoscaler: Json, scale: Scale) -> list[TargetPod]:
        """The pods of the target, which no other autoscaler may have.  Raises Stuck."""
        if not scale.selector:
            text = "the HPA target's scale is missing a selector"
            raise Stuck("ScalingActive", "InvalidSelector", text)
        try:
            parse_labels(scale.selector)
        except SelectorError as error:
            text = (
                f"couldn't convert selector into a corresponding internal selector object: {error}"
            )
            raise Stuck("ScalingActive", "InvalidSelector", text) from error
        self.selectors[key] = scale.selector
        namespace = autoscaler["metadata"]["namespace"]
        try:
            pods = await self.reader.pods(namespace, scale.selector)
        except (ApiError, TransportError) as error:
            text = f"the HPA was unable to compute the replica count: unable to get pods: {error}"
            raise Stuck("ScalingActive", "FailedGetResourceMetric", text) from error
        both = sorted(other for other in self.sharing(key, pods))
        if both:
            names = ", ".join([key, *both])
            text = f"pods by selector {scale.selector} are controlled by multiple HPAs: {names}"
            raise Stuck("ScalingActive", "AmbiguousSelector", text)
        return pods

    def sharing(self, key: str, pods: list[TargetPod]) -> list[str]:
        """The other autoscalers of the namespace whose targets have some of these pods."""
        prefix, found = f"{key.partition('/')[0]}/", []
        for other, text in self.selectors.items():
            if other != key and other.startswith(prefix):
                selector = parse_labels(text)
                if any(selector.matches(pod.metadata.labels) for pod in pods):
                    found.append(other)
        return found

    # --- what is done and told --------------------------------------------------------------------

    async def scale(
        self, autoscaler: Json, scale: Scale, wanted: int, why: str, status: Status
    ) -> None:
        """Write the number.  Raises Stuck."""
        try:
            await self.scales.set(scale, wanted)
        except (ApiError, TransportError) as error:
            status.desired = int(status.before.get("desiredReplicas") or 0)
            text = f"New size: {wanted}; reason: {why}; error: {error}"
            self.tell(autoscaler, "Warning", "FailedRescale", text)
            text = f"the HPA controller was unable to update the target scale: {error}"
            raise Stuck("AbleToScale", "FailedUpdateScale", text, told=True) from error
        text = f"the HPA controller was able to update the target scale to {wanted}"
        status.set("AbleToScale", True, "SucceededRescale", text)
        status.scaled = True
        self.tell(autoscaler, "Normal", "SuccessfulRescale", f"New size: {wanted}; reason: {why}")

    def tell(
        self, autoscaler: Json, severity: Literal["Normal", "Warning"], reason: str, text: str
    ) -> None:
        named = {**autoscaler, "apiVersion": AUTOSCALER.api_version, "kind": AUTOSCALER.kind}
        self.recorder.event(named, severity, reason, text)

    async def write(self, autoscaler: Json, status: Status) -> None:
        """Write a status that differs."""
        tree = status.tree()
        if bare(tree) == bare(status.before):
            return
        meta = autoscaler["metadata"]
        patch = {"metadata": {"uid": meta["uid"]}, "status": tree}
        with suppress(NotFound):
            await self.client.patch(
                AUTOSCALER, meta["name"], patch, meta["namespace"], subresource="status"
            )


def stated(autoscaler: Json) -> dict[str, float | None]:
    """The tolerances of an autoscaler's own, by direction."""
    behavior = autoscaler["spec"].get("behavior") or {}
    return {
        way: quantity.milli(pace["tolerance"]) / 1000
        for way, pace in behavior.items()
        if pace and pace.get("tolerance") is not None
    }


def bare(status: Json) -> Json:
    """A status in which zero and absent are the same."""
    return {name: value for name, value in status.items() if value}
