"""`hekla scheduler`: runs the engine on a cluster.

A cycle starts when something has changed that could change a decision, and at least every --schedule-period.  It never waits
for the API server: what it decided goes out on many connections while events of the earlier decisions come in.
"""

from __future__ import annotations

import asyncio
import logging
import time

from hekla.api import scheduling
from hekla.engine.cycle import cycle
from hekla.engine.state import State
from hekla.kube import notify
from hekla.kube.client import Client
from hekla.kube.daemon import (
    Daemon,
    DaemonError,
    connection_flags,
    gate_flags,
    health_flags,
    leader_flags,
    metrics_flags,
)
from hekla.kube.daemon import main as run_daemon
from hekla.kube.errors import AlreadyExists, ApiError
from hekla.kube.events import Recorder
from hekla.kube.flags import SECONDS, TEXT, TEXTS, WHOLE, YES_NO, Flag
from hekla.kube.http.client import TransportError
from hekla.scheduler.carrier import Carrier
from hekla.scheduler.feed import Feed
from hekla.scheduler.metrics import CYCLE, PluginMetrics
from hekla.scheduler.policy_file import PolicyFile, PolicyFileError

log = logging.getLogger(__name__)

GATHER = 0.003
"""Seconds between the first change and the cycle that it starts: a burst of events is one cycle."""
SHORTEST_REST = 0.005
"""Seconds at the least between two cycles; a cycle that took longer is followed by a rest of its own length."""
POOL = 64
SLOW = 5.0
"""Seconds after which a cycle is worth a warning."""

FLAGS = (
    *connection_flags(0, 0),
    *health_flags(),
    *metrics_flags(":8080"),
    *leader_flags("volcano"),
    *gate_flags(),
    Flag("scheduler-name", TEXTS, ["volcano"], "the schedulerName of the pods that are scheduled here"),
    Flag("default-scheduler", YES_NO, False, "also schedule pods of default-scheduler, each on its own, without a PodGroup"),
    Flag("scheduler-conf", TEXT, "", "the policy file"),
    Flag("plugins-dir", TEXT, "", "a directory whose *.py files are plugins"),
    Flag("schedule-period", SECONDS, 1.0, "the longest time between two cycles"),
    Flag("default-queue", TEXT, "default", "queue of PodGroups that name none; created at the start"),
    Flag("disable-default-scheduler-config", YES_NO, False, "do not fall back to the built-in policy when the file cannot be used"),
    Flag("priority-class", YES_NO, True, "accepted for compatibility; priority classes are always known"),
    Flag("resync-period", SECONDS, 0.0, "accepted for compatibility; the caches need no resync"),
    Flag("minimum-feasible-nodes", WHOLE, 100, "accepted for compatibility; every node is looked at"),
    Flag("minimum-percentage-nodes-to-find", WHOLE, 5, "accepted for compatibility; every node is looked at"),
    Flag("percentage-nodes-to-find", WHOLE, 0, "accepted for compatibility; every node is looked at"),
    Flag("csi-storage", YES_NO, True, "accepted for compatibility"),
    Flag("node-worker-threads", WHOLE, 20, "accepted for compatibility; nodes need no workers"),
    Flag("cache-dumper", YES_NO, True, "accepted for compatibility"),
)


class Scheduler:
    """The loop: events in, cycles, decisions out."""

    def __init__(self, client: Client, state: State, policy: PolicyFile, recorder: Recorder, name: str, period: float) -> None:
        self.state = state
        self.policy = policy
        self.recorder = recorder
        self.period = period
        self.feed = Feed(client, state)
        self.carrier = Carrier(client, state, recorder, name, self.feed.changed.set)
        self.plugin_metrics = PluginMetrics()

    async def run(self) -> None:
        """Cycles until cancelled; what is in flight then is given a moment to be answered."""
        try:
            while True:
                took = self.cycle()
                await asyncio.sleep(max(SHORTEST_REST, took))
                try:
                    await asyncio.wait_for(self.feed.changed.wait(), self.period)
                    await asyncio.sleep(GATHER)
                except TimeoutError:
                    pass
                self.policy.changed()
        finally:
            try:
                await asyncio.wait_for(asyncio.shield(self.carrier.settle()), 5)
            except TimeoutError:
                log.warning("%d writes were not answered in time", len(self.carrier.tasks))

    def cycle(self) -> float:
        """One cycle; gives its seconds."""
        self.feed.changed.clear()
        began = time.perf_counter()
        decisions = cycle(self.state, self.policy.policy, time.time())
        took = time.perf_counter() - began
        self.carrier.carry(decisions)
        self.plugin_metrics.take(decisions.metrics)
        CYCLE.observe(1000 * took)
        for problem in decisions.problems:
            log.error("%s", problem)
        for kind, key, reason in self.feed.newly_rejected():
            log.warning("%s %s is left out: %s", kind, key, reason)
        if decisions.binds or decisions.evictions:
            log.info("bound %d, evicted %d, in %.1f ms", len(decisions.binds), len(decisions.evictions), 1000 * took)
        if took > SLOW:
            log.warning("a cycle took %.1f s over %d jobs with something to decide", took, len(self.state.active))
        return took


async def make_queues(client: Client, default: str) -> None:
    """Creates the queues `root` and the default one where they are missing.  Reference: scheduler-core 2.2."""
    for name, reclaimable in (("root", False), (default, True)):
        body = {
            "apiVersion": scheduling.QUEUE.api_version, "kind": "Queue", "metadata": {"name": name},
            "spec": {"weight": 1, "reclaimable": reclaimable},
        }
        for attempt in range(600):
            try:
                await client.create(scheduling.QUEUE, body)
            except AlreadyExists:
                pass
            except (ApiError, TransportError) as error:
                if attempt % 50 == 20:
                    log.warning("queue %s cannot be created yet: %s", name, error)
                await asyncio.sleep(0.1)
                continue
            break
        else:
            raise DaemonError(f"queue {name} cannot be created")


async def work(daemon: Daemon) -> None:
    """What `hekla scheduler` does once it may."""
    options = daemon.options
    names = list(options.scheduler_name)
    try:
        policy = PolicyFile(options.scheduler_conf, fall_back=not options.disable_default_scheduler_config,
                            plugins_dir=options.plugins_dir)
    except PolicyFileError as error:
        raise DaemonError(str(error)) from error
    component = names[0] if len(names) == 1 else "volcano"
    lone = ["default-scheduler"] if options.default_scheduler else []
    state = State(scheduler_names=names, lone_schedulers=lone, default_queue=options.default_queue)
    recorder = Recorder(daemon.client, component)
    scheduler = Scheduler(daemon.client, state, policy, recorder, component, options.schedule_period)
    try:
        await make_queues(daemon.client, options.default_queue)
        await scheduler.feed.start()
        notify.ready()
        await scheduler.run()
    finally:
        await recorder.close()


def main(argv: list[str]) -> int:
    """`hekla scheduler`."""
    return run_daemon("scheduler", FLAGS, argv, work, pool=POOL)
