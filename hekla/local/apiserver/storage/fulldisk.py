"""A full disk, by whatever name it comes: nothing is damaged by it, and nothing has to be moved."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
TEXT = "the disk is full"
WORDS = f"{TEXT}; free some space and start again, the files are good where they are"
PROBE = bytes(64 * 1024)


def is_full(error: Exception, directory: Path) -> bool:
    """Whether an error comes of a full disk (or a quota that is used up); SQLite often says no more
    than that a write failed."""
    if isinstance(error, OSError):
        return error.errno in FULL
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return True
    return code in (
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    ) and takes_no_more(directory)


def takes_no_more(directory: Path) -> bool:
    """Whether a directory has no room for a small file."""
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(PROBE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in FULL
    return False


def reason(error: Exception, directory: Path) -> str:
    """Why something could not be written, in words."""
    if is_full(error, directory):
        return TEXT
    return (error.strerror if isinstance(error, OSError) else "") or str(error)
