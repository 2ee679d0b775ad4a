"""Runs cycles: reads policy and usage, sends the evictions of the core, and says what became of them."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.descheduler.cycle import Usages, cycle
from hekla.descheduler.evictions import Eviction, Outcome, Steps
from hekla.descheduler.informers import Informers
from hekla.descheduler.kept_memory import FORMER, Kept, KeptMemory
from hekla.descheduler.memory import Memory
from hekla.descheduler.metrics import Metrics
from hekla.descheduler.policy.policy import Policy, PolicyError
from hekla.descheduler.policy.reader import read_file
from hekla.descheduler.returns import Return
from hekla.descheduler.scheduler_copy import SchedulerCopy
from hekla.descheduler.scheduler_snapshot import Unasked, scheduler_copy
from hekla.descheduler.session import Report
from hekla.descheduler.sources import Sources
from hekla.descheduler.tables import Pod
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, Conflict, NotFound, TooManyRequests
from hekla.kube.events import Recorder
from hekla.kube.http.client import TransportError
from hekla.podrules.profiles import DELETION_COST

log = logging.getLogger(__name__)

COMPONENT = "sigs.k8s.io.descheduler"
"""The source of events, as users of the original know it."""
PATIENCE = 15.0
"""Seconds for one eviction: a server that asks for another attempt later gets it in the next cycle."""


class Descheduler:
    """One descheduler."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        metrics: Metrics,
        policy_file: str,
        *,
        dry_run: bool = False,
        me: Json,
        homes: tuple[str, ...] = (),
        kept: KeptMemory | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`me`: the object that events about the descheduler itself are about; `homes`: the namespaces in
        which a scheduler may say where it is; `kept`: where what is to outlive this process is written."""
        self.client = client
        self.recorder = recorder
        self.metrics = metrics
        self.policy_file = policy_file
        self.dry_run = dry_run
        self.me = me
        self.homes = homes
        self.clock = clock
        self.kept = kept
        self.informers = Informers(client, clock)
        self.memory = Memory()
        self._noted = Kept()
        """What was to be written last, or read."""
        self._is_noted = True
        """Whether it is written."""
        self.sources = Sources(client, clock)

    async def start(self) -> None:
        """Follow the cluster, and know what a process before this one has left."""
        await self.informers.start()
        if self.kept is None:
            return
        self._noted = kept = await self.kept.read()
        self.memory.returns.restore(kept.returns, kept.wishes)
        broken_off = self.clock() - kept.evicting < FORMER
        if broken_off:
            log.warning(
                "a descheduler before this one has not ended its cycle of %s; nodes are looked at after their next measurement",
                stamp(kept.evicting),
            )
        self.informers.take_over(kept.settling, broken_off)

    async def _note(self, evicting: float) -> None:
        """Write down what is known, if it is not written: before the first eviction of a cycle that began
        `evicting`, and after the last (0).  What fails is tried again after the cycle and the later ones."""
        if self.kept is None or self.dry_run or (evicting and evicting == self._noted.evicting):
            return
        settling = {
            node: at for node, at in self.informers.settling.items() if self.clock() - at < FORMER
        }
        kept = Kept(evicting, settling, *self.memory.returns.saved())
        if kept != self._noted or not self._is_noted:
            self._noted = kept
            self._is_noted = await self.kept.write(kept)

    async def cycle(self) -> Report | None:
        """Run one cycle; None where the policy cannot be used."""
        began = self.clock()
        try:
            policy = read_file(self.policy_file)
        except PolicyError as error:
            self.metrics.policy_failed()
            self._warn("Load Config Error", f"descheduler run err due to parameter error: {error}")
            return None
        warn_of_what_has_no_effect(policy)
        await self.informers.look_for_groups()
        usages = await self.sources.read(policy, self.informers.tables.nodes)
        for (profile, strategy), usage in usages.items():
            if usage.problem:
                self.metrics.usage_failed(profile, strategy)
                self._warn(
                    "NoFreshUsage",
                    f"{strategy} of profile {profile} evicts nothing: {usage.problem}",
                )
            elif usage.stale:
                log.warning(
                    "%d nodes have no measurement that is young enough; they are left alone",
                    usage.stale,
                )
        self.informers.settle()
        scheduler, unasked = await self._scheduler(policy, usages, began)
        report = Report()
        steps = self._steps(
            policy, usages, began, report, self.memory, scheduler=scheduler, unasked=unasked
        )
        answer: bool | None = None
        while True:
            try:
                eviction = next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                break
            await self._note(began)
            answer = await self.evict(eviction, policy)
        await self._note(0.0)
        if scheduler is not None:
            log.info("the scheduler was asked %d times where pods would land", scheduler.questions)
        await self._write_costs(report)
        for found in report.returns:
            self._tell_return(found)
        for problem in report.problems:
            log.error("%s", problem)
        if report.skipped:
            log.info("%s", report.skipped)
        now = self.clock()
        self.metrics.take(report, now - began, now)
        self._say(report, now - began)
        return report

    async def _write_costs(self, report: Report) -> None:
        """Say on pods in which order their controllers are to delete them."""
        if not report.deletion_costs:
            return
        if self.dry_run:
            for pod, cost in report.deletion_costs.values():
                log.info("Deletion cost in dry run mode: pod=%s cost=%d", pod.key, cost)
            return
        written, failure = 0, ""
        for pod, cost in report.deletion_costs.values():
            marks = {"uid": pod.uid, "annotations": {DELETION_COST: str(cost)}}
            try:
                await self.client.patch(
                    core.POD.untyped, pod.name, {"metadata": marks}, pod.namespace
                )
                written += 1
            except (NotFound, Conflict):
                continue  # it is another pod by now, or none
            except (ApiError, TransportError, TimeoutError) as error:
                failure = f"{pod.key}: {error or 'no answer'}"
                break
        log.info("Deletion costs of %d pods were written", written)
        if failure:
            log.error("deletion costs cannot be written: %s", failure)

    def _steps(
        self,
        policy: Policy,
        usages: Usages,
        began: float,
        report: Report,
        memory: Memory,
        **asking: Any,
    ) -> Steps:
        return cycle(
            policy,
            self.informers.tables,
            began,
            report,
            usages=usages,
            settling=self.informers.settling,
            memory=memory,
            clock=time.monotonic,
            **asking,
        )

    async def _scheduler(
        self, policy: Policy, usages: Usages, began: float
    ) -> tuple[SchedulerCopy | None, str]:
        """The scheduler's copy for profiles that ask it, and why there is none.  A cycle that would evict
        nobody by the plain rules costs no snapshot."""
        if not policy.asks_scheduler:
            return None, ""
        trial = self._steps(policy, usages, began, Report(), deepcopy(self.memory))
        if next(trial, None) is None:
            return None, ""
        trial.close()
        try:
            return await scheduler_copy(self.client, self.homes), ""
        except Unasked as error:
            self._warn("SchedulerNotAsked", f"nodeFit is engine, and {error}")
            return None, str(error)

    def _say(self, report: Report, seconds: float) -> None:
        limits = sum(
            count
            for (outcome, *_), count in report.evictions.items()
            if outcome
            in (Outcome.PER_NODE, Outcome.PER_NAMESPACE, Outcome.PER_OWNER, Outcome.TOTAL)
        )
        log.info(
            "Number of evicted pods: totalEvicted=%d%s heldByLimits=%d seconds=%.3f",
            report.evicted,
            " (dry run)" if self.dry_run else "",
            limits,
            seconds,
        )
        for (strategy, reason), count in sorted(report.refused.items()):
            log.info("%s left %d pods: %s", strategy, count, reason)

    def _tell_return(self, found: Return) -> None:
        """On the pod that came back: its owner is left alone there, and until when."""
        until = "its node has calmed" if math.isinf(found.until) else f"{stamp(found.until)}"
        often = "once" if found.times == 1 else f"{found.times} times"
        words = (
            f"{found.place} come back: one has been evicted and made there again {often}, "
            f"so the descheduler leaves them alone there until {until}"
        )
        log.warning("%s", words)
        self.recorder.event(reference_of(found.pod), "Warning", "CameBack", words)

    def _warn(self, reason: str, message: str) -> None:
        log.error("%s", message)
        self.recorder.event(self.me, "Warning", reason, message)

    # evictions

    async def evict(self, eviction: Eviction, policy: Policy) -> bool:
        """Evict a pod through the eviction API, which keeps disruption budgets; gives whether the server
        took it."""
        pod = eviction.pod
        if self.dry_run:
            log.info(
                "Evicted pod in dry run mode: pod=%s node=%s strategy=%s profile=%s reason=(%s)",
                pod.key,
                pod.node,
                eviction.strategy,
                eviction.profile,
                eviction.reason,
            )
            return True
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        grace = policy.grace if eviction.grace is None else eviction.grace
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        try:
            async with asyncio.timeout(PATIENCE):
                await self.client.post(core.POD, pod.name, pod.namespace, "eviction", body)
        except NotFound as error:
            log.warning('pod not found when evicting "%s": %s', pod.key, error)
            return False
        except TooManyRequests as error:
            self.metrics.blocked()
            log.warning('error when evicting pod (ignoring) "%s": %s', pod.key, reasons_of(error))
            self._tell_failure(eviction, policy, reasons_of(error))
            return False
        except (ApiError, TransportError, TimeoutError) as error:
            why = str(error) or "no answer"
            log.error('error when evicting pod "%s": %s', pod.key, why)
            self._tell_failure(eviction, policy, why)
            return False
        self.informers.evicted(pod.uid, pod.node)
        log.info(
            "Evicted pod: pod=%s node=%s strategy=%s profile=%s reason=(%s)",
            pod.key,
            pod.node,
            eviction.strategy,
            eviction.profile,
            eviction.reason,
        )
        words = f"pod evicted from {pod.node} node by the descheduler: {eviction.reason}"
        self.recorder.event(reference_of(pod), "Normal", eviction.strategy, words)
        return True

    def _tell_failure(self, eviction: Eviction, policy: Policy, why: str) -> None:
        if policy.tell_failures:
            words = f"pod could not be evicted by the descheduler ({eviction.reason}): {why}"
            self.recorder.event(reference_of(eviction.pod), "Warning", "EvictionFailed", words)


def reference_of(pod: Pod) -> Json:
    metadata = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def reasons_of(error: TooManyRequests) -> str:
    """A budget's name and numbers stand in the causes."""
    causes = "; ".join(cause.message for cause in error.causes)
    return f"{error}{f' ({causes})' if causes else ''}"


def warn_of_what_has_no_effect(policy: Policy) -> None:
    for profile in policy.profiles:
        arguments = profile.load_aware()
        if arguments is not None and (names := arguments.without_effect()):
            log.warning(
                "profile %s: %s of LoadAware have no effect; they belong to DefaultEvictor",
                profile.name,
                ", ".join(names),
            )


def own_namespace() -> str:
    """Of this process's pod; "" outside of a cluster."""
    return os.environ.get("POD_NAMESPACE") or os.environ.get("KUBE_POD_NAMESPACE") or ""


def myself(lease: str, namespace: str) -> Json:
    """The object that events about this process are about: its pod where the environment says which,
    else its lease."""
    name, of = os.environ.get("HOSTNAME", ""), own_namespace()
    if name and of:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": of}}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": lease, "namespace": namespace},
    }
