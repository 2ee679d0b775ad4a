"""`hekla kube-controllers`: the built-in controllers of Kubernetes that a cluster's users take for
granted, in one process.

For the local cluster only: a real cluster has its own kube-controller-manager.  All controllers
share one cache of pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hekla.api.kinds import read_as
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.kubernetes.apps import DEPLOYMENT, REPLICA_SET
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from hekla.api.kubernetes.core import (
    CONFIG_MAP,
    ENDPOINTS,
    NAMESPACE,
    REPLICATION_CONTROLLER,
    SERVICE,
    SERVICE_ACCOUNT,
)
from hekla.api.kubernetes.discovery import ENDPOINT_SLICE
from hekla.api.kubernetes.policy import POD_DISRUPTION_BUDGET
from hekla.api.kubernetes.resource import RESOURCE_CLAIM, RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE
from hekla.api.kubernetes.storage import STORAGE_CLASS
from hekla.api.names import SERVICE_ACCOUNT_TOKEN
from hekla.api.trees import Json
from hekla.kube import notify
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller, run
from hekla.kube.daemon import Daemon, connection_flags
from hekla.kube.daemon import main as run_daemon
from hekla.kube.events import Recorder
from hekla.kube.flags import NUMBER, SECONDS, TEXT, Flag, between
from hekla.local.controller_manager.autoscaling.controller import (
    AUTOSCALER,
    AutoscalingController,
)
from hekla.local.controller_manager.autoscaling.controller import Settings as AutoscalingSettings
from hekla.local.controller_manager.autoscaling.replicas import Patience
from hekla.local.controller_manager.budgets import BudgetController
from hekla.local.controller_manager.garbage import GarbageCollector, Owned
from hekla.local.controller_manager.namespaces import (
    ROOT_CERTIFICATE,
    AccountController,
    NamespaceController,
)
from hekla.local.controller_manager.nodes.devicetaints import DeviceTaintController
from hekla.local.controller_manager.nodes.evictions import TaintEvictionController
from hekla.local.controller_manager.nodes.lifecycle import GRACE, NodeLifecycleController
from hekla.local.controller_manager.nodes.nodes import NODES
from hekla.local.controller_manager.nodes.podgc import PodCollector
from hekla.local.controller_manager.pods import HOLDER, PODS, Pod, holder
from hekla.local.controller_manager.roles import CLUSTER_ROLES, AggregationController
from hekla.local.controller_manager.services.endpoints import (
    SELECTED,
    EndpointsController,
    selected,
)
from hekla.local.controller_manager.services.mirroring import MirroringController
from hekla.local.controller_manager.services.slices import MANAGED_BY
from hekla.local.controller_manager.signing import (
    CERTIFICATE_REQUESTS,
    Authority,
    SigningController,
)
from hekla.local.controller_manager.tokens import TOKEN_SECRETS, TokenSecretController, account_of
from hekla.local.controller_manager.volumes.claims import reserved_for
from hekla.local.controller_manager.volumes.podclaims import (
    EphemeralVolumeController,
    ResourceClaimController,
    owners,
)
from hekla.local.controller_manager.volumes.protection import ProtectionController
from hekla.local.controller_manager.volumes.provisioner import PROVISIONER, Provisioner
from hekla.local.controller_manager.volumes.volumes import VolumeController
from hekla.local.controller_manager.workloads.deployments import DeploymentController
from hekla.local.controller_manager.workloads.replicas import ReplicasController
from hekla.local.controller_manager.workloads.workloads import workload_controllers


def in_namespace(obj: Json) -> list[str]:
    return [obj["metadata"]["namespace"]]


def node_of(pod: Pod) -> tuple[str, ...]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


AUTOSCALING = AutoscalingSettings()


class Manager:
    """The controllers and the caches that they share."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        certificate: str,
        storage: Path | None,
        grace: float,
        authority: Authority | None,
        autoscaling: AutoscalingSettings = AUTOSCALING,
    ) -> None:
        by_namespace = {"namespace": in_namespace}
        pods: Cache[Pod] = Cache(
            client,
            PODS,
            indexes={
                "namespace": lambda pod: [pod.metadata.namespace],
                "node": node_of,
                "claim": lambda pod: pod.claims,
                HOLDER: holder,
            },
        )
        namespaces = Cache(client, NAMESPACE.untyped)
        services = Cache(client, SERVICE.untyped, indexes={SELECTED: selected})
        replica_sets = Cache(client, REPLICA_SET.untyped, indexes=by_namespace)
        replication = Cache(client, REPLICATION_CONTROLLER.untyped, indexes=by_namespace)
        deployments = Cache(client, DEPLOYMENT.untyped, indexes=by_namespace)
        accounts = Cache(client, read_as(SERVICE_ACCOUNT, Owned))
        roots = Cache(
            client, read_as(CONFIG_MAP, Owned), fields=f"metadata.name={ROOT_CERTIFICATE}"
        )
        self.definitions = Cache(client, read_as(CUSTOM_RESOURCE_DEFINITION, Owned))
        self.pods = pods
        self.collector = GarbageCollector(client, recorder)
        volumes = Cache(
            client,
            PERSISTENT_VOLUME.untyped,
            indexes={"claim": lambda volume: [reserved_for(volume)]},
        )
        claims = Cache(
            client,
            PERSISTENT_VOLUME_CLAIM.untyped,
            indexes={"volume": lambda claim: [claim["spec"].get("volumeName", "")]},
        )
        classes = Cache(client, STORAGE_CLASS.untyped)
        secrets = Cache(
            client,
            TOKEN_SECRETS,
            fields=f"type={SERVICE_ACCOUNT_TOKEN}",
            indexes={"account": account_of},
        )
        nodes = Cache(client, NODES)
        endpoints = Cache(client, ENDPOINTS.untyped)
        pieces = Cache(client, read_as(ENDPOINT_SLICE, Owned), labels=MANAGED_BY)
        budgets = Cache(client, POD_DISRUPTION_BUDGET.untyped, indexes=by_namespace)
        device_claims = Cache(client, RESOURCE_CLAIM.untyped, indexes={"owner": owners})
        self.controllers: list[Controller] = [
            AccountController(client, namespaces, accounts, roots, certificate),
            TokenSecretController(client, secrets, accounts),
            NamespaceController(client, namespaces),
            EndpointsController(client, services, pods, nodes, endpoints, pieces),
            MirroringController(client, services, endpoints, pieces),
            ReplicasController(
                "replicaset", REPLICA_SET.untyped, client, replica_sets, pods, recorder
            ),
            ReplicasController(
                "replicationcontroller",
                REPLICATION_CONTROLLER.untyped,
                client,
                replication,
                pods,
                recorder,
            ),
            DeploymentController(client, deployments, replica_sets, pods, recorder),
            AggregationController(client, Cache(client, CLUSTER_ROLES)),
            SigningController(client, Cache(client, CERTIFICATE_REQUESTS), authority),
            NodeLifecycleController(client, nodes, pods, recorder, grace),
            TaintEvictionController(client, nodes, pods, recorder),
            PodCollector(client, nodes, pods),
            BudgetController(
                client,
                budgets,
                pods,
                [replica_sets, deployments, replication],
                self.collector.plural_of,
                recorder,
            ),
            EphemeralVolumeController(client, pods, claims, recorder),
            ResourceClaimController(
                client,
                pods,
                device_claims,
                Cache(client, RESOURCE_CLAIM_TEMPLATE.untyped),
                recorder,
            ),
            VolumeController(
                client, volumes, claims, classes, recorder, PROVISIONER if storage else ""
            ),
            ProtectionController(client, volumes, claims, pods),
            *workload_controllers(client, pods, claims, recorder),
            AutoscalingController(
                client,
                Cache(client, AUTOSCALER),
                self.collector.plural_of,
                recorder,
                autoscaling,
            ),
            self.collector,
        ]
        slices = Cache(client, RESOURCE_SLICE.untyped)
        self.controllers.append(
            DeviceTaintController(client, slices, device_claims, pods, recorder)
        )
        if storage is not None:
            self.controllers.append(
                Provisioner(client, volumes, claims, classes, recorder, storage)
            )

    async def run(self, ready: Callable[[], None]) -> None:
        """Runs everything until cancelled; calls `ready` once all controllers see the cluster."""
        changed = asyncio.Event()
        self.definitions.on_change(lambda old, new: changed.set())
        await self.definitions.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(run(self.controllers))
            group.create_task(self.collector.follow_kinds({"pods": self.pods}, changed))
            for controller in self.controllers:
                for cache in controller.caches:
                    await cache.synced()
            ready()


