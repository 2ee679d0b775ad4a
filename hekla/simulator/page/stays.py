"""When pods were on their nodes, and what that adds up to over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hekla.simulator.run import Act, Run
from hekla.simulator.workload import MICROSECONDS

Floats = NDArray[np.float64]


class Stay(NamedTuple):
    """A pod's time on its node; in seconds since the beginning."""

    start: float
    end: float
    act: Act
    """That which began it."""


def stays(run: Run) -> list[Stay]:
    """All of a run, in the order in which they began; what had not ended lasts to the run's end."""
    open_: dict[str, int] = {}
    found: list[Stay] = []
    for act in run.acts:
        moment = act.moment / MICROSECONDS
        if act.what in ("ran", "bind"):
            open_[act.pod] = len(found)
            found.append(Stay(moment, run.until / MICROSECONDS, act))
        elif (at := open_.pop(act.pod, None)) is not None:
            found[at] = found[at]._replace(end=moment)
    return found


def held(of: Iterable[Stay], resource: str, edges: Floats) -> Floats:
    """`[edges - 1]`: how much of a resource was held in the mean between the edges, in the engine's
    units."""
    return means(of, lambda one: one.act.request.get(resource, 0.0), edges)


def means(of: Iterable[Stay], amount: Callable[[Stay], float], edges: Floats) -> Floats:
    """`[edges - 1]`: the mean of the sum of these amounts over the time between the edges."""
    moments, changes = [float(edges[0])], [0.0]
    for one in of:
        if (size := amount(one)) and one.end > one.start:
            moments += (one.start, one.end)
            changes += (size, -size)
    times = np.array(moments)
    order = np.argsort(times, kind="stable")
    times, steps = times[order], np.cumsum(np.array(changes)[order])
    area = np.concatenate(([0.0], np.cumsum(steps[:-1] * np.diff(times))))
    inside = np.interp(edges, times, area)
    result: Floats = np.maximum(np.diff(inside) / np.diff(edges), 0.0)
    return result


def length_of(runs: Sequence[Run]) -> float:
    """Seconds until the last of the runs ends; 1 where nothing took any time."""
    return max((run.until for run in runs), default=0) / MICROSECONDS or 1.0


def edges_of(last: float, bins: int) -> Floats:
    """The edges of so many equal parts of the seconds until `last`."""
    return np.linspace(0.0, last, bins + 1)
