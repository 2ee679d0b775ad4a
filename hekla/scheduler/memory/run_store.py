"""Keeps what jobs took beyond the scheduler's end, in a small SQLite file.

A policy learns walltimes from it (`walltimes: learned` of backfill).  The engine is handed the file's
runs once, before the first cycle, and what it has seen since is added every few seconds.  Several
schedulers may share a file: each adds its own runs and reads those of the others when it starts.
What cannot be read or written is said once and left as it is; scheduling goes on.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from hekla.engine.actions.learning import rules_of
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.engine.model.time.runs import KEPT, SAVED, Kind, Run, tree_of

log = logging.getLogger(__name__)

INTERVAL = 10.0
"""Seconds between two writes."""
PATIENCE = 5.0
"""Seconds that another process may hold the file."""
_TABLE = """
create table if not exists runs (
    uid text primary key, user text not null, name text not null, shape text not null,
    seconds real not null, ended real not null
) without rowid
"""
_ADD = """
insert into runs values (?, ?, ?, ?, ?, ?)
on conflict (uid) do update set seconds = excluded.seconds, ended = excluded.ended
where excluded.seconds > seconds
"""
_AGED = """
select uid, row_number() over (partition by user, name, shape order by ended desc, uid) as age from runs
"""
_FORGET = f"delete from runs where uid in (select uid from ({_AGED}) where age > {KEPT})"
LOST = (sqlite3.Error, OSError)


class RunStore:
    """One file; without a path nothing is kept."""

    def __init__(self, path: str, state: State, policy: Callable[[], Policy]) -> None:
        self.path = path
        self.state = state
        self.policy = policy
        self.said = ""
        """The last trouble that was told."""

    async def load(self) -> None:
        """Tell the state what was written down, before the first cycle."""
        if not self.path or not Path(self.path).exists():
            return
        try:
            found = await asyncio.to_thread(read, self.path)
        except LOST as error:
            self._say("cannot be read, so that walltimes are learned anew", error)
            return
        self.state.upsert_other(SAVED, tree_of(found))
        log.info("walltimes: %s has %d runs", self.path, len(found))

    async def run(self) -> None:
        """Keep it until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.save()

    async def save(self) -> None:
        """Write down what was seen since the last time."""
        runs = self.state.job_table.runs
        if not self.path or runs is None or not runs.unsaved or rules_of(self.policy()) is None:
            return
        fresh, runs.unsaved = runs.unsaved, []
        try:
            await asyncio.to_thread(write, self.path, fresh)
        except LOST as error:
            runs.unsaved = [*fresh, *runs.unsaved]
            self._say("cannot be written; it is tried again", error)
            return
        self.said = ""

    def _say(self, what: str, error: Exception) -> None:
        if self.said != (text := f"{what}: {error}"):
            self.said = text
            log.warning("walltimes: %s %s", self.path, text)


def read(path: str) -> list[Run]:
    """The runs of a file, the oldest first.  Raises sqlite3.Error and OSError."""
    address = f"{Path(path).absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, timeout=PATIENCE, uri=True)) as file:
        rows = file.execute(
            "select uid, user, name, shape, seconds, ended from runs order by ended, uid"
        )
        return [
            Run(uid, Kind(user, name, shape), seconds, ended)
            for uid, user, name, shape, seconds, ended in rows
        ]


def write(path: str, runs: list[Run]) -> None:
    """Add runs, and forget those of which there are too many.  Raises sqlite3.Error and OSError."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=PATIENCE)) as file, file:
        file.execute(_TABLE)
        file.executemany(_ADD, [(one.uid, *one.kind, one.seconds, one.ended) for one in runs])
        file.execute(_FORGET)
