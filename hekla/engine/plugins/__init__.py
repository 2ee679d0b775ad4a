"""The plugins, one room each.  The table below is all that the policy knows them by."""

from __future__ import annotations

from collections.abc import Mapping

from hekla.engine.plugin import Plugin
from hekla.engine.plugins.binpack import BinPack
from hekla.engine.plugins.capacity import Capacity
from hekla.engine.plugins.cdp import CooldownProtection
from hekla.engine.plugins.conformance import Conformance
from hekla.engine.plugins.deviceshare import DeviceShare
from hekla.engine.plugins.drf import Drf
from hekla.engine.plugins.extender import Extender
from hekla.engine.plugins.gang import Gang
from hekla.engine.plugins.ioaware import IoAware
from hekla.engine.plugins.networktopology import NetworkTopologyAware
from hekla.engine.plugins.nodegroup import NodeGroup
from hekla.engine.plugins.nodeorder import NodeOrder
from hekla.engine.plugins.numaaware import NumaAware
from hekla.engine.plugins.overcommit import Overcommit
from hekla.engine.plugins.pdb import Pdb
from hekla.engine.plugins.predicates import Predicates
from hekla.engine.plugins.priority import Priority
from hekla.engine.plugins.proportion import Proportion
from hekla.engine.plugins.rescheduling import Rescheduling
from hekla.engine.plugins.resourcequota import ResourceQuota
from hekla.engine.plugins.sla import Sla
from hekla.engine.plugins.strategyfit import ResourceStrategyFit
from hekla.engine.plugins.tasktopology import TaskTopology
from hekla.engine.plugins.tdm import Tdm
from hekla.engine.plugins.usage import Usage

_ALL: tuple[type[Plugin], ...] = (
    Gang,
    Priority,
    Conformance,
    Drf,
    Proportion,
    Capacity,
    Overcommit,
    Sla,
    Tdm,
    Pdb,
    ResourceQuota,
    CooldownProtection,
    Predicates,
    NodeOrder,
    BinPack,
    ResourceStrategyFit,
    NodeGroup,
    NetworkTopologyAware,
    Usage,
    DeviceShare,
    NumaAware,
    TaskTopology,
    Rescheduling,
    Extender,
    IoAware,
)
PLUGINS: Mapping[str, type[Plugin]] = {plugin.name: plugin for plugin in _ALL}