FLAGS = (
    *connection_flags(0),
    Flag("root-ca-file", TEXT, "", "certificate of the authority that every namespace is given"),
    Flag("node-monitor-grace-period", SECONDS, GRACE, "how long a node may be silent before it counts as lost"),
    Flag("cluster-signing-cert-file", TEXT, "", "certificate of the authority that signs approved requests; empty to sign none"),
    Flag("cluster-signing-key-file", TEXT, "", "its key"),
    Flag("storage-dir", TEXT, "", 'directory below which volumes of the class "standard" are made; empty for no such class'),
    Flag("horizontal-pod-autoscaler-sync-period", SECONDS, 15.0, "how often autoscalers look at their targets", check=between(0.1, 3600)),
    Flag("horizontal-pod-autoscaler-tolerance", NUMBER, 0.1, "how far use may be from its target without consequence", check=between(0, 1)),
    Flag("horizontal-pod-autoscaler-downscale-stabilization", SECONDS, 300.0, "for so long the highest number that was asked for stays"),
    Flag("horizontal-pod-autoscaler-cpu-initialization-period", SECONDS, 300.0, "age of pods whose cpu counts only once they are ready"),
    Flag("horizontal-pod-autoscaler-initial-readiness-delay", SECONDS, 30.0, "age at which a pod may be unready at first"),
)  # fmt: skip


def autoscaling_of(options: Any) -> AutoscalingSettings:
    return AutoscalingSettings(
        options.horizontal_pod_autoscaler_sync_period,
        options.horizontal_pod_autoscaler_tolerance,
        options.horizontal_pod_autoscaler_downscale_stabilization,
        Patience(
            options.horizontal_pod_autoscaler_cpu_initialization_period,
            options.horizontal_pod_autoscaler_initial_readiness_delay,
        ),
    )


async def work(daemon: Daemon) -> None:
    """Runs the controllers until the process is told to stop."""
    certificate = (
        Path(daemon.options.root_ca_file).read_text() if daemon.options.root_ca_file else ""
    )
    recorder = Recorder(daemon.client, "kube-controllers")
    try:
        storage = Path(daemon.options.storage_dir) if daemon.options.storage_dir else None
        files = daemon.options.cluster_signing_cert_file, daemon.options.cluster_signing_key_file
        authority = Authority(Path(files[0]), Path(files[1])) if all(files) else None
        grace = daemon.options.node_monitor_grace_period
        await Manager(
            daemon.client,
            recorder,
            certificate,
            storage,
            grace,
            authority,
            autoscaling_of(daemon.options),
        ).run(notify.ready)
    finally:
        await recorder.close()


def main(argv: list[str]) -> int:
    """`hekla kube-controllers`."""
    return run_daemon("kube-controllers", FLAGS, argv, work)
