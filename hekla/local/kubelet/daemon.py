"""`hekla kubelet`: this machine as a node (or several), and fake nodes, on any API server."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.text import quantity
from hekla.kube import daemon as daemons
from hekla.kube import notify
from hekla.kube.connection.delegation import Delegation
from hekla.kube.connection.tls import TlsError
from hekla.kube.daemon import Daemon, DaemonError, connection_flags
from hekla.kube.errors import ApiError
from hekla.kube.events import Recorder
from hekla.kube.flags import TEXT, TEXTS, WHOLE, YES_NO, Flag, between
from hekla.kube.http.client import TransportError
from hekla.kube.http.server import serve
from hekla.local.kubelet.callers import Callers
from hekla.local.kubelet.endpoint import Endpoint, self_signed, server_tls
from hekla.local.kubelet.kubelet import Kubelet
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.nodes.fake_nodes import FakeNodes
from hekla.local.kubelet.nodes.fake_objects import Size
from hekla.local.kubelet.nodes.node import RegisteredNode
from hekla.local.kubelet.nodes.own_nodes import FAKE_NAME, OwnNodes, fake_names, real_names
from hekla.local.kubelet.pods import pressure
from hekla.local.kubelet.pods.images import Images, TableError
from hekla.local.kubelet.records import write_atomically
from hekla.local.kubelet.runtime import isolation, runtime
from hekla.local.machine import homes

log = logging.getLogger("kubelet")


CPU_MANAGER_STATE = "cpu_manager_state"
NO_CPU_MANAGER = b'{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'
"""What a kubelet says that leaves every processor to every pod: others on the node read it."""


def quantity_problem(text: str) -> str | None:
    """Why a text is no amount of a resource; None when it is or is empty."""
    if not text:
        return None
    try:
        quantity.milli(text)
    except quantity.QuantityError as error:
        return str(error)
    return None


def threshold_problem(text: str) -> str | None:
    """Why a text is no list of thresholds; None when it is."""
    try:
        pressure.parse(text)
    except ValueError as error:
        return str(error)
    return None


FLAGS = (
    *connection_flags(0, 0),
    Flag("root-dir", TEXT, "", "directory for pods: volumes, logs, records (default ~/.local/state/hekla/kubelet)"),
    Flag("nodes", WHOLE, 1, "how many nodes this machine is; 0 for fake nodes only", check=between(0, 250)),
    Flag("node-name", TEXT, "", "name of the node; several get -0, -1 ... behind it (default: the machine's name, or node)"),
    Flag("node-labels", TEXTS, [], "key=value labels that the nodes are registered with"),
    Flag("node-cpu", TEXT, "", "cpu of each node (default: the machine's)", check=quantity_problem),
    Flag("node-memory", TEXT, "", "memory of each node (default: the machine's)", check=quantity_problem),
    Flag("images", TEXT, "", "YAML file with rows for the table of images"),
    Flag("container-log-max-size", TEXT, "10Mi", "bytes of a container's log that go at a time when it is full", check=quantity_problem),
    Flag("container-log-max-files", WHOLE, 5, "so many of these sizes are kept", check=between(2, 1000)),
    Flag("api-server-address", TEXT, "", "host:port at which pods reach the API server (default: as the kubeconfig has it)"),
    Flag("isolation", TEXT, "auto", "auto, shared-network to leave pods in this machine's network, or none to do without any namespaces"),
    Flag("cgroups-per-qos", YES_NO, False, "control groups for every pod; without, for those with requests or limits"),
    Flag("closed-paths", TEXTS, [], "directories that no pod sees, such as that of the cluster's keys (the root-dir is one already)"),
    Flag("eviction-hard", TEXT, pressure.DEFAULT, "how little memory, disk and processes a node lets be left", check=threshold_problem),
    Flag("port", WHOLE, 0, "port of the first node's endpoint on 127.0.0.1, the others follow; 0 for any free", check=between(0, 65535)),
    Flag("tls-cert-file", TEXT, "", "certificate of the node's endpoint (default: one of its own making)"),
    Flag("tls-private-key-file", TEXT, "", "key of that certificate"),
    Flag("client-ca-file", TEXT, "", "authority of certificates of those who ask the node's endpoint; tokens are reviewed then, too"),
    Flag("fake-nodes", WHOLE, 0, "how many nodes to make up, whose pods only pretend to run", check=between(0, 100_000)),
    Flag("fake-node-name", TEXT, FAKE_NAME, "name of fake nodes; -0, -1 ... follow"),
    Flag("fake-node-cpu", TEXT, "32", "cpu of each fake node", check=quantity_problem),
    Flag("fake-node-memory", TEXT, "256Gi", "memory of each fake node", check=quantity_problem),
    Flag("fake-node-pods", WHOLE, 110, "pods that each fake node takes", check=between(1, 1_000_000)),
    Flag("fake-node-gpus", WHOLE, 0, "nvidia.com/gpu of each fake node", check=between(0, 1_000_000)),
    Flag("fake-node-labels", TEXTS, [], "key=value labels of fake nodes"),
    Flag("fake-node-taint", YES_NO, False, "taint fake nodes with kwok.x-k8s.io/node=fake:NoSchedule"),
    Flag("stop-pods-on-exit", YES_NO, False, "end all containers when the kubelet is told to stop"),
)  # fmt: skip


def labels_of(texts: list[str], flag: str) -> dict[str, str]:
    """Raises DaemonError for a text that is no key=value."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise DaemonError(f'--{flag}: "{text}" is no label; write key=value')
        found[key] = value
    return found


