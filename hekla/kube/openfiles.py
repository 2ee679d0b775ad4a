"""The limit of open files of a process.  Beyond it calls fail with messages that do not name the
limit."""

from __future__ import annotations

import resource

LEAST = 256
"""Enough for the watches of all kinds, a connection for each client, the database and its logs."""
COMFORTABLE = 1024


def problem(least: int = LEAST) -> str:
    """Raise the soft limit as far as this process may.  Returns a sentence that says why it is
    still too low; "" if it is high enough."""
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
