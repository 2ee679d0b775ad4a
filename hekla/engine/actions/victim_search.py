"""The search for victims: a node for one task, and whom to evict there.

preempt and reclaim share it, and differ in what they hand in:

    nodes that evictions could help              `promise`
    candidates on one of them                    `candidates`: the action says who may go
    victims, whom the plugins let go             `victims`: the action's hook
    evicted one by one, until the task fits      `evict_until`: the action says when that is

gangpreempt and gangreclaim look for a domain a job instead, and evict by the bundle (`gangevict`).
Reference: scheduler-core 6.4, 6.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.explain.no_victims import FailedSearches, Search
from hekla.engine.framework.plugin import Plugin, Victims
from hekla.engine.framework.statement import Statement
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.transfers import IN_VAIN, OTHERS
from hekla.engine.placement.victims import agreed, leaving

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session

MayGo = Callable[[Task], bool]


class VictimSearch:
    """The searches of one action, one task after another."""

    def __init__(
        self,
        session: Session,
        action: str,
        hook: str,
        ask: Callable[[Plugin, Task, list[Task]], Victims],
    ) -> None:
        """`ask` puts the question of this hook to one plugin."""
        self.session = session
        self.action = action
        self.hook = hook
        self.ask = ask
        self.failures = FailedSearches(session, hook)
        self.met = Search()
        """What the last search met: why it found nobody."""

    def begin(self) -> None:
        """The next task's search."""
        self.met = Search()

    def gave_up(self, task: Task) -> bool:
        """Whether nobody is evicted for the task any more."""
        if not self.session.state.transfers.gave_up(task):
            return False
        self.met.whole = IN_VAIN
        self.met.takers[OTHERS] = None
        return True

    def promise(
        self,
        statement: Statement,
        task: Task,
        nodes: Bools,
        on_rows: Callable[[Rows], Statement | None],
    ) -> bool:
        """Promise the task one of the nodes, with the evictions that it takes; False where there is
        none.

        `nodes` is `[nodes]`; `on_rows` makes room on one of these rows, if it can.
        """
        session, job = self.session, task.job
        assert job is not None
        hopeless = unresolvable(job, task)
        if hopeless is not None:
            nodes &= ~hopeless
        like = self.failures.like(task, nodes)
        failed = self.failures.known(like) if like is not None else None
        if failed is not None:
            self.met = failed
            return False
        for rows in session.shard_groups(np.flatnonzero(nodes)):
            found = on_rows(rows)
            if found is not None:
                statement.merge(found)
                return True
        if like is not None:
            self.failures.note(like, self.met)
        return False

    def candidates(
        self, task: Task, row: int, statuses: Collection[Status], may_go: MayGo
    ) -> list[Task]:
        """Who on the node may be asked to leave, in the order of `by_age`."""
        assert task.job is not None
        found = [
            one
            for one in self.session.state.nodes.tasks[row].values()
            if one.status in statuses and one.preemptable and may_go(one)
        ]
        found.sort(key=by_age)
        found = self.met.without_takers(self.session, task.job, found)
        return self.met.without_spared(self.session, task.job, found)

    def victims(self, task: Task, row: int, candidates: list[Task]) -> tuple[list[Task], bool]:
        """Whom the plugins let go, and whether that makes room; what they spare is noted."""
        session, hook, ask = self.session, self.hook, self.ask
        victims, enough = agreed(
            session,
            task,
            row,
            candidates,
            lambda some: session.votes.victims(hook, lambda plugin: ask(plugin, task, some)),
        )
        if not enough:
            self.met.refused(
                session, hook, lambda plugin: ask(plugin, task, candidates), candidates, victims
            )
        return victims, enough

    def spares(self, victim: Task, task: Task) -> bool:
        """Whether a victim whose turn has come is spared, now that those before it leave."""
        votes = self.session.votes
        if not votes.may_spare:
            return False
        reason = votes.spares(victim, task.job)
        self.met.spares(victim, reason)
        return bool(reason)

    def evict_until(
        self, fits: Callable[[], bool], task: Task, victims: list[Task], may_go: MayGo | None = None
    ) -> Statement | None:
        """Evict one after the other, from the lowest up, until it fits; None where it never does.

        Who went changes who goes next.  `may_go` may still spare one when its turn comes.
        """
        trial = self.session.statement()
        queue = leaving(self.session, victims, task)
        while not fits():
            if not queue:
                trial.discard()
                return None
            victim = queue.pop()
            if (may_go is None or may_go(victim)) and not self.spares(victim, task):
                trial.evict(victim, self.action)
        return trial


def by_age(task: Task) -> tuple[float, int, str]:
    """An order of pods that does not hang on when the kubelets said that they run: plugins that let
    go so many and no more choose by it, and a simulation chooses as the daemon does."""
    return task.creation, task.index or 0, task.key


def unresolvable(job: Job, task: Task) -> Bools | None:
    """`[nodes]`: those that refused the task in this cycle for reasons that no eviction could help;
    None where there are none."""
    errors = job.fit_errors.get(task.key)
    found = errors.unresolvable if errors is not None else None
    return found if found is not None and found.any() else None
