"""The controllers of workloads.

They share the caches that are handed in; kinds that only they read are cached here.
"""

from __future__ import annotations

from hekla.api.kubernetes.apps import CONTROLLER_REVISION, DAEMON_SET, STATEFUL_SET
from hekla.api.kubernetes.batch import CRON_JOB, JOB
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.events import Recorder
from hekla.local.controller_manager.ownership import manager_uid
from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.workloads.cronjobs import CronJobController
from hekla.local.controller_manager.workloads.daemonset.controller import DaemonSetController
from hekla.local.controller_manager.workloads.daemonset.placement import NODES
from hekla.local.controller_manager.workloads.job.controller import JobController
from hekla.local.controller_manager.workloads.statefulset.controller import StatefulSetController


def in_namespace(obj: Json) -> list[str]:
    return [obj["metadata"]["namespace"]]


def workload_controllers(
    client: Client, pods: Cache[Pod], claims: Cache[Json], recorder: Recorder
) -> list[Controller]:
    """StatefulSets, DaemonSets, Jobs and CronJobs."""
    by_namespace = {"namespace": in_namespace}
    revisions = Cache(client, CONTROLLER_REVISION.untyped, indexes=by_namespace)
    stateful_sets = Cache(client, STATEFUL_SET.untyped, indexes=by_namespace)
    daemon_sets = Cache(client, DAEMON_SET.untyped, indexes=by_namespace)
    jobs = Cache(client, JOB.untyped, indexes={**by_namespace, "manager": manager_uid})
    return [
        JobController(client, jobs, pods, recorder),
        CronJobController(client, Cache(client, CRON_JOB.untyped), jobs, recorder),
        DaemonSetController(client, daemon_sets, pods, revisions, Cache(client, NODES), recorder),
        StatefulSetController(client, stateful_sets, pods, revisions, claims, recorder),
    ]
