"""shuffle: evicts whom the plugins name, so that they find better places.  Reference:
scheduler-core 6.6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hekla.engine.model.tasks import Status

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Shuffle:
    """The plugins decide; this carries it out."""

    name = "shuffle"
    arguments: Mapping[str, bool | int | str] = {}

    def run(self, session: Session) -> None:
        if not session.votes.names_victims:
            return
        running = [
            task for job in session.jobs() for task in job.counts.statuses[Status.RUNNING].values()
        ]
        for task in session.votes.victim_tasks(running):
            if session.votes.spares(task, None):
                continue
            statement = session.statement()
            statement.evict(task, self.name)
            statement.commit()
            session.state.transfers.moved(task)
