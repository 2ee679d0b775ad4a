"""`hekla up --colocation`: the node lends what is idle, offline work runs on it, and everything ends
with the cluster."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.agent import daemon
from hekla.agent.configuration import merge, validate
from hekla.agent.features import SECTIONS, Feature, wanted
from hekla.api.kubernetes import core
from hekla.api.names import BATCH_CPU, BATCH_MEMORY, COLOCATION, OVERSUBSCRIPTION
from hekla.api.text import quantity
from hekla.cli.up import with_flags
from hekla.kube.daemon import DaemonError
from hekla.local.cluster.cluster import FIRST_COLOCATION, Cluster, Settings
from hekla.local.cluster.supervisor import read_status
from hekla.local.kubelet.nodes import machine
from hekla.local.kubelet.runtime import cgroups
from hekla.local.machine.files import ClusterError
from tests.local.home import Home, ask, home, until

NODE, POD = core.NODE.untyped, core.POD.untyped


def test_the_agent_is_told_where_its_kubelet_s_groups_are(tmp_path: Path) -> None:
    settings = Settings(colocation=True, metrics_port=9000)
    cluster = Cluster(tmp_path)
    programs = {program.name: program for program in cluster.programs(settings)}
    agent = programs["agent"]
    base, _ = cgroups.find()
    root = base.cgroup_root(cluster.pods) if base is not None else ""
    assert f"--kube-cgroup-root={root}" in agent.arguments
    assert "--healthz-port=9002" in agent.arguments
    assert "--idle-best-effort=yes" in agent.arguments
    assert dict(agent.environment) == {
        "KUBELET_ROOT_DIR": str(cluster.pods),
        "POD_NETWORK": str(cluster.pods / "network.json"),
    }
    assert "--cgroups-per-qos" in programs["kubelet"].arguments
    without = {program.name: program for program in cluster.programs(Settings())}
    assert "agent" not in without and "--cgroups-per-qos" not in without["kubelet"].arguments


def test_one_machine_is_one_node_there() -> None:
    with pytest.raises(ClusterError, match=r"--colocation with --nodes 2.*use --nodes 1"):
        with_flags(Settings(nodes=2), {"colocation": True})
    assert with_flags(Settings(nodes=2, colocation=True), {"nodes": 1}).colocation
    assert not with_flags(Settings(colocation=True), {"colocation": False, "nodes": 2}).colocation


def test_what_is_on_there_is_a_configuration_without_faults(tmp_path: Path) -> None:
    document = daemon.first_document(str(FIRST_COLOCATION))
    config = merge(document, {OVERSUBSCRIPTION: "true"})
    validate(config)
    on = {one for one in Feature if one in SECTIONS and wanted(one, config)}
    assert on == {*SECTIONS} - {Feature.NETWORK_QOS, Feature.CPU_THROTTLE}
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"globalConfig": {"cpuQosConfig": {"enable": "yes"}}}')
    with pytest.raises(DaemonError, match=r"--default-config .*wrong.json: .*enable"):
        daemon.first_document(str(wrong))


@pytest.fixture(scope="module")
def own() -> Iterator[Home]:
    if why := cgroups.find()[1]:
        pytest.skip(why)
    with home() as made:
        printed = made.good("up", "--colocation")
        assert "colocation agent         ok" in printed and "colocation               ok" in printed
        yield made


def worker(name: str, batch: str) -> dict[str, Any]:
    amounts = {BATCH_CPU: batch, BATCH_MEMORY: "64Mi"}
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", "while :; do :; done"],
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"volcano.sh/qos-level": "BE"}},
        "spec": {
            "containers": [container],
            "schedulerName": "volcano",
            "terminationGracePeriodSeconds": 0,
        },
    }


def lent(own: Home) -> int:
    """Millicores."""
    return quantity.whole(node(own)["status"]["allocatable"].get(BATCH_CPU, 0))


def node(own: Home) -> dict[str, Any]:
    found: dict[str, Any] = ask(own, lambda client: client.get(NODE, machine.name()))
    return found


@pytest.mark.slow(seconds=20)
@pytest.mark.scenario("agent", "1 2")
def test_a_day_of_offline_work(own: Home) -> None:
    """Lent, taken, limited; through kill -9 of the agent; and nothing is left after `hekla down`."""
    labels = node(own)["metadata"]["labels"]
    assert (labels[COLOCATION], labels[OVERSUBSCRIPTION]) == ("true", "true")
    until("cpu is lent", lambda: lent(own) >= 100)
    assert lent(own) <= 1000 * (os.cpu_count() or 1)

    ask(own, lambda client: client.create(POD, worker("w", "100"), "default"))
    until("the worker runs", lambda: pod(own, "w")["status"].get("phase") == "Running")
    base, _ = cgroups.find()
    assert base is not None
    cluster = Cluster(own.directory())
    place = base.tree(cluster.pods)
    found = pod(own, "w")
    name = found["status"]["containerStatuses"][0]["containerID"].removeprefix("hekla://")
    group = Path("kubepods/besteffort", f"pod{found['metadata']['uid']}", name)
    quota, share, memory, idle = (
        ("cpu.max", "cpu.weight", "memory.max", "cpu.idle")
        if base.version == 2
        else ("cpu.cfs_quota_us", "cpu.shares", "memory.limit_in_bytes", "cpu.idle")
    )
    wanted = {quota: "10000", share: "10" if base.version == 2 else "102", memory: str(64 << 20)}

    def values(where: Path) -> dict[str, str]:
        return {
            file: (place["memory" if file == memory else "cpu"] / where / file)
            .read_text()
            .split()[0]
            for file in (quota, share, memory)
        }

    until("its container is limited", lambda: values(group) == wanted)
    assert values(group.parent) | {share: ""} == wanted | {share: ""}
    until(
        "offline work is idle",
        lambda: (place["cpu"] / group.parents[1] / idle).read_text() == "1\n",
    )

    supervised = read_status(cluster)
    assert supervised is not None
    before = next(one for one in supervised.processes if one.name == "agent")
    os.kill(before.pid, signal.SIGKILL)
    until("the agent is back", lambda: agent(cluster).ready and agent(cluster).pid != before.pid)
    assert values(group) == wanted and pod(own, "w")["status"]["phase"] == "Running"
    assert (place["cpu"] / group.parents[1] / quota).read_text().split()[0] in ("-1", "max")

    own.good("down")
    assert not [tree for tree in place.values() if tree.exists()]


def pod(own: Home, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(own, lambda client: client.get(POD, name, "default"))
    return found


def agent(cluster: Cluster) -> Any:
    status = read_status(cluster)
    assert status is not None
    return next(one for one in status.processes if one.name == "agent")
