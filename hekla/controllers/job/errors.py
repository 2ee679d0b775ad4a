"""What can stop the reconcile of a job, and whether another one is worth it."""

from __future__ import annotations

from hekla.kube.errors import Conflict, ServerError, TooManyRequests
from hekla.kube.http.client import TransportError

TRANSIENT = (TransportError, Conflict, ServerError, TooManyRequests)
"""Errors that say nothing about the job: a lost race, a server that is away or overloaded.  They
do not count as retries."""


class SyncError(Exception):
    """A step of the reconcile has failed.  Repeating it may help; after `most_retries` failures the
    job is terminated."""


class RequeueAfter(Exception):
    """Something that the job needs does not exist yet and is not watched: reconcile again later."""
