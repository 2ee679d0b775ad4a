"""How evenly pods are spread, as nodeorder scores it: by the soft constraints that a pod states, or
among its peers where it states none.

A pod without constraints has two from the system: by host (skew 3) and by zone (skew 5).  Each
placement of its peers changes what all nodes of a zone are worth, and by how much all others are
measured.  But nodes differ only in their zone and in how many of the peers they hold, so for a gang
the score is a small table of these two, of which a placement changes a line. Reference:
plugins-placement 2.2 (topology spread).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hekla.engine.framework.plugin import MAX_SCORE, Running
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import ABSENT, NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import Spread, domain_sums
from hekla.engine.model.resources import Floats
from hekla.engine.model.spread_peers import SpreadPeers
from hekla.engine.plugins.placement.predicates import participation

if TYPE_CHECKING:
    from hekla.engine.model.podclass import LabelSet, PodClass
    from hekla.engine.model.tasks import Task

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
HOST_SKEW, ZONE_SKEW = 3, 5


def raw(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
    """`[nodes]`, from 0 to 100: fewer of its kind around is better.  Normalised here, because some
    candidates may be left out of it."""
    if pods.states_spread:
        return _stated(pods, nodes)
    if task is None or task.labels.peers is None:
        return None
    if not len(nodes):
        return np.zeros(0)
    return _Places(pods, nodes, task.labels, task.labels.peers).now()


def running(pods: PodClass, nodes: NodeView, task: Task) -> Running | None:
    """The same for pods among their peers, from placement to placement."""
    if pods.states_spread or task.labels.peers is None or not len(nodes):
        return None
    return _Places(pods, nodes, task.labels, task.labels.peers)


class _Places:
    """Candidates by where they are: each combination of a zone (or none) and of having a host name
    is a place.

    `raw[places, counts]`: the score before normalisation of a node of this place that holds so many
    of the peers.
    """

    def __init__(
        self, pods: PodClass, nodes: NodeView, labels: LabelSet, peers: SpreadPeers
    ) -> None:
        table = nodes.table
        counts = peers.counts(len(table))
        held = nodes.take(counts).astype(np.intp)
        zones = table.label_codes(ZONE)
        mine, hosted = nodes.take(zones), nodes.take(table.label_codes(HOST)) != ABSENT
        codes, place = np.unique(2 * mine + hosted, return_inverse=True)
        self.place: NDArray[np.intp] = place
        self.held: NDArray[np.intp] = held
        self.zone: NDArray[np.int32] = codes >> 1
        """`[places]`: the code of the zone; ABSENT where there is none."""
        self.hosted: NDArray[np.intp] = codes & 1
        taking_part = _taking_part(pods, table)
        around = np.append(domain_sums(zones, counts * taking_part), 0.0)
        self.around: Floats = around[self.zone]
        """`[places]`: how many of the peers the zone holds, on whatever nodes the pod could be."""
        self.counts_there: Bools = nodes.take(taking_part)
        """`[candidates]`: whether a pod there counts for the zone."""
        self.counts_itself = peers in labels.counted
        self.number: NDArray[np.intp] = np.zeros((len(codes), int(held.max()) + 2), dtype=np.intp)
        """`[places, counts]`: how many candidates are like that."""
        np.add.at(self.number, (place, held), 1)
        self.index: NDArray[np.intp] = place * self.number.shape[1] + held
        self.left_any()

    def left_any(self) -> None:
        """What depends on which candidates there are."""
        number = self.number
        zones = len(np.unique(self.zone[number.any(axis=1)]))
        self.by_zone = float(np.log(zones + 2))
        levels = np.arange(number.shape[1], dtype=np.float64)
        by_host = levels * float(np.log(int(number.sum()) + 2)) + (HOST_SKEW - 1)
        self.host_part: Floats = self.hosted[:, None] * by_host
        self.zoned: Floats = (self.zone != ABSENT).astype(np.float64)
        self.raw: Floats = np.floor(self.host_part + self._zone_part()[:, None] + 0.5)

    def _zone_part(self) -> Floats:
        return self.zoned * (self.around * self.by_zone + (ZONE_SKEW - 1))

    def now(self) -> Floats:
        """`[candidates]`, from 0 to 100."""
        raw = self.raw
        there = raw[self.number > 0]
        high, low = there.max(), there.min()
        if high == low or high == 0:
            return np.full(len(self.index), MAX_SCORE)
        scores: Floats = np.floor(MAX_SCORE * (high + low - raw) / high).ravel()[self.index]
        return scores

    def placed(self, at: int) -> None:
        """A pod of the class was placed on a candidate."""
        if not self.counts_itself:
            return
        place, held, number = self.place[at], self.held[at], self.number
        if held + 1 == number.shape[1]:
            self.number = number = np.concatenate((number, np.zeros_like(number)), axis=1)
            self.index = self.place * number.shape[1] + self.held
            self.left_any()
        number[place, held] -= 1
        number[place, held + 1] += 1
        self.held[at] += 1
        self.index[at] += 1
        if self.counts_there[at] and self.zone[place] != ABSENT:
            same = self.zone == self.zone[place]
            self.around[same] += 1
            self.raw[same] = np.floor(self.host_part[same] + self._zone_part()[same, None] + 0.5)

    def left(self, at: int) -> None:
        """A candidate takes no more."""
        self.number[self.place[at], self.held[at]] -= 1
        self.left_any()


def _taking_part(pods: PodClass, table: NodeTable) -> Bools:
    """`[nodes]`: nodes whose pods count for the zone's sum."""

    def compute() -> Bools:
        return participation(pods, True, False, table)

    return pods.static("evenness", table, compute)


def _stated(pods: PodClass, nodes: NodeView) -> Floats | None:
    soft = [spread for spread in pods.spreads if not spread.hard]
    if not soft:
        return None
    if not len(nodes):
        return np.zeros(0)
    table = nodes.table
    complete = np.ones(len(table), dtype=np.bool_)
    for spread in soft:
        complete &= table.label_codes(spread.term.key) != ABSENT
    counted = nodes.take(complete)
    raw = np.zeros(len(nodes))
    for spread in soft:
        raw += _stated_part(pods, nodes, spread, complete)
    raw = np.floor(raw + 0.5)
    result = np.zeros(len(nodes))
    if not counted.any():
        return result
    high, low = raw[counted].max(), raw[counted].min()
    result[counted] = (
        MAX_SCORE if high == 0 else np.floor(MAX_SCORE * (high + low - raw[counted]) / high)
    )
    return result


def _stated_part(pods: PodClass, nodes: NodeView, spread: Spread, complete: Bools) -> Floats:
    """One constraint's part; nodes that lack the key of any are no candidates, and their pods do
    not count."""
    table = nodes.table
    codes = table.label_codes(spread.term.key)
    mine, counted = nodes.take(codes), nodes.take(complete)
    live = np.zeros(len(table))
    known = min(spread.term.size, len(table))
    live[:known] = spread.term.live[:known]
    if spread.term.key == HOST:
        size, around = int(counted.sum()), nodes.take(live)
    else:
        size = len(np.unique(mine[counted]))
        heard = complete & participation(pods, spread.honor_affinity, spread.honor_taints, table)
        sums = np.append(domain_sums(codes, np.where(heard, live, 0.0)), 0.0)
        around = sums[mine]
    result: Floats = around * np.log(size + 2) + (spread.max_skew - 1)
    return result
