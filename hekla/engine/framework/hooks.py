"""Which plugin of a policy fills which hook, tier by tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from hekla.engine.framework.plugin import BETWEEN_PLACEMENTS, Plugin, Source, defines
from hekla.engine.framework.policy import Policy

_GATES = {
    "job_order": "enableJobOrder", "queue_order": "enableQueueOrder", "task_order": "enableTaskOrder",
    "sub_job_order": "enabledSubJobOrder", "victim_queue_order": None, "job_valid": None, "job_ready": "enableJobReady",
    "sub_job_ready": "enabledSubJobReady", "job_pipelined": "enableJobPipelined",
    "sub_job_pipelined": "enabledSubJobPipelined", "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued", "job_starving": "enableJobStarving", "overused": "enabledOverused",
    "preemptive": "enablePreemptive", "allocatable": "enabledAllocatable", "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable", "evictable": None, "lesser": None, "balanced": None, "victim_tasks": "enabledVictim",
    "prefilter": "enablePredicate",
    "spares": None, "fragmentation": None, "victim_order": None, "eviction_notice": None, "eviction_grace": None, "eviction_decided": None,
    "filters": "enablePredicate", "predicate": "enablePredicate", "scores": "enableNodeOrder", "score": "enableNodeOrder",
    "allocated": None, "deallocated": None, "hyper_node_gradient": "enabledHyperNodeGradient",
    "hyper_node_order": "enabledHyperNodeOrder",
}  # fmt: skip
Part = TypeVar("Part")


class Hooks:
    """The plugins of a policy, made once, and for each hook who fills it, tier by tier."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.plugins: list[Plugin] = []
        tiers: list[list[Plugin]] = []
        for tier in policy.tiers:
            made = [option.plugin(option.arguments, option.flags) for option in tier]
            tiers.append(made)
            self.plugins.extend(made)
        self.tiers: dict[str, list[list[Plugin]]] = {}
        self.flat: dict[str, list[Plugin]] = {}
        for hook, gate in _GATES.items():
            filled = [
                [
                    plugin
                    for plugin in tier
                    if defines(plugin, hook) and (gate is None or plugin.flags.get(gate, False))
                ]
                for tier in tiers
            ]
            self.tiers[hook] = [tier for tier in filled if tier]
            self.flat[hook] = [plugin for tier in filled for plugin in tier]
        self.read_clock = any(plugin.reads.clock for plugin in self.plugins)
        self.one_at_a_time = any(plugin.reads.each_pod for plugin in self.plugins)
        self.placements_unseen = all(
            plugin.reads.between_placements is Source.JOBS
            for hook in BETWEEN_PLACEMENTS
            for plugin in self.flat[hook]
        )
        """Whether nobody looks at nodes between two placements."""
        self.waiting_jobs_keep_their_place = all(
            plugin.reads.waiting_order for plugin in self.flat["job_order"]
        )
        """Whether the order of two jobs that hold nothing stays until one of them changes."""
        self.queues_keep_their_place = all(
            plugin.reads.queue_order is Source.OWN_JOBS for plugin in self.flat["queue_order"]
        )
        """Whether serving one queue does not change where another stands."""
        self.told: dict[tuple[str, str, str], str] = {}
        """Kind and key of an object, and a reason -> what was said last of it."""
        self.keeps_session = False
        """Whether somebody asks about the state between cycles, as the last one left it."""
        self.session: object | None = None
        """That of the last cycle, if it is kept."""
        self._parts: dict[Callable[[Hooks], object], object] = {}

    def __call__(self, hook: str) -> list[Plugin]:
        return self.flat[hook]

    def part(self, kind: Callable[[Hooks], Part]) -> Part:
        """What a floor above keeps for these plugins (the placer), made when it is first asked for."""
        found = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return cast(Part, found)
