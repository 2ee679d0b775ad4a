"""The interface by which controllers record events: the recorder, or a listener in tests."""

from __future__ import annotations

from typing import Any, Protocol

from hekla.kube.events import Severity


class Events(Protocol):
    """Takes events; never blocks, never fails."""

    def event(self, obj: Any, type: Severity, reason: str, message: str) -> None: ...
