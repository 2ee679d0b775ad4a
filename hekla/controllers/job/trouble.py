"""What can stop a look at a job, and whether looking again is worth it."""

from __future__ import annotations

from hekla.kube.errors import Conflict, ServerError, TooManyRequests
from hekla.kube.http.client import TransportError

TRANSIENT = (TransportError, Conflict, ServerError, TooManyRequests)
"""Errors that say nothing about the job: a lost race, a server that is away or overloaded.  They
cost no retry."""


class Trouble(Exception):
    """A step of a sync has failed; repeating it may help, and after enough repetitions the job is
    terminated."""


class Wait(Exception):
    """Something that the job needs does not exist yet."""
