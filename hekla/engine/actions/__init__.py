"""The actions: what a cycle does, in the order in which the policy lists them.  Reference:
scheduler-core 6."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from hekla.engine.actions.allocate import Allocate
from hekla.engine.actions.backfill import Backfill
from hekla.engine.actions.defragment import Defragment
from hekla.engine.actions.enqueue import Enqueue
from hekla.engine.actions.gangevict import GangPreempt, GangReclaim
from hekla.engine.actions.preempt import Preempt
from hekla.engine.actions.reclaim import Reclaim
from hekla.engine.actions.shuffle import Shuffle

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session


class Action(Protocol):
    """One step of a cycle."""

    name: str
    arguments: Mapping[str, bool | int | str]
    """Its arguments in the policy file, with their defaults; the type of a default is the type that
    is accepted."""

    def run(self, session: Session) -> None: ...


ACTIONS: Mapping[str, Action] = {
    action.name: action
    for action in (
        Enqueue(),
        Allocate(),
        Backfill(),
        Preempt(),
        Reclaim(),
        Shuffle(),
        Defragment(),
        GangPreempt(),
        GangReclaim(),
    )
}
