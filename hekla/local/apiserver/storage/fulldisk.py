"""Detection of a full disk, however an error reports it. A full disk does not damage files, and
none need be restored."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
FULL_DISK = "the disk is full"
FULL_DISK_ADVICE = (
    f"{FULL_DISK}; free some space and start again, the files are good where they are"
)
PROBE_CONTENT = bytes(64 * 1024)


def is_full(error: Exception, directory: Path) -> bool:
    """Whether the cause of an error is a full disk or a used-up quota. SQLite often reports only
    that a write failed, so a write is tried."""
    if isinstance(error, OSError):
        return error.errno in FULL_ERRORS
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return True
    return code in (
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    ) and has_no_room(directory)


def has_no_room(directory: Path) -> bool:
    """Whether a small file cannot be written to a directory."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(PROBE_CONTENT)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL_ERRORS
    return False


def reason(error: Exception, directory: Path) -> str:
    """Why a write failed, as text."""
    if is_full(error, directory):
        return FULL_DISK
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
