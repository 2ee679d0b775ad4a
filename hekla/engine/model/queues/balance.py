"""Whether room may change hands between queues: a demand leaves its queue no further above its share
than whom it takes from.

A share is what a queue deserves of a resource.  Only what is short counts, for which others have to
leave: a queue that is within its share of memory takes no cpu with that right.  Held to this in one
resource, claims bring queues nearer to each other; what several resources at once still allow to go
in a circle, `hekla.engine.model.transfers` ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hekla.engine.model.resources import EPSILON, PODS, Amounts
from hekla.engine.model.tasks import requests_of

if TYPE_CHECKING:
    from hekla.engine.model.queues.queuetree import Branch
    from hekla.engine.model.resources import Floats, ResourceSpace
    from hekla.engine.model.tasks import Task


@dataclass(frozen=True, slots=True)
class Demand:
    """Room that a queue asks for at the cost of others."""

    queue: str
    asked: Amounts
    short: tuple[str, ...]
    """Of what there is too little as long as nobody leaves; all that is asked for, where room is
    not what is missing."""


def demand_of(space: ResourceSpace, queue: str, tasks: Iterable[Task], free: Floats) -> Demand:
    """What the tasks ask for where so much is free."""
    asked = requests_of(tasks)
    wanted = [name for name, value in asked.items() if value >= EPSILON and name != PODS]
    short = [name for name in wanted if asked[name] >= free[space.column(name)] + EPSILON]
    return Demand(queue, asked, tuple(short or wanted))


def over(held: Amounts, deserved: Amounts, name: str, more: float = 0.0) -> float:
    """How much of a resource is held beyond what is deserved; of what is not deserved at all,
    everything."""
    return max(held.get(name, 0.0) + more - deserved.get(name, 0.0), 0.0)


def balanced(
    demand: Demand, claiming: Branch, theirs: Branch, lost: Amounts, going: Amounts, levels: int = 0
) -> bool:
    """Whether the demand may take so much from the other queue, of which so much is going already.

    The other queue must hold more than its share of something that is short and that it would give.
    Where the preemptor is still within its own share of that, or so many levels of its ancestors are,
    it has a right to it, as upstream's recorded cases have it; else the other must stay the one
    further above.
    """
    gone = {name: going.get(name, 0.0) for name in demand.short}
    given = [
        name
        for name in demand.short
        if lost.get(name, 0.0) >= EPSILON
        and over(theirs.allocated, theirs.deserved, name, -gone[name]) > 0
    ]
    if not given:
        return False
    parents = [
        above for level in range(1, levels + 1) if (above := claiming.above(level)) is not None
    ]
    for one in (
        claiming,
        *(above for above in parents if all(above is not other for other in theirs.ancestors)),
    ):
        for name in given:
            if (
                one.deserved.get(name, 0.0) >= EPSILON
                and over(one.allocated, one.deserved, name, demand.asked[name]) < EPSILON
            ):
                return True
    return all(
        over(claiming.allocated, claiming.deserved, name, demand.asked[name])
        <= over(theirs.allocated, theirs.deserved, name, -gone[name] - lost.get(name, 0.0))
        + EPSILON
        for name in _counted(demand.short, claiming.deserved)
    )


def _counted(short: Collection[str], deserved: Amounts) -> Collection[str]:
    """Of what is short that in which the preemptor has a share; where it has none in any of it, all."""
    own = [name for name in short if deserved.get(name, 0.0) >= EPSILON]
    return own or short
