"""How many files a process may hold open: with too few, whatever is opened last fails, in words
that help nobody."""

from __future__ import annotations

import resource

LEAST = 256
"""Sockets to watch all kinds, a connection a client, the database and its logs."""
COMFORTABLE = 1024


def problem(least: int = LEAST) -> str:
    """Raises the limit where this process may; why it is still too low, as a sentence, empty where
    it is not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= least:
        return ""
    if hard == resource.RLIM_INFINITY or hard >= least:
        resource.setrlimit(
            resource.RLIMIT_NOFILE,
            (COMFORTABLE if hard == resource.RLIM_INFINITY else min(hard, COMFORTABLE), hard),
        )
        return ""
    return f"only {hard} files may be open at a time, at least {least} are needed: raise the limit (ulimit -n {COMFORTABLE}) and try again"
