"""Files of a cluster, written as a whole or not at all, and the error for a cluster's user."""

from __future__ import annotations

import os
from pathlib import Path


class ClusterError(Exception):
    """Something about the cluster that its user must know; the text is the whole message."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces a file in one step, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = error.filename or str(path)  # the error of a failed write names no file
        raise
