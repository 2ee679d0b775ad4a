"""What an action that evicts asks of a job before its search for victims, and what it does after."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.framework.statement import Statement
    from hekla.engine.model.tasks import Job, Task


def stands_back(session: Session, job: Job) -> bool:
    """Whether a job lets others pass for a while, or waits behind another one of its queue."""
    return session.state.back_off.left(job.key, session.now) > 0 or session.order.own.held_back(job)


def waiting_tasks(session: Session, job: Job) -> list[Task]:
    """The tasks that others may be evicted for, in the order in which they are served."""
    return session.order.sorted_tasks(task for task in job.pending() if not task.gated)


def conclude(session: Session, job: Job, statement: Statement, action: str) -> None:
    """Commit where the job has enough once the victims have gone; else nobody is evicted."""
    if session.votes.job_pipelined(job):
        commit(session, statement, action)
    else:
        statement.discard()


def commit(session: Session, statement: Statement, action: str) -> None:
    if statement.evicts:
        session.metric("eviction_transactions_total", 1.0, action=action)
    statement.commit()
