"""The plugins, one room each.  The table below is all that the policy knows them by."""

from __future__ import annotations

from collections.abc import Mapping

from hekla.engine.plugin import Plugin
from hekla.engine.plugins.binpack import BinPack
from hekla.engine.plugins.capacity import Capacity
from hekla.engine.plugins.conformance import Conformance
from hekla.engine.plugins.drf import Drf
from hekla.engine.plugins.gang import Gang
from hekla.engine.plugins.networktopology import NetworkTopologyAware
from hekla.engine.plugins.nodeorder import NodeOrder
from hekla.engine.plugins.overcommit import Overcommit
from hekla.engine.plugins.predicates import Predicates
from hekla.engine.plugins.priority import Priority
from hekla.engine.plugins.proportion import Proportion

PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Gang, Priority, Conformance, Drf, Proportion, Capacity, Predicates, NodeOrder, BinPack, Overcommit,
        NetworkTopologyAware,
    )  # fmt: skip
}
