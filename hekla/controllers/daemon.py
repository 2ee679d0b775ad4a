"""`hekla controllers`: all batch controllers in one process, over one set of caches.

Flags and defaults are the original's (reference: controllers 1.1), with one exception: requests to
the API server are not limited by rate unless asked for, because what bounds them is the number in
flight (decision 0022).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from hekla.api import topology
from hekla.api.kubernetes import apps
from hekla.api.sizes import MOST_PODS
from hekla.controllers.caches import Caches
from hekla.controllers.colocation import ColocationController
from hekla.controllers.command import CommandController
from hekla.controllers.cronjob.controller import CronJobController
from hekla.controllers.garbage import GarbageCollector
from hekla.controllers.hypernode.controller import NODE, HyperNodeController
from hekla.controllers.hypernode.discovery import DiscoveryController
from hekla.controllers.job.controller import JobController
from hekla.controllers.job.inqueue_listener import InqueueListener
from hekla.controllers.jobflow.controller import JobFlowController
from hekla.controllers.jobtemplate import JobTemplateController
from hekla.controllers.podgroup import IdleWorkloads, PodGroupController
from hekla.controllers.queue import QueueController
from hekla.controllers.sharding.config import DEFAULT_FLAGS, of_flags
from hekla.controllers.sharding.controller import ShardingController
from hekla.kube import notify
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller, run
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
from hekla.kube.events import Recorder
from hekla.kube.flags import SECONDS, TEXT, WHOLE, YES_NO, Flag, Options, Type, at_least, one_of
from hekla.podrules.plain_pods import ALWAYS, NEEDED

log = logging.getLogger(__name__)

COMPONENT = "vc-controller-manager"
"""The source of events, as users of the original know it."""
PER_THREAD = 40
"""Objects reconciled at a time for each thread of the original: here they only wait for answers,
and cost next to nothing."""
POOL = 160
"""Connections to the API server."""

ONCE_EACH = Type("stringArray", lambda text: [text], repeated=True, show=",".join)
"""A list flag that is given once for each value; commas belong to the value."""
COMMA_LIST = Type("strings", lambda text: text.split(","), repeated=True, show=",".join)
"""Items as they are written: the original compares them literally."""


def enabled(name: str, wanted: Sequence[str]) -> bool:
    """Whether a controller runs (reference: controllers 1.3).  The first item that names it
    decides, else `*`."""
    if not wanted:
        return True
    for item in wanted:
        if item in (name, f"+{name}"):
            return True
        if item == f"-{name}":
            return False
    return "*" in wanted


def controllers_problem(wanted: Sequence[str]) -> str | None:
    """Why a --controllers list is refused."""
    seen: set[str] = set()
    for item in wanted:
        name = item.removeprefix("+").removeprefix("-")
        if name in seen and name != "*":
            return f"controllers option {name} cannot have both '-' and '+' prefixes"
        seen.add(name)
    return None


def scheduler_configs_problem(texts: Sequence[str]) -> str | None:
    """Why --scheduler-configs are refused."""
    try:
        of_flags(texts, 1.0, True)
    except ValueError as error:
        return str(error)
    return None


FLAGS = (
    *connection_flags(0, 0),
    *health_flags(),
    *metrics_flags(":8081"),
    *leader_flags("vc-controller-manager"),
    *gate_flags(),
    Flag("scheduler-name", ONCE_EACH, ["volcano"], "scheduler whose plain pods get PodGroups; may be given several times"),
    Flag("controllers", COMMA_LIST, ["*", "-sharding-controller"], "controllers to run, - before what not", check=controllers_problem),
    Flag("worker-threads", WHOLE, 3, "jobs worked on at one time, in eights"),
    Flag("worker-threads-for-cronjob", WHOLE, 3, "cron jobs worked on at one time, in eights"),
    Flag("worker-threads-for-podgroup", WHOLE, 5, "plain pods worked on at one time, in eights"),
    Flag("worker-threads-for-queue", WHOLE, 5, "queues, and commands, worked on at one time, in eights"),
    Flag("worker-threads-for-gc", WHOLE, 1, "expired jobs worked on at one time, in eights"),
    Flag("max-requeue-num", WHOLE, 15, "failures in a row after which a job is terminated; negative: never"),
    Flag("max-job-pods", WHOLE, MOST_PODS,
         "pods that a job may need together; one whose minimum is larger is not begun, and says so; 0: any", check=at_least(0)),
    Flag("podgroups", TEXT, NEEDED,
         "which plain pods get a PodGroup at once: needed (those with an owner, or that ask for what it says), or always (all)",
         check=one_of(NEEDED, ALWAYS)),
    Flag("inherit-owner-annotations", YES_NO, True, "let PodGroups of plain pods inherit their owners' annotations"),
    Flag("scheduler-configs", ONCE_EACH, list(DEFAULT_FLAGS),
         "deprecated; schedulers among which nodes are shared out where no ConfigMap says so, each as "
         "name:type:minCPU:maxCPU:preferWarmup:minNodes:maxNodes",
         check=scheduler_configs_problem),
    Flag("shard-sync-period", SECONDS, 60.0, "period of the sharding controller"),
    Flag("enable-node-event-trigger", YES_NO, True, "let node events start the sharding controller"),
    Flag("sharding-configmap", TEXT, "volcano-sharding-configmap", "configuration of the sharding controller"),
    Flag("sharding-configmap-namespace", TEXT, "volcano-system", "namespace of that ConfigMap"),
)  # fmt: skip


def controllers_of(client: Client, recorder: Recorder, options: Options) -> list[Controller]:
    """The controllers that the options ask for, over one set of caches."""
    caches = Caches(client)
    retries = max(0, options.max_requeue_num)
    made: list[Controller] = []
    jobs: JobController | None = None
    queues: QueueController | None = None

    def add(controller: Controller, threads: int) -> None:
        controller.workers = controller.workers or max(1, threads) * PER_THREAD
        made.append(controller)

    if enabled("job-controller", options.controllers) and gate(options, "VolcanoJobSupport"):
        jobs = JobController(
            client, caches, recorder, most_retries=retries, most_pods=options.max_job_pods
        )
        add(jobs, options.worker_threads)
        add(InqueueListener(client, home_namespace(options), jobs.let_in), 1)
    if enabled("queue-controller", options.controllers):
        queues = QueueController(client, caches, recorder, most_retries=retries)
        add(queues, options.worker_threads_for_queue)
    if (jobs or queues) and gate(options, "QueueCommandSync"):
        commands = CommandController(client, caches, recorder, jobs=jobs, queues=queues)
        add(commands, options.worker_threads_for_queue)
    if enabled("pg-controller", options.controllers):
        groups = PodGroupController(
            client,
            caches,
            options.scheduler_name,
            inherit=options.inherit_owner_annotations,
            always=options.podgroups == ALWAYS,
            recorder=recorder,
        )
        add(groups, options.worker_threads_for_podgroup)
        if gate(options, "WorkLoadSupport"):
            for kind in (apps.REPLICA_SET, apps.STATEFUL_SET):
                add(IdleWorkloads(client, caches, kind), 1)
    if enabled("cronjob-controller", options.controllers):
        cron = CronJobController(
            client, caches, recorder, stamped=gate(options, "CronVolcanoJobSupport")
        )
        add(cron, options.worker_threads_for_cronjob)
    if enabled("jobflow-controller", options.controllers):
        add(JobFlowController(client, caches, recorder, most_retries=retries), 1)
    if enabled("jobtemplate-controller", options.controllers):
        add(JobTemplateController(client, caches, most_retries=retries), 1)
    if enabled("hyperNode-controller", options.controllers):
        hyper_nodes, nodes = Cache(client, topology.HYPER_NODE), Cache(client, NODE)
        add(HyperNodeController(client, hyper_nodes, nodes), 1)
        add(DiscoveryController(client, hyper_nodes, nodes), 1)
    if enabled("colocation-config-controller", options.controllers):
        add(ColocationController(client), 1)
    if enabled("sharding-controller", options.controllers):
        add(
            ShardingController(
                client,
                flags=options.scheduler_configs,
                period=options.shard_sync_period,
                node_events=options.enable_node_event_trigger,
                config_map=options.sharding_configmap,
                namespace=options.sharding_configmap_namespace,
            ),
            1,
        )
    if enabled("gc-controller", options.controllers):
        add(GarbageCollector(client, caches), options.worker_threads_for_gc)
    return made


async def work(daemon: Daemon) -> None:
    """Run the controllers until the process is told to stop."""
    recorder = Recorder(daemon.client, COMPONENT)
    controllers = controllers_of(daemon.client, recorder, daemon.options)
    if not controllers:
        raise DaemonError("--controllers leaves nothing to run")
    log.info("controllers: %s", ", ".join(controller.name for controller in controllers))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run(controllers))
            for controller in controllers:
                for cache in controller.caches:
                    await cache.synced()
            notify.ready()
    finally:
        await recorder.close()


def main(argv: list[str]) -> int:
    """`hekla controllers`."""
    return run_daemon("controllers", FLAGS, argv, work, pool=POOL)
