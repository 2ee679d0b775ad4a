"""`hekla agent-scheduler`: schedules single pods that cannot wait for a queue.

It runs the engine and the loop of the batch scheduler without queues, groups and gangs: each pod of
its scheduler name is a job of its own.  It shares the nodes with another scheduler by NodeShards.
Upstream runs several workers that bind from their own snapshots and check for conflicts before each
bind; one loop with one view has no conflicts.  Reference: scheduler-core 7.
"""

from __future__ import annotations

from dataclasses import replace

from hekla.engine.framework.policy import Policy
from hekla.engine.model.shards import MODES, NONE
from hekla.engine.model.state import State
from hekla.engine.policies import read_policy
from hekla.kube import notify
from hekla.kube.daemon import (
    Daemon,
    DaemonError,
    connection_flags,
    gate_flags,
    health_flags,
    home_namespace,
    leader_flags,
    metrics_flags,
)
from hekla.kube.daemon import main as run_daemon
from hekla.kube.events import Recorder
from hekla.kube.flags import TEXT, WHOLE, YES_NO, Flag, one_of
from hekla.scheduler.daemon import OF_BOTH, POOL, Scheduler
from hekla.scheduler.informers import NodeSelector
from hekla.scheduler.metrics import PREFIX, Durations
from hekla.scheduler.policy_file import PolicyFile, PolicyFileError

NAME = "agent-scheduler"
POLICY = {
    "actions": "allocate, backfill",
    "tiers": [{"plugins": [{"name": "predicates"}, {"name": "nodeorder"}]}],
}
"""Upstream's `allocate` also places pods that request nothing; here `backfill` does that."""


def with_backfill(policy: Policy) -> Policy:
    """Add `backfill` to a policy that has `allocate`, because upstream's means all pods."""
    if "backfill" in policy.actions:
        return policy
    return replace(policy, actions=(*policy.actions, "backfill"))


def workers(count: object) -> str | None:
    return (
        None
        if isinstance(count, int) and count > 0
        else "scheduler-worker-count must be greater than 0"
    )


FLAGS = (
    *connection_flags(0, 0),
    *health_flags(),
    *metrics_flags(":8080"),
    *leader_flags(NAME),
    *gate_flags(),
    Flag("scheduler-name", TEXT, NAME, "the schedulerName of the pods that are scheduled here"),
    Flag("scheduler-conf", TEXT, "", "the policy file"),
    Flag(
        "scheduler-worker-count",
        WHOLE,
        1,
        "accepted for compatibility; one loop places all pods",
        check=workers,
    ),
    Flag(
        "scheduler-sharding-mode",
        TEXT,
        NONE,
        "what NodeShards mean: none, hard or soft",
        check=one_of(*MODES),
    ),
    Flag("scheduler-sharding-name", TEXT, NAME, "the NodeShard of this scheduler"),
    Flag("cache-dumper", YES_NO, True, "accepted for compatibility"),
    *OF_BOTH,
)

PERIOD = 1.0
_BOUNDS = [5.0 * 2**step for step in range(15)]
CYCLE = Durations(
    PREFIX + "worker_scheduling_cycle_duration_milliseconds", "One cycle", buckets=_BOUNDS
)
SNAPSHOT = Durations(
    PREFIX + "update_snapshot_duration_milliseconds", "The opening of a cycle", buckets=_BOUNDS
)


def state_for(name: str, mode: str = NONE, shard: str = NAME) -> State:
    """A state in which each pod of that scheduler name is a job, in a queue that is always open."""
    state = State(
        scheduler_names=[],
        bare_pod_schedulers=[name],
        default_queue=name,
        shard_mode=mode,
        shard_name=shard,
    )
    state.upsert_queue(
        {"metadata": {"name": name}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )
    return state


async def work(daemon: Daemon) -> None:
    """The work of `hekla agent-scheduler` once it is the leader."""
    options = daemon.options
    name = options.scheduler_name
    try:
        policy = PolicyFile(
            options.scheduler_conf,
            fall_back=not options.disable_default_scheduler_config,
            default=read_policy(POLICY),
            adapt=with_backfill,
        )
    except PolicyFileError as error:
        raise DaemonError(str(error)) from error
    state = state_for(name, options.scheduler_sharding_mode, options.scheduler_sharding_name)
    recorder = Recorder(daemon.client, name)
    scheduler = Scheduler(
        daemon.client,
        state,
        policy,
        recorder,
        name,
        PERIOD,
        batch=False,
        selector=NodeSelector.parse(options.node_selector),
        stuck_after=options.stuck_after,
        namespace=home_namespace(options),
    )
    scheduler.worker, scheduler.stages.opening = CYCLE, SNAPSHOT
    try:
        await scheduler.informers.start()
        notify.ready()
        await scheduler.run()
    finally:
        await recorder.close()


def main(argv: list[str]) -> int:
    """`hekla agent-scheduler`."""
    return run_daemon(NAME, FLAGS, argv, work, pool=POOL)