def root_directory(text: str) -> Path:
    """The kubelet's directory, made where it is missing.  Raises DaemonError."""
    root = Path(text) if text else Path.home() / ".local" / "state" / "hekla" / "kubelet"
    try:
        root.mkdir(parents=True, exist_ok=True)
        return root.resolve()
    except OSError as error:
        raise DaemonError(f"--root-dir: cannot make {root}: {error.strerror}") from error


async def api_address(daemon: Daemon) -> tuple[str, str]:
    """(host, port) at which pods reach the API server: stated, the kubeconfig's, or what the
    Service `kubernetes` leads to."""
    host, _, port = daemon.options.api_server_address.rpartition(":")
    if host and port:
        return host, port
    target = daemon.client.connection.target
    if getattr(target, "host", "") and getattr(target, "port", 0):
        return str(target.host), str(target.port)
    try:
        endpoints = await daemon.client.get(core.ENDPOINTS, "kubernetes", "default")
        for subset in endpoints.subsets:
            if subset.addresses and subset.ports:
                return subset.addresses[0].ip, str(subset.ports[0].port)
    except (ApiError, TransportError) as error:
        log.info("pods are not told where the API server is: %s", error)
    return "", ""


async def run(daemon: Daemon) -> None:
    options = daemon.options
    root = root_directory(options.root_dir)
    try:
        images = Images.load(options.images)
    except TableError as error:
        raise DaemonError(str(error)) from error
    recorder = Recorder(daemon.client, "kubelet", host=options.node_name or machine.name())
    fakes = FakeNodes(
        daemon.client,
        Size(
            options.fake_nodes,
            options.fake_node_name,
            options.fake_node_cpu,
            options.fake_node_memory,
            options.fake_node_pods,
            options.fake_node_gpus,
            labels_of(options.fake_node_labels, "fake-node-labels"),
            options.fake_node_taint,
        ),
    )
    kubelet: Kubelet | None = None
    servers: list[Any] = []
    chosen = real_names(options.nodes, options.node_name)
    await OwnNodes(root).remove_old(
        daemon.client, [*chosen, *fake_names(options.fake_nodes, options.fake_node_name)]
    )
    try:
        if options.nodes:
            kubelet = await make_kubelet(daemon, root, images, recorder)
            delegation = Delegation(daemon.client)
            for number, name in enumerate(chosen):
                servers.append(await listen(daemon, kubelet, delegation, root, name, number))
            ports = [server.port for server in servers]
            add_nodes(daemon, kubelet, recorder, ports, images, chosen)
            await kubelet.start()
        await fakes.start()
        notify.ready()
        log.info("ready: %d nodes, %d fake nodes", options.nodes, options.fake_nodes)
        await asyncio.Event().wait()
    finally:
        await fakes.close()
        for server in servers:
            await server.close(0.2)
        if kubelet is not None:
            if options.stop_pods_on_exit:
                await kubelet.shut_down()
            await kubelet.close()
        await recorder.close()
        if options.stop_pods_on_exit:
            runtime.stop_all(root)


