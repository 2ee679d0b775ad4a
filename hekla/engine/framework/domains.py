"""In which domains of the network a group of pods is tried, and which of them is the best.

Reference: plugins-placement 8; scheduler-core 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.framework.hooks import Hooks
from hekla.engine.framework.plugin import defines
from hekla.engine.framework.votes import Votes
from hekla.engine.model.arrays import Bools
from hekla.engine.model.hypernodes import ROOT as CLUSTER
from hekla.engine.model.hypernodes import HyperTree
from hekla.engine.model.resources import EPSILON, Floats
from hekla.engine.model.tasks import Group, Job, SubJob, Task

if TYPE_CHECKING:
    from hekla.engine.model.state import State


class Domains:
    """What the plugins of a policy say together about the hypernodes of the cluster."""

    def __init__(self, state: State, hooks: Hooks, votes: Votes, tree: HyperTree) -> None:
        self.state = state
        self.hooks = hooks
        self.votes = votes
        self.tree = tree

    def gradient_of_job(self, job: Job, purpose: str) -> list[list[str]]:
        """Domains to try for a job, nearest kind first; without a plugin for it, the whole cluster."""
        for plugin in self.hooks("hyper_node_gradient"):
            return plugin.hyper_node_gradient(job, CLUSTER, purpose)
        return [[CLUSTER]]

    def gradient_of_sub_job(self, sub_job: SubJob, domain: str, purpose: str) -> list[list[str]]:
        for plugin in self.hooks("hyper_node_gradient"):
            return plugin.hyper_node_gradient(sub_job, domain, purpose)
        return [[domain]]

    def nodes(self, domain: str) -> Bools | None:
        """`[nodes]` of a domain; None for the whole cluster."""
        return None if domain == CLUSTER else self.tree.mask(domain)

    def scores(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]:
        total: dict[str, float] = {}
        for plugin in self.hooks("hyper_node_order"):
            for domain, score in plugin.hyper_node_order(sub_job, domains).items():
                total[domain] = total.get(domain, 0.0) + score
        return total

    def ranks(self, sub_job: SubJob, domains: list[str]) -> list[tuple[float, float]] | None:
        """For each domain what `domain_scores` sorts it by, whichever others are compared with it;
        larger is better.

        The second part counts only where first parts are equal.  None where the order cannot be
        known before all are tried.
        """
        ordering = self.hooks("hyper_node_order")
        if len(ordering) != 1 or not defines(ordering[0], "hyper_node_rank"):
            return None
        return ordering[0].hyper_node_rank(sub_job, domains)

    def bounds(
        self, sub_job: SubJob, tasks: Sequence[Task], domains: list[str]
    ) -> list[float] | None:
        """The most that `domain_scores` can give to a domain within each of these; None where that
        cannot be known."""
        ordering = self.hooks("hyper_node_order")
        if len(ordering) != 1 or not defines(ordering[0], "hyper_node_bounds"):
            return None
        return ordering[0].hyper_node_bounds(sub_job, domains, self._roomy(sub_job, tasks))

    def with_room(self, group: Group, tasks: Sequence[Task], domains: list[str]) -> list[bool]:
        """Which of the domains have room for as many of the tasks as the group lacks, counted by
        its smallest requests.

        Nodes are counted as empty of filters, so what is left out is certainly too small.
        """
        roomy = self._roomy(group, tasks)
        return [roomy is None or bool(roomy[self.tree.number[name]]) for name in domains]

    def _roomy(self, group: Group, tasks: Sequence[Task]) -> Bools | None:
        """`[domains]` of the tree, or None where room alone decides nothing."""
        lacking = self._lacking(group)
        if lacking <= 0 or not tasks or not self.tree.real:
            return None
        smallest: dict[int, float] | None = None
        for pods in {id(task.pods): task for task in tasks}.values():
            asked = dict(pods.request)
            smallest = (
                asked
                if smallest is None
                else {
                    key: min(value, asked[key]) for key, value in smallest.items() if key in asked
                }
            )
        future = self.state.nodes.future_idle()
        fit: Floats = np.where(self.state.nodes.ready, float(lacking), 0.0)
        for column, value in (smallest or {}).items():
            if value > 0:
                fit = np.minimum(fit, np.floor((future[column] + EPSILON) / value))
        return self.tree.sums(np.maximum(fit, 0.0)) >= lacking

    def _lacking(self, group: Group) -> int:
        """How many more pods the group needs before anybody calls it ready or pipelined; 0 where
        gang alone does not decide that."""
        parts = isinstance(group, SubJob) and bool(group.job.policies)
        ready = {plugin.name for plugin in self.hooks("sub_job_ready" if parts else "job_ready")}
        deciding = {
            plugin.name for plugin in self.hooks("sub_job_pipelined" if parts else "job_pipelined")
        }
        if deciding != {"gang"} or "gang" not in ready:
            return 0
        counts = group.counts
        return int(group.min_available) - counts.ready - counts.pending_best_effort - counts.waiting
