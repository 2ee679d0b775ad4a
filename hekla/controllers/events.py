"""Where controllers say what they do: the recorder, or in tests whatever listens."""

from __future__ import annotations

from typing import Any, Protocol

from hekla.kube.events import Severity


class Events(Protocol):
    """Takes events; never blocks, never fails."""

    def event(self, obj: Any, type: Severity, reason: str, message: str) -> None: ...
