"""Nodes that refused a pod of a role refuse the others of that role, too, in the same attempt:
reference scheduler-core 6.0.3, 9.1 18.

Pods of a role are mostly alike, and then this says nothing new.  Where they are not, a node that
was too small for the first is not looked at for the second, smaller one.  Action argument
`predicateErrorCacheEnable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.reasons import FitErrors
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.tasks import Task


class Refused:
    """By role, the nodes that refused one of its pods in this attempt."""

    __slots__ = ("evicting", "reasons", "roles", "session")

    def __init__(self, session: Session, evicting: bool = False) -> None:
        self.session = session
        self.evicting = evicting
        """For whom others are evicted: only what evictions could not help counts as refused,
        besides a lack of room."""
        self.roles: dict[str, Bools] | None = None
        self.reasons: dict[str, list[FitErrors]] = {}
        """What they said, each time only those who had not yet refused."""

    def remaining_nodes(self, task: Task, scope: Bools | None) -> Bools | None:
        """The nodes that may still be asked for the task; `scope` itself where nobody refused."""
        known = self.roles.get(task.role) if self.roles else None
        if known is None:
            return scope
        return ~known if scope is None else scope & ~known

    def remember(self, task: Task, tasks: Sequence[Task], at: int, scope: Bools | None) -> None:
        """`tasks[at - 1]`, of the class of `task`, was placed: whoever refused it is not asked for
        those of its role that are not alike.

        Placing only ever takes room away, so who refuses it now refused it then, but for the node
        that it took.
        """
        if not task.role or at >= len(tasks):
            return
        if not self.session.hooks.one_at_a_time and (
            tasks[at].pods is task.pods or not _another(tasks, at, task)
        ):
            return
        session, placed = self.session, tasks[at - 1]
        if session.state.nodes.rows.get(placed.nominated) == placed.row:
            return  # Only the node that was nominated for it was asked.
        if not session.argument("allocate", "predicateErrorCacheEnable", True):
            return
        placer, nodes = placer_of(session), session.state.nodes
        if self.evicting:
            refusing = ~(
                placer.filters.preempt_mask(session, placed)
                & NodeView(nodes).fits(placed.request, future=True)
            )
        else:
            refusing = nodes.ready.copy()
            refusing[placer.filters.candidates(session, placed, scope).future] = False
        refusing[placed.row] = False
        if self.roles is None:
            self.roles = {}
        known = self.roles.get(task.role)
        self.roles[task.role] = refusing if known is None else known | refusing
        if not self.evicting:
            asked = refusing if known is None else refusing & ~known
            self.reasons.setdefault(task.role, []).append(
                placer.filters.explain(session, placed, asked if scope is None else asked & scope)
            )

    def told(self, task: Task, errors: FitErrors) -> FitErrors:
        """Why no node is left for the task: what the nodes say that it could ask, and what the
        others said before."""
        for before in self.reasons.get(task.role, ()):
            errors.nodes += before.nodes
            errors.reasons += before.reasons
            if errors.unresolvable is not None and before.unresolvable is not None:
                errors.unresolvable = errors.unresolvable | before.unresolvable
        return errors


def _another(tasks: Sequence[Task], at: int, task: Task) -> bool:
    """Whether a task that is not alike, but of the same role, is still to come."""
    return any(
        one.role == task.role and one.pods is not task.pods for one in islice(tasks, at, None)
    )
