"""headroom: prefer the node that keeps the most processors free.

The vector kind of plugin: it is handed all nodes and gives a number for each, so that it costs the
same for ten nodes as for ten thousand, near enough.
"""

from __future__ import annotations

from hekla.engine.nodes import NodeView
from hekla.engine.plugin import Depends, Plugin
from hekla.engine.podclass import PodClass
from hekla.engine.resources import CPU, Floats


class Headroom(Plugin):
    name = "headroom"
    score_depends_on = Depends.NODE_ROW  # one placement changes one node's score

    def score(self, pods: PodClass, nodes: NodeView) -> Floats:
        """`[nodes]`, a point for each free core, 100 at the most."""
        cpu = nodes.table.space.column(CPU)
        free = nodes.allocatable(cpu) - nodes.used(cpu) - pods.request.amounts[CPU]
        result: Floats = (free / 1000.0).clip(0.0, 100.0)
        return result
