"""The plugins, one room each.  The table below is all that the policy knows them by."""

from __future__ import annotations

from collections.abc import Mapping

from hekla.engine.framework.plugin import Plugin
from hekla.engine.plugins.fairness.calmeviction import CalmEviction
from hekla.engine.plugins.fairness.capacity import Capacity
from hekla.engine.plugins.fairness.cdp import CooldownProtection
from hekla.engine.plugins.fairness.conformance import Conformance
from hekla.engine.plugins.fairness.drf import Drf
from hekla.engine.plugins.fairness.fairshare import FairShare
from hekla.engine.plugins.fairness.gang import Gang
from hekla.engine.plugins.fairness.leastattained import LeastAttainedService
from hekla.engine.plugins.fairness.multifactor import Multifactor
from hekla.engine.plugins.fairness.overcommit import Overcommit
from hekla.engine.plugins.fairness.partylimits import PartyLimits
from hekla.engine.plugins.fairness.pdb import Pdb
from hekla.engine.plugins.fairness.priority import Priority
from hekla.engine.plugins.fairness.proportion import Proportion
from hekla.engine.plugins.fairness.rescheduling import Rescheduling
from hekla.engine.plugins.fairness.resourcequota import ResourceQuota
from hekla.engine.plugins.fairness.sla import Sla
from hekla.engine.plugins.fairness.tdm import Tdm
from hekla.engine.plugins.placement.binpack import BinPack
from hekla.engine.plugins.placement.deviceshare import DeviceShare
from hekla.engine.plugins.placement.extender import Extender
from hekla.engine.plugins.placement.fragmentation import Fragmentation
from hekla.engine.plugins.placement.ioaware import IoAware
from hekla.engine.plugins.placement.networktopology import NetworkTopologyAware
from hekla.engine.plugins.placement.nodegroup import NodeGroup
from hekla.engine.plugins.placement.nodeorder import NodeOrder
from hekla.engine.plugins.placement.numaaware import NumaAware
from hekla.engine.plugins.placement.predicates import Predicates
from hekla.engine.plugins.placement.strategyfit import ResourceStrategyFit
from hekla.engine.plugins.placement.tasktopology import TaskTopology
from hekla.engine.plugins.placement.usage import Usage

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
    CalmEviction,
    FairShare,
    Multifactor,
    LeastAttainedService,
    PartyLimits,
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
    Fragmentation,
)
PLUGINS: Mapping[str, type[Plugin]] = {plugin.name: plugin for plugin in _ALL}
