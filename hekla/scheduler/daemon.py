"""`hekla scheduler`: runs the engine on a cluster.

A cycle starts when something has changed that could change a decision, and at least every
--schedule-period.  It never waits for the API server: decisions are sent on many connections while
the events of earlier decisions arrive.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

from prometheus_client import Histogram

from hekla.api import scheduling
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.resource import RESOURCE_CLAIM
from hekla.engine.cycle import cycle
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.shards import MODES, NONE
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Job
from hekla.engine.model.time.durations import zone
from hekla.kube import notify
from hekla.kube.client import Client
from hekla.kube.daemon import (
    Daemon,
    DaemonError,
    connection_flags,
    gate,
    gate_flags,
    health_flags,
    home_namespace,
    leader_flags,
    metrics_flags,
)
from hekla.kube.daemon import main as run_daemon
from hekla.kube.errors import AlreadyExists, ApiError
from hekla.kube.events import Recorder
from hekla.kube.flags import SECONDS, TEXT, TEXTS, WHOLE, YES_NO, Flag, one_of
from hekla.kube.health import address_problem
from hekla.kube.http.client import TransportError
from hekla.podrules.plain_pods import ALWAYS, NEEDED
from hekla.scheduler.binder import Binder
from hekla.scheduler.cycle_timer import CycleTimer
from hekla.scheduler.devices import device_map, locks_of, volume_patience
from hekla.scheduler.estimates.start_estimates import StartEstimates
from hekla.scheduler.extender import ExtenderClient
from hekla.scheduler.hash_ring import Ring
from hekla.scheduler.informers import EVERY_NODE, Informers, NodeSelector, sources
from hekla.scheduler.localtime import time_zone
from hekla.scheduler.memory.kept_usage import KEPT
from hekla.scheduler.memory.run_store import RunStore
from hekla.scheduler.memory.usage_store import UsageStore
from hekla.scheduler.metrics import ASSUMED, CYCLE, JobMetrics, PluginMetrics
from hekla.scheduler.node_usage import LoadCollector
from hekla.scheduler.policy_file import PolicyFile, PolicyFileError
from hekla.scheduler.recording import RecordedExtender, RecordedState, Recording
from hekla.scheduler.snapshots.server import SnapshotServer
from hekla.scheduler.snapshots.snapshot import Snapshots
from hekla.scheduler.stages import Stages, Watchdog

log = logging.getLogger(__name__)

POOL = 64
TIDY = 10.0
"""Seconds between two removals of the metrics of deleted jobs."""
SLOW = 5.0
"""Seconds of a cycle above which a warning is logged."""

OF_BOTH = (
    Flag(
        "stuck-after",
        SECONDS,
        30.0,
        "the time after which a cycle is named as stuck, with its stack; 0 is never",
    ),
    Flag(
        "node-selector",
        TEXTS,
        [],
        "key:value, may be repeated: only nodes with one of these labels are used",
    ),
    Flag(
        "disable-default-scheduler-config",
        YES_NO,
        False,
        "do not fall back to the built-in policy when the file cannot be used",
    ),
    Flag("resync-period", SECONDS, 0.0, "accepted for compatibility; the caches need no resync"),
    Flag(
        "minimum-feasible-nodes", WHOLE, 100, "accepted for compatibility; every node is looked at"
    ),
    Flag(
        "minimum-percentage-nodes-to-find",
        WHOLE,
        5,
        "accepted for compatibility; every node is looked at",
    ),
    Flag(
        "percentage-nodes-to-find", WHOLE, 0, "accepted for compatibility; every node is looked at"
    ),
    Flag("csi-storage", YES_NO, True, "accepted for compatibility"),
    Flag("node-worker-threads", WHOLE, 20, "accepted for compatibility; nodes need no workers"),
    Flag("cache-dump-dir", TEXT, "/tmp", "accepted for compatibility"),
    Flag(
        "resource-sync-timeout",
        SECONDS,
        60.0,
        "accepted for compatibility; the first cycle waits for what it needs",
    ),
)
"""Flags that this scheduler and the agent scheduler share."""

FLAGS = (
    *connection_flags(0, 0),
    *health_flags(),
    *metrics_flags(":8080"),
    *leader_flags("volcano"),
    *gate_flags(),
    Flag(
        "scheduler-name",
        TEXTS,
        ["volcano"],
        "the schedulerName of the pods that are scheduled here",
    ),
    Flag(
        "default-scheduler",
        YES_NO,
        False,
        "also schedule pods of default-scheduler, each on its own, without a PodGroup",
    ),
    Flag("scheduler-conf", TEXT, "", "the policy file"),
    Flag("plugins-dir", TEXT, "", "a directory whose *.py files are plugins"),
    Flag(
        "record",
        TEXT,
        "",
        "a directory into which everything that goes into a cycle is written, for `hekla replay`",
    ),
    Flag(
        "snapshot-address",
        TEXT,
        "",
        "where `vcctl job explain --what-if` reads what the scheduler knows, such as :10259; empty is nowhere",
        check=lambda value: address_problem(value) if value else None,
    ),
    Flag(
        "client-ca-file",
        TEXT,
        "",
        "the authority of users' certificates at --snapshot-address, else what the cluster says in "
        "kube-system/extension-apiserver-authentication",
    ),
    Flag(
        "learned-walltimes",
        TEXT,
        "",
        "a file that keeps what jobs took, if the policy learns from it; empty: kept in memory alone",
    ),
    Flag(
        "time-zone",
        TEXT,
        "",
        "the zone of times of day in the policy (tdm), such as Europe/Vienna; empty is this machine's",
    ),
    Flag(
        "scheduler-sharding-mode",
        TEXT,
        NONE,
        "what NodeShards mean: none (nothing), hard (only the nodes of this scheduler's) or soft (these first)",
        check=one_of(*MODES),
    ),
    Flag("scheduler-sharding-name", TEXT, "volcano", "the NodeShard of this scheduler"),
    Flag(
        "podgroups",
        TEXT,
        NEEDED,
        "which pods without a PodGroup wait for one: needed (those with an owner, or that ask for what "
        "a PodGroup says), or always (all)",
        check=one_of(NEEDED, ALWAYS),
    ),
    Flag(
        "start-estimates",
        YES_NO,
        True,
        "say of every waiting job when it starts, as far as walltimes let that be known",
    ),
    Flag("schedule-period", SECONDS, 1.0, "the longest time between two cycles"),
    Flag(
        "default-queue", TEXT, "default", "queue of PodGroups that name none; created at the start"
    ),
    Flag(
        "priority-class",
        YES_NO,
        True,
        "accepted for compatibility; priority classes are always known",
    ),
    Flag(
        "gate-removal-worker-num",
        WHOLE,
        5,
        "accepted for compatibility; gates are lifted as fast as the server answers",
    ),
    Flag(
        "ignored-provisioners",
        TEXTS,
        [],
        "accepted for compatibility; volumes count where a CSINode says how many there may be",
    ),
    Flag(
        "cache-dumper",
        YES_NO,
        True,
        "accepted for compatibility; --record writes down what there is to know",
    ),
    *OF_BOTH,
)


class Scheduler:
    """The loop: events change the state, a cycle decides, the binder writes."""

    def __init__(
        self,
        client: Client,
        state: State,
        policy: PolicyFile,
        recorder: Recorder,
        name: str,
        period: float,
        *,
        recording: Recording | None = None,
        selector: NodeSelector = EVERY_NODE,
        stuck_after: float = 0.0,
        batch: bool = True,
        ring: Ring | None = None,
        taint_rules: bool = False,
        namespace: str = "",
        estimates: bool = False,
        learned_walltimes: str = "",
    ) -> None:
        self.state = state
        self.policy = policy
        self.recorder = recorder
        wanted = sources(state, selector, device_map(policy.policy), batch, ring, taint_rules)
        self.informers = Informers(client, state, wanted, whole=recording is not None)
        self.timer = CycleTimer(self.informers.changed, client.debounce, period)
        ask = ExtenderClient()
        state.use_extender(ask if recording is None else RecordedExtender(recording, ask))
        self.load = LoadCollector(
            client, state, lambda: policy.policy.metrics, self.informers.changed.set
        )
        self.usages = [
            UsageStore(one, client, state, lambda: policy.policy, namespace) for one in KEPT
        ]
        self.runs = RunStore(learned_walltimes, state, lambda: policy.policy)
        self.recording = recording
        self.stages = Stages()
        self.watchdog = Watchdog(self.stages, stuck_after)
        self.worker: Histogram | None = None
        """The histogram of cycles, if it is not the batch scheduler's."""
        self.problems: set[str] = set()
        seen = self.informers.versions_of(scheduling.POD_GROUP) if batch else lambda group: ""
        self.binder = Binder(
            client,
            state,
            recorder,
            name,
            self.informers.changed.set,
            batch=batch,
            seen=seen,
            namespace=namespace,
        )
        self.informers.cache_of(PERSISTENT_VOLUME_CLAIM).on_change(
            self.binder.volumes.claim_changed
        )
        self.informers.cache_of(RESOURCE_CLAIM).on_change(self.binder.claims.claim_changed)
        self.estimates: StartEstimates | None = None
        if estimates:
            groups = self.binder.pod_groups
            self.estimates = groups.estimates = StartEstimates(
                state,
                lambda: policy.policy,
                groups.update_estimate,
                self.binder.record,
                self.informers.changed,
            )
        self.plugin_metrics = PluginMetrics()
        self.job_metrics = JobMetrics()
        self.tidied = 0.0

    async def run(self) -> None:
        """Run cycles until cancelled, then wait a moment for the answers to writes in flight."""
        self.watchdog.start()
        for usage in self.usages:
            await usage.load()
        await self.runs.load()
        beside = [
            asyncio.ensure_future(one.run())
            for one in (self.load, *self.usages, self.runs, self.estimates)
            if one is not None
        ]
        try:
            while True:
                took = self.cycle()
                await self.timer.next_cycle(took, self.state.edge - time.time())
                self.policy.changed()
        finally:
            for one in beside:
                one.cancel()
            self.watchdog.stop()
            if self.recording is not None:
                self.recording.close()
            try:
                async with asyncio.timeout(5):
                    for usage in self.usages:
                        await usage.save()
                    await self.runs.save()
                    # The writes continue after this timeout.
                    await self.binder.settle()
            except TimeoutError:
                log.warning("%d writes were not answered in time", len(self.binder.tasks))

    def cycle(self) -> float:
        """Run one cycle; returns its seconds."""
        self.informers.changed.clear()
        began = time.perf_counter()
        now, number = time.time(), self.state.cycle
        if self.recording is not None:
            self.recording.take_policy(self.policy)
        if self.estimates is not None:
            self.estimates.before_cycle()
        decisions = cycle(self.state, self.policy.policy, now, stage=self.stages)
        took = time.perf_counter() - began
        if self.recording is not None and self.state.cycle != number:
            self.recording.cycle(now, decisions)
        self.binder.locks = locks_of(self.policy.policy)
        self.binder.volumes.patience = volume_patience(self.policy.policy)
        self.binder.submit(decisions)
        self.plugin_metrics.take(decisions.metrics)
        (CYCLE if self.worker is None else self.worker).observe(1000 * took)
        self.observe(decisions, now)
        if self.estimates is not None and self.state.cycle != number:
            self.estimates.after_cycle()
        for problem in decisions.problems:
            if problem not in self.problems:
                log.error("%s", problem)
        if self.state.cycle != number:
            self.problems = set(decisions.problems)
        for refused in self.informers.newly_rejected():
            log.warning("%s %s is left out: %s", refused.kind, refused.key, refused.reason)
            self.binder.record_rejected(refused)
        if decisions.binds or decisions.evictions:
            log.info(
                "bound %d, evicted %d, in %.1f ms",
                len(decisions.binds),
                len(decisions.evictions),
                1000 * took,
            )
        if took > SLOW:
            log.warning(
                "a cycle took %.1f s over %d jobs with something to decide",
                took,
                len(self.state.active),
            )
        return took

    def observe(self, decisions: Decisions, now: float) -> None:
        """Count how long pods and jobs took to be placed."""
        placed: dict[str, Job] = {}
        for bind in decisions.binds:
            task = self.state.tasks.get(bind.pod)
            if task is not None and task.job is not None:
                ASSUMED.observe(max(0.0, 1000 * (now - task.creation)))
                placed[bind.job] = task.job
        self.job_metrics.placed(placed.values(), now)
        if self.estimates is not None:
            for job in placed.values():
                if job.is_ready():
                    self.estimates.started(job, now)
        if now - self.tidied >= TIDY:
            self.tidied = now
            self.job_metrics.keep(self.state.jobs)
            self.plugin_metrics.keep(self.state.jobs.values())


