"""Where pods would land if they were evicted: tried one after the other on the session's own tables,
and undone."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from hekla.engine.model.arrays import Bools
from hekla.engine.model.tasks import NOWHERE, Status, Task
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Landing:
    """Pods that were moved so far.  Each has a stand-in where it would land."""

    def __init__(self, session: Session, reason: str) -> None:
        self.session = session
        self.reason = reason
        self.statement = session.statement()
        self.moved: list[Task] = []
        self.stand_ins: list[Task] = []

    def moves(self, task: Task, barred: Bools | None = None) -> int:
        """The row of the node on which a pod made anew in this one's place would land; then it
        counts as moved there.  NOWHERE if that is its own node, or one of `barred`, `[nodes]`.

        Also once the old one has left and its node has the room again.
        """
        nodes, placer = self.session.state.nodes, placer_of(self.session)
        from_row = task.row
        self.statement.evict(task, self.reason)
        again = copy(task)
        again.key = f"{task.key}+"
        again.row = NOWHERE
        again.status = Status.PENDING
        again.last = None
        found = NOWHERE
        if not self.session.votes.prefilter(again):
            room = placer.filters.candidates(self.session, again)
            choices = [
                placer.scores.best(self.session, again, self.session.preferred(rows))
                for rows in (room.idle, room.future)
                if len(rows)
            ]
            if choices and not any(
                row in (NOWHERE, from_row) or (barred is not None and barred[row])
                for row in choices
            ):
                found = choices[-1]
        if found == NOWHERE:
            self.statement.spare(task)
            return NOWHERE
        nodes.hold(again, found, Status.PIPELINED)
        again.row, again.status = found, Status.PIPELINED
        self.session.tell_allocated([again])
        self.stand_ins.append(again)
        self.moved.append(task)
        return found

    def take_back(self) -> None:
        """The pod that was moved last stays."""
        self._remove(self.stand_ins.pop())
        self.statement.spare(self.moved.pop())

    def undo(self) -> None:
        """Take back what was tried."""
        for one in reversed(self.stand_ins):
            self._remove(one)
        self.statement.rollback()

    def _remove(self, stand_in: Task) -> None:
        self.session.state.nodes.release(stand_in, stand_in.row, stand_in.status)
        self.session.tell_deallocated([stand_in])
