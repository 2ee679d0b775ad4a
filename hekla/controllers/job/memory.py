"""What the controller remembers of jobs between two reconciles.

It is either derived (the layout of a job) or has no place on the server: commands that were
consumed and evictions that the watch has shown, until a plan has answered them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.api import batch
from hekla.controllers.job.layout import Layout
from hekla.controllers.job.plan import Plan
from hekla.controllers.job.policies import COMMAND_ISSUED, Trigger
from hekla.controllers.job.status_updater import StatusRecord, StatusUpdater


@dataclass(slots=True)
class JobMemory:
    """What is remembered of one job."""

    status: StatusRecord
    triggers: list[Trigger] = field(default_factory=list)
    """Evictions and PodGroups that turned Unknown, until a plan has answered them."""
    announced: set[Trigger] = field(default_factory=set)
    """Triggers with a delayed action that an event has told of."""
    layout: Layout = field(default_factory=Layout)
    failures: int = 0
    """In a row, of those that say nothing about the job."""


class JobMemories:
    """The memories of all jobs, by key."""

    def __init__(self, statuses: StatusUpdater) -> None:
        self._statuses = statuses
        self._jobs: dict[str, JobMemory] = {}
        self._commands: dict[str, list[Trigger]] = {}
        """Commands for jobs, consumed and not yet carried out."""

    def of(self, key: str, job: batch.Job) -> JobMemory:
        """The memory of a job; a job of the same name that was made anew begins with an empty one."""
        memory = self.known(key, job)
        if memory is None:
            memory = self._jobs[key] = JobMemory(self._statuses.of(key, job))
        return memory

    def known(self, key: str, job: batch.Job) -> JobMemory | None:
        """The memory of a job, if there is one."""
        memory = self._jobs.get(key)
        return memory if memory is not None and memory.status.uid == job.metadata.uid else None

    def forget(self, key: str) -> None:
        """Nothing will come of this job that has to be remembered, except for commands."""
        self._jobs.pop(key, None)
        self._statuses.forget(key)

    def command(self, key: str, action: str, cause: str) -> None:
        """Keep a command until a plan answers it."""
        trigger = Trigger(COMMAND_ISSUED, action=action, cause=cause)
        self._commands.setdefault(key, []).append(trigger)

    def drop_commands(self, key: str) -> None:
        """The job is gone, and nobody will carry them out."""
        self._commands.pop(key, None)

    def unanswered(self, key: str, memory: JobMemory) -> list[Trigger]:
        """Commands, and what has happened, that no plan has answered yet."""
        return [*self._commands.get(key, ()), *memory.triggers]

    def answered(self, key: str, memory: JobMemory, made: Plan) -> bool:
        """Drop the commands and triggers that a plan has answered.  Returns whether commands are
        left."""
        if not memory.triggers and key not in self._commands:
            return False
        used = set(made.used)
        memory.triggers = [trigger for trigger in memory.triggers if trigger not in used]
        commands = [trigger for trigger in self._commands.pop(key, ()) if trigger not in used]
        if commands:
            self._commands[key] = commands
        return bool(commands)
