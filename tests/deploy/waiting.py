"""Waiting for what an installation is to do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(what: Callable[[], Any], told: Callable[[], Any], patience: float = 60.0) -> Any:
    """What is found once it is there; fails with what is told meanwhile."""
    deadline = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < deadline, f"did not come about: {told()}"
        time.sleep(0.1)
    return found