async def make_queues(client: Client, default: str) -> None:
    """Create the queues `root` and `default` if they are missing.  Raises DaemonError when the
    server refuses for a minute.  Reference: scheduler-core 2.2."""
    for name, reclaimable in (("root", False), (default, True)):
        body = {
            "apiVersion": scheduling.QUEUE.api_version,
            "kind": "Queue",
            "metadata": {"name": name},
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
    """The work of `hekla scheduler` once it is the leader."""
    options = daemon.options
    names = list(options.scheduler_name)
    try:
        policy = PolicyFile(
            options.scheduler_conf,
            fall_back=not options.disable_default_scheduler_config,
            plugins_dir=options.plugins_dir,
        )
    except PolicyFileError as error:
        raise DaemonError(str(error)) from error
    component = names[0] if len(names) == 1 else "volcano"
    own_jobs = ["default-scheduler"] if options.default_scheduler else []
    try:
        ring = Ring.from_environment(os.environ)
    except ValueError as error:
        raise DaemonError(str(error)) from error
    given: dict[str, Any] = {
        "scheduler_names": names,
        "bare_pod_schedulers": own_jobs,
        "default_queue": options.default_queue,
        "implied_groups": options.podgroups == NEEDED and ring is None,
        "time_zone": options.time_zone or time_zone(),
        "lifts_gates": gate(options, "SchedulingGatesQueueAdmission"),
        "scores_storage": gate(options, "StorageCapacityScoring"),
        "shard_mode": options.scheduler_sharding_mode,
        "shard_name": options.scheduler_sharding_name,
    }
    try:
        zone(given["time_zone"])
    except ValueError as error:
        raise DaemonError(f"--time-zone: {error}") from error
    recording = None
    if options.record:
        try:
            recording = Recording(Path(options.record))
        except OSError as error:
            raise DaemonError(f"--record {options.record}: {error}") from error
    state = State(**given) if recording is None else RecordedState(recording, **given)
    recorder = Recorder(daemon.client, component)
    selector = NodeSelector.parse(options.node_selector)
    taint_rules = gate(options, "DRADeviceTaintRules")
    scheduler = Scheduler(
        daemon.client,
        state,
        policy,
        recorder,
        component,
        options.schedule_period,
        recording=recording,
        selector=selector,
        stuck_after=options.stuck_after,
        ring=ring,
        taint_rules=taint_rules,
        namespace=home_namespace(options),
        estimates=options.start_estimates,
        learned_walltimes=options.learned_walltimes,
    )
    snapshots = Snapshots(
        daemon.client,
        state,
        given,
        policy,
        lambda told: sources(
            told, selector, device_map(policy.policy), ring=ring, taint_rules=taint_rules
        ),
    )
    server = SnapshotServer(daemon.client, snapshots, home_namespace(options))
    try:
        await make_queues(daemon.client, options.default_queue)
        await scheduler.informers.start()
        if options.snapshot_address:
            await _serve(server, options.snapshot_address, options.client_ca_file)
        notify.ready()
        await scheduler.run()
    finally:
        await server.close()
        await recorder.close()


async def _serve(server: SnapshotServer, address: str, clients: str) -> None:
    try:
        await server.start(address, clients)
    except (OSError, UnicodeDecodeError) as error:
        flag = "--client-ca-file" if isinstance(error, FileNotFoundError) else "--snapshot-address"
        raise DaemonError(f"{flag} {clients or address}: {error}") from error


def main(argv: list[str]) -> int:
    """`hekla scheduler`."""
    return run_daemon("scheduler", FLAGS, argv, work, pool=POOL)
