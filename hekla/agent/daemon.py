"""`hekla agent`: online and offline pods side by side on one node.

Flags and defaults are the original's (reference: agent 2); --kubeconfig and the like, with which it
runs outside of a cluster, --cgroup-driver, --cgroup-root, --state-dir and the flags from
--sampling-interval to --res-reserved are ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace
from pathlib import Path

from hekla.agent import cgroups, doctor, features
from hekla.agent.agent import Agent, Settings
from hekla.agent.condition import Condition
from hekla.agent.configuration import ConfigurationError, Document, read
from hekla.agent.machine import Machine, machine
from hekla.agent.metrics import Metrics
from hekla.agent.network.part import NetworkQos
from hekla.agent.network.state import StateFiles
from hekla.agent.node_probes import INTERVAL, NodeProbes, node_probes
from hekla.agent.node_resources import CHECKPOINT
from hekla.agent.numatopology import DEVICES, Files, TopologyReporter, reserved_problem
from hekla.agent.originals import Originals
from hekla.agent.reload import DEFAULT_DOCUMENT, Reloader, StartError
from hekla.agent.usage import Sources, UsageCollector
from hekla.agent.watermarks import Kind
from hekla.api import names
from hekla.kube import notify
from hekla.kube.daemon import Daemon, DaemonError, connection_flags
from hekla.kube.daemon import main as run_daemon
from hekla.kube.events import Recorder
from hekla.kube.flags import (
    NUMBER,
    SECONDS,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Flag,
    FlagError,
    HelpWanted,
    Options,
    at_least,
    between,
    one_of,
    parse,
)

log = logging.getLogger(__name__)

COMPONENT = "volcano-agent"
DEFAULT_NAMESPACE = "volcano-system"
POLICIES = ("extend",)

METRICS = Metrics()

FLAGS = (
    *connection_flags(0, 0),
    Flag("supported-features", TEXTS, list(features.DEFAULT), "what this process may use: names, -name to leave one out, * for all",
         check=features.problem),
    Flag("healthz-address", TEXT, "", "address of /healthz and /metrics; empty for all of this machine's"),
    Flag("healthz-port", WHOLE, 3300, "port of /healthz and /metrics", check=between(0, 65535)),
    Flag("kube-cgroup-root", TEXT, "", "the kubelet's option cgroup-root"),
    Flag("kube-node-name", TEXT, os.environ.get("KUBE_NODE_NAME", ""), "the node that this is (else KUBE_NODE_NAME)"),
    Flag("kube-pod-name", TEXT, os.environ.get("KUBE_POD_NAME", ""), "the pod that this is, for events about it (else KUBE_POD_NAME)"),
    Flag("kube-pod-namespace", TEXT, os.environ.get("KUBE_POD_NAMESPACE") or DEFAULT_NAMESPACE,
         "namespace of that pod and of the ConfigMap (else KUBE_POD_NAMESPACE)"),
    Flag("oversubscription-policy", TEXT, POLICIES[0], "how idle capacity is offered", check=one_of(*POLICIES)),
    Flag("oversubscription-ratio", WHOLE, 60, "percent of idle capacity that is offered",
         check=lambda value: None if value > 0 else "over subscription ratio must be greater than 0"),
    Flag("include-system-usage", YES_NO, False, "count what the node uses outside of pods too"),
    Flag("extend-resource-cpu-name", TEXT, "", f"name of the cpu that is offered (default {names.BATCH_CPU})"),
    Flag("extend-resource-memory-name", TEXT, "", f"name of the memory that is offered (default {names.BATCH_MEMORY})"),
    Flag("sampling-interval", SECONDS, INTERVAL, "between two looks at what is used; six in a row above a watermark evict",
         check=at_least(0.05)),
    Flag("evict-at-cpu-pressure", NUMBER, 0.0, "percent of the time for which online pods may wait for cpu; 0: does not count",
         check=between(0, 100)),
    Flag("evict-at-memory-pressure", NUMBER, 0.0, "the same for memory", check=between(0, 100)),
    Flag("numatopology-check-period", SECONDS, 0.0, "between two reports of the NUMA topology; 0: it is not reported",
         check=at_least(0)),
    Flag("kubelet-conf", TEXT, "", "the kubelet's configuration, for that report (default config.yaml below KUBELET_ROOT_DIR)"),
    Flag("device-path", TEXT, str(DEVICES), "directory of the kernel's nodes and processors, for that report"),
    Flag("res-reserved", TEXT, "", "what the kubelet reserves, as in cpu=200m (else as its configuration says)",
         check=reserved_problem),
    Flag("default-config", TEXT, "", "a file with the document that the ConfigMap is made with where there is none"),
    Flag("idle-best-effort", TEXT, "auto",
         "whether the directory of best-effort pods is idle while only offline pods are in it: yes, no, or auto: unless a kubelet "
         "writes its share itself, which the kernel then refuses, as with the cgroupfs driver", check=one_of("auto", "yes", "no")),
    Flag("cgroup-driver", TEXT, "", "systemd or cgroupfs (else CGROUP_DRIVER, else as the kubelet has it)",
         check=lambda value: one_of(*cgroups.Driver)(value) if value else None),
    Flag("cgroup-root", TEXT, "", "where cgroups are mounted (default cgroup below SYS_FS_PATH)"),
    Flag("state-dir", TEXT, "/run/hekla-agent", "directory for what has to be known after a kill"),
)  # fmt: skip


def settings_of(options: Options, driver: cgroups.Driver) -> Settings:
    return Settings(
        options.kube_node_name,
        features.supported(options.supported_features),
        options.extend_resource_cpu_name or names.BATCH_CPU,
        options.extend_resource_memory_name or names.BATCH_MEMORY,
        options.oversubscription_policy,
        options.oversubscription_ratio,
        options.include_system_usage,
        {"yes": True, "no": False}.get(options.idle_best_effort, driver is cgroups.Driver.SYSTEMD),
    )


def machine_of(options: Options) -> Machine:
    """The machine by the environment, and by the flags that go before it."""
    here = machine()
    return replace(
        here,
        cgroup=Path(options.cgroup_root) if options.cgroup_root else here.cgroup,
        cgroup_driver=options.cgroup_driver or here.cgroup_driver,
    )


def assemble(daemon: Daemon, recorder: Recorder) -> Agent:
    """The agent with the part that shapes traffic; what measures the node adds those that need it."""
    options = daemon.options
    here = machine_of(options)
    there = cgroups.find(here, options.kube_cgroup_root)
    agent = Agent(
        daemon.client,
        recorder,
        METRICS,
        here,
        there,
        settings_of(options, there.driver),
        Originals(Path(options.state_dir) / "originals.json"),
    )
    agent.parts.append(NetworkQos(agent, StateFiles(Path(options.state_dir))))
    return agent


def probes_of(agent: Agent, options: Options) -> NodeProbes:
    """What measures the node, lends, evicts and throttles."""
    sources = Sources.of(agent.cgroups, agent.machine)
    limits = {
        Kind.CPU: options.evict_at_cpu_pressure,
        Kind.MEMORY: options.evict_at_memory_pressure,
    }
    return node_probes(agent, UsageCollector(sources, agent.metrics.left_out), limits)


def topology_of(agent: Agent, options: Options) -> TopologyReporter:
    root = agent.machine.kubelet_root
    files = Files(
        Path(options.device_path),
        Path(options.kubelet_conf) if options.kubelet_conf else root / "config.yaml",
        root / CHECKPOINT,
    )
    return TopologyReporter(
        agent.client,
        options.kube_node_name,
        files,
        options.res_reserved,
        uid=lambda: agent.node.metadata.uid if agent.node is not None else "",
    )


def prepare(daemon: Daemon) -> None:
    options = daemon.options
    daemon.health.registry = METRICS.registry
    if not options.kube_node_name:
        raise DaemonError("which node is this?  Say --kube-node-name=NAME, or set KUBE_NODE_NAME")
    for flag in FLAGS:
        log.info("--%s=%s", flag.name, flag.type.show(getattr(options, flag.attribute)))


async def listen(daemon: Daemon) -> None:
    options = daemon.options
    address = options.healthz_address
    host = f"[{address}]" if ":" in address else address
    try:
        await daemon.health.listen(f"{host}:{options.healthz_port}", metrics=True)
    except OSError as error:
        raise DaemonError(
            f"--healthz-port {options.healthz_port}: "
            f"{os.strerror(error.errno) if error.errno else error}"
        ) from None


async def work(daemon: Daemon) -> None:
    """Run the agent until the process is told to stop."""
    options = daemon.options
    recorder = Recorder(daemon.client, COMPONENT, host=options.kube_node_name)
    agent = assemble(daemon, recorder)
    condition = Condition(agent, Path(options.state_dir))
    probes = probes_of(agent, options)
    first = first_document(options.default_config)
    reloader = Reloader(agent, options.kube_pod_namespace, options.kube_pod_name, first)
    try:
        await reloader.prepare()
        await agent.start()
        await condition.look()
        notify.ready()
        async with asyncio.TaskGroup() as group:
            group.create_task(reloader.run(), name="configuration")
            group.create_task(agent.run(), name="agent")
            group.create_task(condition.run(), name="condition")
            group.create_task(probes.run(options.sampling_interval), name="probes")
            if options.numatopology_check_period > 0:
                reporter = topology_of(agent, options)
                group.create_task(
                    reporter.run(options.numatopology_check_period), name="numatopology"
                )
    except StartError as error:
        raise DaemonError(str(error)) from None
    finally:
        await recorder.close()


def first_document(path: str) -> Document:
    """What the ConfigMap is made with.  Raises DaemonError."""
    if not path:
        return DEFAULT_DOCUMENT
    try:
        document, unknown = read(Path(path).read_text())
    except (OSError, ConfigurationError) as error:
        raise DaemonError(f"--default-config {path}: {error}") from None
    for name in unknown:
        log.warning("--default-config %s: %s", path, name)
    return document


def diagnose(argv: list[str]) -> int:
    """`hekla agent doctor`: with the agent's flags, and without an API server."""
    try:
        options = parse(FLAGS, argv, program="hekla agent doctor")
    except HelpWanted as text:
        print(text)
        return 0
    except FlagError as error:
        print(f"hekla agent doctor: {error}")
        return 1
    here = machine_of(options)
    there = cgroups.find(here, options.kube_cgroup_root)
    found = doctor.survey(here, there, Path(options.state_dir), doctor.traffic())
    print(doctor.printed(found))
    return 0


def main(argv: list[str]) -> int:
    """`hekla agent`."""
    if argv[:1] == ["doctor"]:
        return diagnose(argv[1:])
    return run_daemon("agent", FLAGS, argv, work, prepare=prepare, listen=listen)
