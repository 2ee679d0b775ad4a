"""Jobs of one pod that follow each other: each takes its turn, and the node table hears of them
together.

Which queue and which job comes next does not depend on the node that the last pod went to, as long
as no plugin makes it so. While the nodes for a class of pods are known ahead
(`Lookahead`), a turn is then no more than this: may the queue take it, the next node,
tell the plugins.  The statement that could undo it is left out, because nothing in such a turn can
fail late; the table is written before anybody reads it.  What is decided is the same as by the long
way, which tests hold it to.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np

from hekla.engine.model.decisions import Bind
from hekla.engine.model.tasks import NOWHERE, Job, Status, SubJob, Task
from hekla.engine.placement.lookahead import ALONE
from hekla.engine.placement.placer import placer_of

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.queues.queues import Queue
    from hekla.engine.model.spread_peers import SpreadPeers
    from hekla.engine.placement.lookahead import Key, NodeSequence


def plain(job: Job, sub_job: SubJob, task: Task) -> bool:
    """Whether the only task that a job without policies has to place is one that nothing but room,
    filters and scores decides about."""
    return task.pods.plain and not (
        task.gated
        or task.nominated
        or task.claims
        or task.unmade
        or task.labels.terms
        or job.topology
        or job.effective
        or sub_job.topology
        or sub_job.effective
        or len(job.sub_jobs) > 1
    )


class OnePodJobs:
    """Turns of `plain` jobs, as long as their pods are of one class and its nodes are known ahead."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.votes = session.votes
        self.lookahead = placer_of(session).lookahead
        self.possible = session.hooks.placements_unseen and session.shard_mode == "none"
        self.pods: PodClass | None = None
        self.whose: Hashable = None
        """The second part of the key under which the nodes are known."""
        self.known: NodeSequence | None = None
        self.peers: set[SpreadPeers] = set()
        """Whose counts the table will change when it is told."""
        self.tasks: list[Task] = []
        """Tasks whose places the node table has not been told of, and `rows`, the places."""
        self.rows: list[int] = []

    def take(self, queue: Queue, job: Job, task: Task | None) -> bool:
        """Take the turn of a job with this one task to place; False, with the table told, where it
        needs the long way."""
        if (
            self.possible
            and task is not None
            and not self.lookahead.restricted(task)
            and self._knows(task)
            and self._place(queue, job, task)
        ):
            return True
        self.settle()
        return False

    def settle(self) -> None:
        """Tell the node table."""
        known, tasks, rows = self.known, self.tasks, self.rows
        if known is not None and tasks:
            nodes = self.session.state.nodes
            known.given, known.at = rows, len(nodes.log)
            # As one vector operation over all nodes, or one by one where the pods are few among
            # many nodes.
            if len(tasks) > 3 + len(nodes) // 1000:
                nodes.hold_many(tasks, np.array(rows), Status.BINDING)
            else:
                for task, row in zip(tasks, rows):
                    nodes.hold(task, row, Status.BINDING)
            self.tasks, self.rows = [], []
        self.pods = self.known = None
        self.peers.clear()

    def _knows(self, task: Task) -> bool:
        """Whether the next node for the task is known."""
        if (
            task.pods is self.pods
            and self.whose is None
            and task.labels.peers is None
            and self.known is not None
        ):
            return self.known.next < len(self.known.rows)  # as most are
        key = self._key(task)
        if key[1] == ALONE and task.labels.peers in self.peers:
            self.settle()  # It is alone no more.
            key = self._key(task)
        if task.pods is not self.pods or key[1] != self.whose:
            self.settle()
            known = self.lookahead.known(self.session, key)
            if known is None:
                return False
            self.pods, self.whose, self.known = task.pods, key[1], known
        assert self.known is not None
        return self.known.next < len(self.known.rows)

    def _key(self, task: Task) -> Key:
        return (task.pods, None) if task.labels.peers is None else self.lookahead.key(task)

    def _place(self, queue: Queue, job: Job, task: Task) -> bool:
        session, known = self.session, self.known
        assert known is not None
        assert task.subjob is not None
        if task.subjob.nominated_domain or self.votes.prefilter(task):
            return False
        if not self.votes.allocatable_count(queue, task, 1):
            job.short_of_quota = task
            return True
        one = (task,)
        job.bind(task)
        if not self.votes.job_ready(job):
            job.set_status_many(one, Status.PENDING)
            return False
        row = task.row = known.rows[known.next]
        try:
            session.tell_allocated(one)
        except Exception:  # a plugin's mistake, told by the caller: the job is as it was
            job.set_status_many(one, Status.PENDING)
            task.row = NOWHERE
            raise
        known.next += 1
        task.last, task.evicted_for = None, False
        self.tasks.append(task)
        self.rows.append(row)
        if task.labels.counted:
            self.peers |= task.labels.counted
        session.decisions.binds.append(
            Bind(task.key, task.uid, session.state.nodes.names[row], job.key, task.annotations)
        )
        return True