async def make_kubelet(daemon: Daemon, root: Path, images: Images, recorder: Recorder) -> Kubelet:
    found = isolation.detect()
    match daemon.options.isolation:
        case "none":
            found = isolation.Isolation(
                private_addresses=found.private_addresses, findings=found.findings
            )
        case "shared-network":
            found = replace(found, network=False)
        case "auto":
            pass
        case other:
            raise DaemonError(
                f'--isolation: "{other}" is not known; write auto, shared-network or none'
            )
    for finding in found.findings:
        if not finding.available:
            log.info("no %s (%s): %s", finding.name, finding.why_not, finding.cost)
    write_atomically(root / CPU_MANAGER_STATE, NO_CPU_MANAGER)
    thresholds = pressure.parse(daemon.options.eviction_hard)
    kubelet = Kubelet(
        daemon.client,
        root,
        found,
        images,
        recorder,
        await api_address(daemon),
        thresholds,
        daemon.options.cgroups_per_qos,
    )
    kubelet.host.clock.max_size = max(
        4096, quantity.milli(daemon.options.container_log_max_size) // 1000
    )
    kubelet.host.clock.max_files = daemon.options.container_log_max_files
    closed = [Path(path) for path in daemon.options.closed_paths]
    homes.remember([root, *closed])
    kubelet.host.close_to_pods(closed)
    return kubelet


async def listen(
    daemon: Daemon, kubelet: Kubelet, delegation: Delegation, root: Path, node: str, number: int
) -> Any:
    """Opens the endpoint of a node, the `number`th of this machine.  Raises DaemonError."""
    options = daemon.options
    endpoint = Endpoint(
        root,
        kubelet.host.clock,
        partial(kubelet.find, node),
        partial(kubelet.pods_of, node),
        partial(kubelet.usage.snapshot, node),
        {
            "metrics": partial(kubelet.metrics, node),
            "metrics/probes": partial(kubelet.probes, node),
        },
        Callers(delegation, node) if options.client_ca_file else None,
    )
    port = options.port + number if options.port else 0
    certificate, key = options.tls_cert_file, options.tls_private_key_file
    try:
        if not certificate:
            certificate, key = self_signed(root)
        tls = server_tls(certificate, key, options.client_ca_file)
        return await serve(endpoint, host="127.0.0.1", port=port, ssl=tls)
    except (OSError, OverflowError, TlsError) as error:
        raise DaemonError(
            f"the endpoint of node {node} (--port {port}, --tls-cert-file {certificate}): {error}"
        ) from error


def add_nodes(
    daemon: Daemon,
    kubelet: Kubelet,
    recorder: Recorder,
    ports: list[int],
    images: Images,
    chosen: list[str],
) -> None:
    options = daemon.options
    capacity, allocatable = machine.sizes(kubelet.root, options.node_cpu, options.node_memory)
    first = labels_of(options.node_labels, "node-labels")
    table = sorted({row.image for row in images.rows if "*" not in row.image})
    without = kubelet.host.isolation.without(options.isolation)
    for name, port in zip(chosen, ports):
        kubelet.nodes[name] = RegisteredNode(
            daemon.client, recorder, name, capacity, allocatable, port, table, without, first
        )


def main(argv: list[str]) -> int:
    return daemons.main("kubelet", FLAGS, argv, run, pool=32)
