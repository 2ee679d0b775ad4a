"""Commands, by which a person or a program asks a controller to act on a job or a queue; and the
names of events and actions.

The consumer deletes a command before it acts on it, so that a command acts at most once.
"""

from __future__ import annotations

from enum import StrEnum

from hekla.api.kinds import kind_of
from hekla.api.meta import Object, OwnerReference, always

API_VERSION = "bus.volcano.sh/v1alpha1"


class Event(StrEnum):
    """The events of lifecycle policies.  The last three are the controller's own; policies may not
    use them."""

    ANY = "*"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    JOB_UNKNOWN = "Unknown"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    JOB_UPDATED = "JobUpdated"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"


class Action(StrEnum):
    """The actions on a job or a queue.  From SYNC_JOB on, only controllers and commands may use
    them."""

    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    SYNC_JOB = "SyncJob"
    ENQUEUE_JOB = "EnqueueJob"
    SYNC_QUEUE = "SyncQueue"
    OPEN_QUEUE = "OpenQueue"
    CLOSE_QUEUE = "CloseQueue"


class Command(Object):
    """A command to a controller.  It is flat, without spec and status."""

    api_version: str = always(API_VERSION)
    kind: str = always("Command")
    action: str = ""
    target: OwnerReference | None = None
    reason: str = ""
    message: str = ""


COMMAND = kind_of(Command, "commands")
