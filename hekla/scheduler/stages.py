"""The stages of a cycle: how long each takes, and which one is stuck.

The engine reports which stage begins; this module reads the clock.  A cycle that is stuck, in a
plugin that waits or an endless loop, blocks the event loop.  So a thread watches, and logs the
stage, the plugin and the stack of a cycle that takes too long.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Any

from hekla.scheduler.metrics import ACTION, OPEN, PLUGIN, PREDICATE, SCORING

log = logging.getLogger(__name__)

STEPS = {"Predicate": PREDICATE, "Scoring": SCORING}
DEEPEST = 12
"""Frames of the stack that are logged."""


class Stages:
    """Handed to the engine; called with the part that begins, and with nothing at the end.

    Parts are `("open", "")`, `("plugin open", name)`, `("action", name)`, `("plugin close", name)`,
    `("close", "")`.  Within an action come `("step", "Predicate")`, `("step", "Scoring")` and
    `("step", "")`, which end each other.
    """

    def __init__(self) -> None:
        self.opening = OPEN
        """The histogram for opening a session."""
        self.part: tuple[str, str] = ("", "")
        self.began = 0.0
        self.cycle_began = 0.0
        """When the present cycle began (perf_counter); 0 between cycles."""
        self.number = 0
        self.within: tuple[str, float] = ("", 0.0)
        """The present step of an action, and when it began."""

    def __call__(self, kind: str, name: str = "") -> None:
        now = time.perf_counter()
        if kind == "step":
            self.step(name, now)
            return
        before, took = self.part, 1000 * (now - self.began)
        if before[0] == "action":
            ACTION.labels(before[1]).observe(took)
        elif before[0] == "plugin open":
            PLUGIN.labels(before[1], "OnSessionOpen").observe(took)
        elif before[0] == "plugin close":
            PLUGIN.labels(before[1], "OnSessionClose").observe(took)
        if kind == "open":
            self.cycle_began, self.number = now, self.number + 1
        elif before[0] in ("open", "plugin open") and kind not in ("open", "plugin open"):
            self.opening.observe(1000 * (now - self.cycle_began))
        self.part, self.began = (kind, name), now
        if not kind:
            self.cycle_began = 0.0

    def step(self, name: str, now: float) -> None:
        """A step within an action begins: filtering, scoring, or neither."""
        before, began = self.within
        if before:
            STEPS[before].observe(1000 * (now - began))
        self.within = name, now


class Watchdog:
    """The thread that watches cycles."""

    def __init__(self, stages: Stages, limit: float) -> None:
        self.stages = stages
        self.limit = limit
        self.watched = threading.get_ident()
        self.logged = 0
        """The last cycle that was logged as stuck."""
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, name="watchdog", daemon=True)

    def start(self) -> None:
        if self.limit > 0:
            self.thread.start()

    def stop(self) -> None:
        self.ended.set()

    def run(self) -> None:
        while not self.ended.wait(min(self.limit / 4, 1.0)):
            self.look(time.perf_counter())

    def look(self, now: float) -> None:
        """Log the present cycle, once, if it takes too long."""
        began, number = self.stages.cycle_began, self.stages.number
        if not began or now - began < self.limit or number == self.logged:
            return
        self.logged = number
        frame = sys._current_frames().get(self.watched)
        kind, name = self.stages.part
        log.error(
            "cycle %d is stuck: %.1f s and no end, in %s%s\n%s",
            number,
            now - began,
            f"{kind} {name}".strip(),
            culprit(frame),
            "".join(traceback.format_stack(frame)[-DEEPEST:]).rstrip(),
        )


def culprit(frame: FrameType | None) -> str:
    """The plugin whose method is in the stack, if there is one."""
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        name = getattr(type(owner), "name", None)
        if (
            isinstance(name, str)
            and name
            and hasattr(owner, "arguments")
            and hasattr(owner, "flags")
        ):
            return f", plugin {name}"
        frame = frame.f_back
    return ""
