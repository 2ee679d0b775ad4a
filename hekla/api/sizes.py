"""How large a workload may be, and how many of its pods are made at a time (decision 0330).

A number of replicas is one word in a manifest and may be 2147483647.  What has an ordinary size
gets all its pods at once.  Of what is larger, only so many pods wait at a time, and more are made
as those begin to run: it costs what it runs.
"""

from __future__ import annotations

ORDINARY = 10_000
"""Pods that a workload gets all at once."""

WAITING = 1_000
"""Of a larger workload, the pods that may wait at a time, beside those that it cannot start
without."""

MOST_PODS = 100_000
"""Pods of one batch job, unless the cluster says otherwise: as many as Kubernetes lets an indexed
Job have at a time."""

MOST_TOGETHER = 1_000_000
"""Pods that a job may need together where the cluster sets no bound: several times what any cluster
holds."""

MOST_TASKS = 1_000
"""Tasks of one batch job, and flows of one JobFlow, unless the cluster says otherwise."""


def room(replicas: int, waiting: int) -> int:
    """How many more pods of a workload may be created now, given how many of its pods wait."""
    return replicas if replicas <= ORDINARY else max(0, WAITING - waiting)
