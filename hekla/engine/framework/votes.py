"""How the answers of plugins combine to one: all agree, one is enough, or the first tier that says
something decides.

Reference: scheduler-core 5.3; plugins-fairness 0.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence

import msgspec

from hekla.engine.framework.heap import OrderKey
from hekla.engine.framework.hooks import Hooks
from hekla.engine.framework.plugin import ABSTAIN, PERMIT, REJECT, Answer, Plugin, Victims, defines
from hekla.engine.model.explanations import not_open
from hekla.engine.model.queues.balance import Demand
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.reasons import Ceiling, Shortage
from hekla.engine.model.resources import Amounts
from hekla.engine.model.tasks import Job, SubJob, Task, requests_of

_NOTHING: Mapping[str, Amounts] = {}


class Votes:
    """What the plugins of a policy say together about jobs, queues and victims."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        valid = hooks("job_valid")
        self._job_valids = [plugin.job_valid for plugin in valid]
        self._foreseeing = self._that_tell("foresee", "job_valid")
        self._final = [plugin for plugin in valid if plugin not in self._foreseeing]
        self._party_ceilings = [
            plugin.party_ceilings for plugin in self._that_tell("party_ceilings", "job_valid")
        ]
        self._enqueueable = [
            [(plugin, plugin.job_enqueueable) for plugin in tier]
            for tier in hooks.tiers["job_enqueueable"]
        ]
        self._enqueued = [plugin.job_enqueued for plugin in hooks("job_enqueued")]
        self._job_readies = [plugin.job_ready for plugin in hooks("job_ready")]
        self._until_ready = {
            hook: [
                plugin.tasks_until_ready
                for plugin in hooks(hook)
                if defines(plugin, "tasks_until_ready")
            ]
            for hook in ("job_ready", "sub_job_ready")
        }
        self._quotas = [
            (plugin, defines(plugin, "allocatable_count")) for plugin in hooks("allocatable")
        ]
        self._overused = hooks("overused")
        self._prefilters = [plugin.prefilter for plugin in hooks("prefilter")]
        self._spares = [(plugin, plugin.spares) for plugin in hooks("spares")]
        self._lesser = [plugin.lesser for plugin in hooks("lesser")]
        self._victim_orders = [plugin.victim_order for plugin in hooks("victim_order")]

    def job_valid(self, job: Job) -> Answer | None:
        """None where the job is valid, else why not."""
        for valid in self._job_valids:
            answer = valid(job)
            if answer is not None:
                return answer
        return None

    def may_become_valid(self, job: Job) -> bool:
        """Whether only plugins that foresee when they let jobs start have something against it."""
        return all(plugin.job_valid(job) is None for plugin in self._final)

    def foresee(self, jobs: Sequence[Job]) -> Generator[None, None, dict[str, float]]:
        """From when on waiting jobs that may become valid, in their order, will be; without those of
        whom that is not known.  It pauses now and then."""
        found = dict.fromkeys((job.key for job in jobs), -math.inf)
        for plugin in self._foreseeing:
            begins = yield from plugin.foresee([job for job in jobs if job.key in found])
            found = {key: max(found[key], begin) for key, begin in begins.items()}
        return found

    def refused_for_now(self, job: Job) -> Answer | None:
        """What a plugin that foresees has against the job."""
        answers = (plugin.job_valid(job) for plugin in self._foreseeing)
        return next((answer for answer in answers if answer is not None), None)

    def job_ready(self, job: Job) -> bool:
        for ready in self._job_readies:  # noqa: SIM110 (asked for each placement: a generator would cost more than it asks)
            if not ready(job):
                return False
        return True

    def sub_job_ready(self, sub_job: SubJob) -> bool:
        if not sub_job.job.policies:
            return self.job_ready(sub_job.job)
        return all(plugin.sub_job_ready(sub_job) for plugin in self.hooks("sub_job_ready"))

    def job_pipelined(self, job: Job) -> bool:
        return self._vote("job_pipelined", lambda plugin: plugin.job_pipelined(job))

    def sub_job_pipelined(self, sub_job: SubJob) -> bool:
        if not sub_job.job.policies:
            return self.job_pipelined(sub_job.job)
        return self._vote("sub_job_pipelined", lambda plugin: plugin.sub_job_pipelined(sub_job))

    def job_starving(self, job: Job) -> bool:
        for tier in self.hooks.tiers["job_starving"]:
            return all(plugin.job_starving(job) for plugin in tier)
        return False

    def job_enqueueable(self, job: Job) -> bool:
        job.enqueue_block, job.shortages = "", ()
        for tier in self._enqueueable:
            permitted = False
            for plugin, may_enter in tier:
                vote = may_enter(job)
                if vote == REJECT:
                    job.enqueue_block = (
                        job.enqueue_block or f"plugin {plugin.name} does not let it in"
                    )
                    return False
                permitted = permitted or vote == PERMIT
            if permitted:
                return True
        return True

    def job_enqueued(self, job: Job) -> None:
        for enqueued in self._enqueued:
            enqueued(job)

    def tasks_until_ready(self, sub_job: SubJob) -> int:
        """How many more tasks may be placed in one go before readiness has to be asked again; at
        least 1."""
        hook = "sub_job_ready" if sub_job.job.policies else "job_ready"
        longest = 1
        for until_ready in self._until_ready[hook]:
            longest = max(longest, until_ready(sub_job))
        return longest

    def prefilter(self, task: Task) -> str:
        """Why no node at all will do, or nothing."""
        for prefilter in self._prefilters:
            reason = prefilter(task)
            if reason:
                return reason
        return ""

    def overused(self, queue: Queue) -> bool:
        for plugin in self._overused:  # noqa: SIM110 (asked at every turn)
            if plugin.overused(queue):
                return True
        return False

    def allocatable(self, queue: Queue, task: Task) -> bool:
        return all(plugin.allocatable(queue, task) for plugin in self.hooks("allocatable"))

    def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
        """How many tasks like this one the queue may take in a row, at most `limit`."""
        for plugin, counts in self._quotas:
            if counts:
                limit = min(limit, plugin.allocatable_count(queue, task, limit))
            elif not plugin.allocatable(queue, task):
                return 0
            else:
                limit = min(limit, 1)
        return limit

    def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
        return all(plugin.preemptive(queue, tasks) for plugin in self.hooks("preemptive"))

    def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
        """In numbers why the queue may not take so much more."""
        plugins = self._that_tell("quota_shortages", "allocatable")
        return [one for plugin in plugins for one in plugin.quota_shortages(queue, asked)]

    def quota_ceilings(self, queue: Queue) -> list[Ceiling]:
        """What the queue, and those above it, may hold at most."""
        plugins = self._that_tell("quota_ceilings", "allocatable")
        return [one for plugin in plugins for one in plugin.quota_ceilings(queue)]

    def party_ceilings(self, job: Job) -> list[Ceiling]:
        """What those may hold and run at most whom the job counts against besides its queue."""
        return [one for ceilings in self._party_ceilings for one in ceilings(job)]

    def not_preemptive(self, queue: Queue, tasks: Sequence[Task]) -> str:
        """As a clause, why the queue may take nothing from others for these tasks."""
        if queue.state != OPEN:
            return not_open(queue)
        asked = requests_of(tasks)
        plugins = self._that_tell("reclaim_shortages", "preemptive")
        short = [one for plugin in plugins for one in plugin.reclaim_shortages(queue, asked)]
        numbers = ", ".join(
            f"{one.resource}={one.held} held and {one.asked} asked of {one.limit} {one.most}"
            for one in short
        )
        return f"queue {queue.name} would hold more than its share" + (
            f": {numbers}" if numbers else ""
        )

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> list[Task]:
        return self.victims("preemptable", lambda plugin: plugin.preemptable(preemptor, candidates))

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> list[Task]:
        return self.victims("reclaimable", lambda plugin: plugin.reclaimable(preemptor, candidates))

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> list[Task]:
        return self.victims("evictable", lambda plugin: plugin.evictable(kind, job, candidates))

    def balanced(
        self, demand: Demand, victim: Task, going: Mapping[str, Amounts] = _NOTHING
    ) -> bool:
        """Whether room may go from the victim's queue to the one that claims it.

        `going`: what queues are to lose beside that and hold still, by name.
        """
        return all(plugin.balanced(demand, victim, going) for plugin in self.hooks("balanced"))

    @property
    def may_spare(self) -> bool:
        """Whether a plugin spares pods beside those that name victims."""
        return bool(self._spares)

    def spares(self, victim: Task, preemptor: Job | None) -> str:
        """Why the pod may not be evicted now, or nothing."""
        for plugin, spares in self._spares:
            reason = spares(victim, preemptor)
            if reason:
                return f"{reason} ({plugin.name})"
        return ""

    def lesser(self, victim: Job, job: Job) -> bool:
        """Whether the job of the same queue may be looked at for victims."""
        if not self._lesser:
            return victim.priority < job.priority
        return all(lesser(victim, job) for lesser in self._lesser)

    @property
    def orders_victims(self) -> bool:
        """Whether a plugin says which victims of a queue leave first."""
        return bool(self._victim_orders)

    def victim_key(self, victim: Task) -> OrderKey:
        """The smaller leaves first; equal for all where no plugin says."""
        return tuple([order(victim) for order in self._victim_orders])

    def eviction_notice(self, victim: Task) -> float:
        """Seconds between the decision to evict a pod and its eviction."""
        return max(
            (plugin.eviction_notice(victim) for plugin in self.hooks("eviction_notice")),
            default=0.0,
        )

    def eviction_grace(self, victim: Task) -> int | msgspec.UnsetType:
        """Seconds between SIGTERM and SIGKILL; unset where they are the pod's own."""
        for plugin in self.hooks("eviction_grace"):
            grace = plugin.eviction_grace(victim)
            if grace:
                return int(grace)
        return msgspec.UNSET

    def eviction_decided(self, victim: Task, preemptor: Job | None) -> None:
        for plugin in self.hooks("eviction_decided"):
            plugin.eviction_decided(victim, preemptor)

    def victim_tasks(self, candidates: list[Task]) -> list[Task]:
        """Of the first tier that names any, all that its plugins name; less those whom a plugin of
        any tier spares."""
        chosen: dict[str, Task] = {}
        for tier in self.hooks.tiers["victim_tasks"]:
            for plugin in tier:
                for task in () if plugin.spares_victims else plugin.victim_tasks(candidates):
                    chosen.setdefault(task.key, task)
            if chosen:
                break
        return self.let_go(list(chosen.values()) if self.names_victims else candidates)

    def let_go(self, victims: list[Task]) -> list[Task]:
        """Those of the victims whom no plugin of any tier spares."""
        for plugin in self.hooks("victim_tasks"):
            if plugin.spares_victims:
                victims = plugin.victim_tasks(victims)
        return victims

    @property
    def names_victims(self) -> bool:
        """Whether some plugin names victims of its own accord."""
        return any(not plugin.spares_victims for plugin in self.hooks("victim_tasks"))

    def victims(self, hook: str, ask: Callable[[Plugin], Victims]) -> list[Task]:
        """Within a tier the lists intersect; the first tier that names somebody decides.

        A tier whose plugins agree on nobody names nobody: upstream lets the plugin after begin
        anew.  Decision 0165.
        """
        for tier in self.hooks.tiers[hook]:
            chosen: list[Task] | None = None
            for plugin in tier:
                answer = ask(plugin)
                if answer.vote == ABSTAIN:
                    continue
                named = {task.key for task in answer.tasks}
                chosen = (
                    list(answer.tasks)
                    if chosen is None
                    else [task for task in chosen if task.key in named]
                )
                if not chosen:
                    break
            if chosen:
                return chosen
        return []

    def _that_tell(self, more: str, hook: str) -> list[Plugin]:
        """The plugins of a hook that tell, by another one, more than its answer."""
        return [plugin for plugin in self.hooks(hook) if defines(plugin, more)]

    def _vote(self, hook: str, ask: Callable[[Plugin], int]) -> bool:
        for tier in self.hooks.tiers[hook]:
            permitted = False
            for plugin in tier:
                vote = ask(plugin)
                if vote == REJECT:
                    return False
                permitted = permitted or vote == PERMIT
            if permitted:
                return True
        return True
