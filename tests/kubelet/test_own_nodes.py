"""Nodes that a kubelet runs no more leave when it starts again, and no others do."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.errors import Forbidden, NotFound, ServerError
from hekla.local.cluster.cluster import Cluster, Program, Settings
from hekla.local.cluster.supervisor import Child, Supervisor
from hekla.local.kubelet.nodes import own_nodes
from hekla.local.kubelet.nodes.node import ATTACHES, RegisteredNode, labels
from hekla.local.kubelet.nodes.own_nodes import OwnNodes, fake_names, real_names


class Server:
    """Has these nodes; says so many times that it cannot, or always that it is not allowed."""

    def __init__(self, *nodes: str, busy: int = 0, forbids: bool = False) -> None:
        self.nodes = set(nodes)
        self.busy = busy
        self.forbids = forbids

    async def delete(self, kind: Any, name: str) -> None:
        if self.forbids:
            raise Forbidden(403, "Forbidden", f'nodes "{name}" is forbidden')
        if self.busy:
            self.busy -= 1
            raise ServerError(500, "InternalError", "not now")
        if name not in self.nodes:
            raise NotFound(404, "NotFound", f'nodes "{name}" not found')
        self.nodes.remove(name)


@pytest.mark.parametrize("busy", [0, 3])
async def test_nodes_that_are_run_no_more_leave(
    tmp_path: Path, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_nodes, "RETRY", 0.0)
    server = Server("node-0", "node-1", "node-2", "fake-node-0", "somebody-elses", busy=busy)
    client = cast(Client, server)
    await OwnNodes(tmp_path).remove_old(client, [*real_names(3), *fake_names(1)])
    assert len(server.nodes) == 5
    await OwnNodes(tmp_path).remove_old(client, real_names(2))
    assert server.nodes == {"node-0", "node-1", "somebody-elses"}
    assert OwnNodes(tmp_path).names() == ["node-0", "node-1"]
    await OwnNodes(tmp_path).remove_old(client, real_names(1, "laptop"))
    assert server.nodes == {"somebody-elses"}


async def test_a_node_that_may_not_be_removed_is_tried_again_next_time(tmp_path: Path) -> None:
    await OwnNodes(tmp_path).remove_old(cast(Client, Server()), ["old"])
    await OwnNodes(tmp_path).remove_old(cast(Client, Server("old", forbids=True)), ["new"])
    assert OwnNodes(tmp_path).names() == ["old", "new"]
    server = Server("old", "new")
    await OwnNodes(tmp_path).remove_old(cast(Client, server), ["new"])
    assert server.nodes == {"new"}


async def test_what_a_power_cut_left_of_it_is_no_roster(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_bytes(b"\0\0\0")
    assert OwnNodes(tmp_path).names() == []


async def test_the_scheduler_waits_until_they_have_left(tmp_path: Path) -> None:
    """Else it would bind to them: they say Ready until their leases have run out."""
    cluster = Cluster(tmp_path / "one")
    cluster.make_directories()

    def waits(settings: Settings) -> list[str]:
        return [
            program.name for program in cluster.programs(settings) if program.after == "kubelet"
        ]

    await OwnNodes(cluster.pods).remove_old(
        cast(Client, Server()), [*real_names(2), *fake_names(2)]
    )
    assert waits(Settings(nodes=2, fake_nodes=2)) == waits(Settings(nodes=3, fake_nodes=2)) == []
    assert (
        waits(Settings(nodes=1, fake_nodes=2))
        == waits(Settings(nodes=2, fake_nodes=1))
        == ["scheduler"]
    )


def test_a_program_starts_once_the_one_before_it_has_been_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path / "one")
    cluster.make_directories()
    started: list[str] = []

    def start(child: Child, notify_path: Path) -> None:
        started.append(child.program.name)
        monkeypatch.setattr(child, "process", SimpleNamespace(pid=1))

    monkeypatch.setattr(Child, "start", start)
    programs = (
        Program("kubelet", ("kubelet",)),
        Program("scheduler", ("scheduler",), after="kubelet"),
    )
    supervisor = Supervisor(cluster, programs)
    kubelet, scheduler = supervisor.children
    supervisor.start_due()
    assert started == ["kubelet"]
    kubelet.ready = kubelet.once_ready = True
    supervisor.start_due()
    assert started == ["kubelet", "scheduler"]
    for child in (scheduler, kubelet):
        child.again(0.0, "killed")
        child.start_at = 0.0
    assert not kubelet.ready
    supervisor.start_due()
    assert started == ["kubelet", "scheduler"] * 2, "a second start waits for nobody"


def test_labels_of_the_registration_are_nobody_s_afterwards() -> None:
    """They are given to a node that lacks them when the kubelet starts, and stay as others set them."""
    nobody: Any = None
    own = RegisteredNode(nobody, nobody, "n", {}, {}, 0, [], first_labels={"a": "1", "b": "1"})
    node = core.Node()
    node.metadata.labels = {**labels("n"), "a": "changed"}
    node.metadata.annotations = {ATTACHES: "true"}
    assert own._lacking(node) == {"labels": {"b": "1"}}
    own.registered.set()
    assert own._lacking(node) == {}
