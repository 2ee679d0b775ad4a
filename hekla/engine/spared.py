"""Why nobody was evicted for a job: "no victim because ...", in the words of the search that found none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hekla.engine.plugin import ABSTAIN, Plugin, Victims
from hekla.engine.tasks import Task

if TYPE_CHECKING:
    from hekla.engine.session import Session


class Search:
    """What one task met on the nodes that it looked at, or one job in the domains."""

    __slots__ = ("empty", "plugins", "short", "spared", "whole")

    def __init__(self) -> None:
        self.empty = 0
        self.spared = 0
        self.short = 0
        self.plugins: tuple[str, ...] = ()
        self.whole = ""
        """A reason that holds without looking at any node."""

    def sparing(self, session: Session, hook: str, ask: Callable[[Plugin], Victims]) -> None:
        """Who let nobody go, where that is not known yet."""
        if not self.plugins:
            answers = ((plugin.name, ask(plugin)) for plugin in session.hooks(hook))
            self.plugins = tuple(name for name, answer in answers if answer.vote != ABSTAIN and not answer.tasks)

    def refused(self, session: Session, hook: str, ask: Callable[[Plugin], Victims], candidates: list[Task], victims: list[Task]) -> None:
        """One node did not do: whoever could be asked to leave would not make room enough."""
        if not candidates:
            self.empty += 1
        elif victims:
            self.short += 1
        else:
            self.spared += 1
            self.sparing(session, hook, ask)

    def text(self, whose: str, places: str = "node") -> str:
        """As a clause; `whose` says which pods were looked for, `places` where."""
        if self.whole:
            return self.whole
        parts = []
        if self.empty:
            parts.append(f"{_places(self.empty, places)} no running pod {whose} that may be evicted")
        if self.spared:
            who = " and ".join(self.plugins) or "the plugins together"
            verb = "spare" if len(self.plugins) != 1 else "spares"
            parts.append(f"{_places(self.spared, places)} only pods that {who} {verb}")
        if self.short:
            parts.append(f"{_places(self.short, places)} too little room even without all victims")
        return ", ".join(parts) or f"no {places} is left that evictions could help"


def _places(count: int, kind: str) -> str:
    return f"1 {kind} has" if count == 1 else f"{count} {kind}s have"
