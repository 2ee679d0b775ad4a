"""One cycle: all profiles of the policy, in their order, over one view of the cluster.

A generator of evictions that is told whether each was taken, so that the same code serves the daemon, the
dry run and the tests.  Reference: descheduler 3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping

from hekla.descheduler.evictions import Eviction, Limits, Steps
from hekla.descheduler.evictor import Evictor
from hekla.descheduler.memory import Memory
from hekla.descheduler.plugins.low_utilization import cool_nodes
from hekla.descheduler.plugins.registry import PLUGINS
from hekla.descheduler.policy.policy import LOAD_AWARE, Policy, Profile
from hekla.descheduler.scheduler_copy import SchedulerCopy
from hekla.descheduler.session import Report, Session
from hekla.descheduler.tables import Tables
from hekla.descheduler.usage import Usage
from hekla.descheduler.view import View

log = logging.getLogger(__name__)

Usages = Mapping[tuple[str, str], Usage]
"""What was measured, by profile and plugin."""


def cycle(
    policy: Policy,
    tables: Tables,
    now: float,
    report: Report,
    *,
    usages: Usages | None = None,
    settling: Mapping[str, float] | None = None,
    memory: Memory | None = None,
    scheduler: SchedulerCopy | None = None,
    unasked: str = "",
    clock: Callable[[], float] = lambda: 0.0,
) -> Steps:
    """Yield what is to be evicted.  `clock` is read for the duration of plugins; `settling` as in
    View; `memory`: of earlier cycles; `scheduler`: for profiles that ask it, or why it cannot be
    asked (`unasked`)."""
    memory = Memory() if memory is None else memory
    view = View(tables, now, policy.nodes, settling)
    if len(view.nodes) <= 1:
        report.skipped = (
            "The cluster size is 0 or 1 meaning eviction causes service disruption or degradation. "
            "So aborting.."
        )
        return
    report.returns = memory.returns.look(tables, now, policy.back_off)
    limits = Limits.of(policy)
    for profile in policy.profiles:
        of_profile = {
            plugin: usage
            for (name, plugin), usage in (usages or {}).items()
            if name == profile.name
        }
        evictor = evictor_of(profile, view, of_profile)
        if evictor.problem:
            report.problems.append(f"profile {profile.name} evicts nothing: {evictor.problem}")
            continue
        if profile.evictor.asks_scheduler and unasked:
            report.problems.append(
                f"profile {profile.name} evicts nothing: nodeFit is engine, and {unasked}"
            )
            continue
        session = Session(
            profile,
            view,
            evictor,
            limits,
            report,
            of_profile,
            memory,
            scheduler if profile.evictor.asks_scheduler else None,
        )
        if not (yield from _plugins(session, profile.deschedule, clock)):
            log.error("the balance plugins of profile %s are left out of this cycle", profile.name)
            continue
        yield from _plugins(session, profile.balance, clock)


def evictor_of(profile: Profile, view: View, usages: Mapping[str, Usage]) -> Evictor:
    """The profile's evictor; where LoadAware has its `nodeFit`, pods of all its plugins have to fit on
    a node that is not hot."""
    load_aware, usage = profile.load_aware(), usages.get(LOAD_AWARE)
    cool = None
    if load_aware is not None and load_aware.node_fit and usage is not None and usage.nodes:
        cool = cool_nodes(view, load_aware, usage)
    return Evictor(profile.evictor, view, cool)


def _plugins(
    session: Session, names: tuple[str, ...], clock: Callable[[], float]
) -> Generator[Eviction, bool, bool]:
    """Run plugins; gives whether all went through."""
    sound = True
    for name in names:
        session.strategy = name
        began = clock()
        try:
            yield from PLUGINS[name](session, session.profile.arguments[name])
        except Exception as error:  # one plugin's fault is not the others'
            log.exception("%s of profile %s has failed", name, session.profile.name)
            session.report.problems.append(
                f"{name} of profile {session.profile.name} has failed: {error}"
            )
            sound = False
        session.report.seconds[name, session.profile.name] = clock() - began
    return sound
