"""How many pods of a job are in which phase: the only thing about pods that the state machine looks
at."""

from __future__ import annotations

from dataclasses import dataclass, field

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
_COUNTED = {PENDING: "pending", RUNNING: "running", SUCCEEDED: "succeeded", FAILED: "failed"}


@dataclass(slots=True)
class Counts:
    """Pods by phase.  A pod that is being deleted is `terminating` and nothing else; `tasks` leaves
    it out."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    held: int = 0
    """Pods that are made when there is room: part of no status."""
    tasks: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, task: str, phase: str) -> None:
        """Count one pod that is not being deleted."""
        column = _COUNTED.get(phase, "unknown")
        setattr(self, column, getattr(self, column) + 1)
        phases = self.tasks.setdefault(task, {})
        phases[phase or "Unknown"] = phases.get(phase or "Unknown", 0) + 1

    def succeeded_of(self, task: str) -> int | None:
        """Succeeded pods of a task, or None when no pod of it was counted at all."""
        phases = self.tasks.get(task)
        return None if phases is None else phases.get(SUCCEEDED, 0)

    @property
    def alive(self) -> int:
        """Pods that still run, wait or leave: what a stopping job waits for."""
        return self.pending + self.running + self.terminating
