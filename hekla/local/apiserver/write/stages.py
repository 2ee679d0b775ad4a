"""A write is a list of stages, run one after the other: `creating.CREATE`, `updating.UPDATE`.

Each stage says what its result depends on.  A cache that knows the results for some of that runs
what is left of the list (`remaining`): a stage that depends on nothing else is left out, and one
that depends on more is replaced by a step for the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Flag, auto
from typing import Any, Generic, NamedTuple, TypeVar

from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.request.status import internal
from hekla.local.apiserver.storage.collection import WriteLost
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.storage.store import Store

W = TypeVar("W")
"""A write on its way through the stages."""
Step = Callable[[W], Awaitable[Any] | None]
"""Works on the write in place.  Gives something to wait for, or None."""


class Backend(NamedTuple):
    """What the stages read and write."""

    store: Store
    registry: Registry
    admission: Admission


class On(Flag):
    """What the result of a stage can depend on, besides the kind of the object."""

    CONTENT = auto()
    """The fields of the object outside of metadata."""
    METADATA = auto()
    OWNERS = auto()
    """The managed fields of the stored object."""
    REQUEST = auto()
    """Who asks, through which endpoint and with which options."""
    CLUSTER = auto()
    """The objects that admission looks up for every object of the kind."""
    MOMENT = auto()
    """The clock, random names, and the newest state of the store: free names, quotas, policies."""


class Stage(NamedTuple, Generic[W]):
    """One stage of a write."""

    run: Step[W]
    depends_on: On


class NeedsFullPath(Exception):
    """A step of a shortened list found something unusual.  Nothing has been written: run all stages,
    which also find the words for what is wrong."""


def remaining(
    stages: Sequence[Stage[Any]],
    known: On,
    instead: Mapping[Any, Step[W]] | Mapping[Any, Step[W] | None],
) -> tuple[Step[W], ...]:
    """What is left of a list of stages where all that depends on `known` alone is known.

    `instead` has the steps that take the place of stages which depend on more; None where another
    step does their part.
    """
    left = [stage.run for stage in stages if stage.depends_on & ~known]
    return tuple(step for step in (instead.get(run, run) for run in left) if step is not None)


async def committed(done: Awaitable[Row]) -> Row:
    """Wait until a write that was accepted outside of a list is on the disk.  Raises Refusal."""
    try:
        return await done
    except WriteLost as lost:
        raise internal(str(lost)) from lost


async def run_steps(steps: Sequence[Step[W]], write: W) -> None:
    """Run the steps in order.  Raises Refusal."""
    try:
        for step in steps:
            waiting = step(write)
            if waiting is not None:
                await waiting
    except WriteLost as lost:
        raise internal(str(lost)) from lost
