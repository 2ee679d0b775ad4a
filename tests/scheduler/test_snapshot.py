"""A snapshot has what the scheduler knows, and is for those who may ask."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hekla.api import crds, scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.api.names import SNAPSHOT_CONFIG_MAP, SNAPSHOT_PATH, SNAPSHOT_SERVER
from hekla.engine.cycle import cycle
from hekla.engine.model.state import State
from hekla.engine.tape import STATE_CALLS, RecordingError, carry_out, encoded, frames, state_of
from hekla.engine.world import World, policy
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.connection.config import Connection
from hekla.kube.connection.credentials import Fixed, bearer
from hekla.kube.errors import ApiError
from hekla.kube.http.client import Target
from hekla.scheduler.informers import Informers, sources
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.snapshots.snapshot import Snapshots, as_decided
from hekla.simulator.whatif.copy import ClusterCopy
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.scheduler.test_replay import group, node

__all__ = ["shared_apiserver"]

SETTINGS = {"scheduler_names": ["volcano"], "time_zone": "UTC"}
ROLES = "/apis/rbac.authorization.k8s.io/v1"


def pod(name: str, of: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"scheduling.k8s.io/group-name": of},
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "command": ["sleep", "hidden-word"],
                    "resources": {"requests": {"cpu": "1"}},
                }
            ],
        },
    }


def state_from(pieces: list[bytes]) -> State:
    """A state that the calls of a snapshot have made."""
    header, *rest = frames("test", pieces)
    state = state_of(header, "test")
    for frame in rest:
        if frame[0] in STATE_CALLS:
            carry_out(state, frame)
    return state


@pytest.fixture
async def client(shared_apiserver: ApiServerProcess) -> AsyncIterator[Client]:
    connection = config.load(str(shared_apiserver.internal_kubeconfig))
    async with Client(connection) as made:
        yield made


async def furnish(client: Client) -> None:
    """Two nodes, two gangs, one of them too large.  Done once."""
    if (await client.list(core.NODE.untyped)).items:
        return
    for definition in crds.all():
        await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
    for name in ("n1", "n2"):
        await client.create(core.NODE.untyped, node(name))
    for name, minimum in (("fits", 2), ("waits", 20)):
        await client.create(scheduling.POD_GROUP.untyped, group(name, minimum), "default")
        for number in range(2):
            await client.create(core.POD.untyped, pod(f"{name}-{number}", name), "default")
    await client.create(
        scheduling.QUEUE.untyped,
        {"metadata": {"name": "default"}, "spec": {"weight": 1}},
    )


async def test_a_copy_of_the_snapshot_decides_as_the_scheduler_does(client: Client):
    await furnish(client)
    live = State(**SETTINGS)  # type: ignore[arg-type]
    informers = Informers(client, live, sources(live))
    await informers.start()
    policy_file = PolicyFile("")
    snapshots = Snapshots(client, live, dict(SETTINGS), policy_file, sources)

    pieces = [piece async for piece in snapshots.pieces()]
    copy = ClusterCopy.of(frames("test", pieces), "test")
    for cache in informers.caches:
        await cache.stop()

    assert copy.policy == ("", "", {}) and copy.now > 1_700_000_000
    of_live = cycle(live, policy_file.policy, 1e9)
    of_copy = cycle(state_from(pieces), policy_file.policy, 1e9)
    assert len(of_live.binds) == 2
    assert encoded(of_live) == encoded(of_copy)
    assert b"hidden-word" not in repr(copy.objects).encode(), "commands are nobody's business"

    with pytest.raises(RecordingError, match="broke off before its end"):
        ClusterCopy.of(frames("test", pieces[:-1]), "test")


def test_what_was_decided_stands_over_what_the_server_shows():
    world = World(policy(plugins=["gang", "predicates", "priority"], actions="allocate, preempt"))
    world.nodes("n1", cpu=3)
    world.priority_class("high", 10)
    world.priority_class("top", 20)
    world.job("runs", cpu=1, on=["n1"], min_available=0)
    world.job("starts", cpu=1, priority="top")
    world.job("urgent", cpu=2, priority="high")
    shown = {key: dict(tree) for key, tree in world.pods.items()}
    world.run("allocate, preempt")

    told = {key: as_decided(world.state, tree) for key, tree in shown.items()}

    statuses = {key: task.status.value for key, task in world.state.tasks.items()}
    for key, tree in told.items():
        assert (statuses[key] == "Binding") == (
            bool(tree["spec"]["nodeName"]) and not shown[key]["spec"]["nodeName"]
        )
        assert (statuses[key] == "Releasing") == ("deletionTimestamp" in tree["metadata"])
    assert {"Binding", "Releasing"} <= set(statuses.values())


@pytest.fixture(scope="module")
def scheduler(
    shared_apiserver: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A scheduler that serves snapshots; its log."""
    log = tmp_path_factory.mktemp("scheduler") / "log"
    command = [
        sys.executable,
        "-m",
        "hekla",
        "scheduler",
        f"--kubeconfig={shared_apiserver.internal_kubeconfig}",
        "--leader-elect=false",
        "--leader-elect-resource-namespace=kube-system",
        "--snapshot-address=127.0.0.1:0",
        f"--client-ca-file={shared_apiserver.pki / 'ca.crt'}",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    yield log
    process.terminate()
    process.wait(10)


class Door:
    """The scheduler's endpoint, for users of all sorts."""

    def __init__(self, client: Client, said: dict[str, str]) -> None:
        self.client = client
        host, _, port = said["address"].rpartition(":")
        base = Connection(Target(host=host, port=int(port)))
        self.connection = base.beside(host, int(port), said["authority"], SNAPSHOT_SERVER)

    async def get(self, connection: Connection) -> tuple[int, bytes]:
        async with Client(connection, pool=1) as asking:
            try:
                stream = await asking.stream("GET", SNAPSHOT_PATH)
            except ApiError as error:
                return error.code, error.message.encode()
            async with stream:
                return stream.status, await stream.read_all()

    async def with_token(self, token: str) -> tuple[int, bytes]:
        from dataclasses import replace

        return await self.get(replace(self.connection, credentials=Fixed(bearer(token))))


async def token_of(client: Client, name: str) -> str:
    """A token of a new ServiceAccount."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await client.request("POST", accounts, body={"metadata": {"name": name}})
    answer = await client.request("POST", f"{accounts}/{name}/token", body={"spec": {}})
    found = re.search(rb'"token":\s*"([^"]+)"', answer.body)
    assert found is not None
    return found[1].decode()


@pytest.fixture
async def door(client: Client, scheduler: Path) -> Door:
    import asyncio

    await furnish(client)
    for _ in range(600):
        try:
            found = await client.get(core.CONFIG_MAP.untyped, SNAPSHOT_CONFIG_MAP, "kube-system")
            return Door(client, found["data"])
        except ApiError:
            await asyncio.sleep(0.05)
    raise AssertionError(scheduler.read_text())


async def test_nobody_in_particular_is_refused(door: Door):
    code, said = await door.get(door.connection)
    assert code == 401 and b"Unauthorized" in said
    code, said = await door.with_token("made-up")
    assert code == 401


async def test_a_user_without_the_right_is_told_which_one_is_missing(door: Door):
    token = await token_of(door.client, "ann")
    code, said = await door.with_token(token)
    assert code == 403
    assert b'User "system:serviceaccount:default:ann" cannot get path "/snapshot"' in said


async def test_a_user_with_the_right_gets_the_snapshot(door: Door):
    token = await token_of(door.client, "bob")
    role = {
        "metadata": {"name": "what-if"},
        "rules": [{"nonResourceURLs": [SNAPSHOT_PATH], "verbs": ["get"]}],
    }
    await door.client.request("POST", f"{ROLES}/clusterroles", body=role)
    binding = {
        "metadata": {"name": "what-if"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "what-if",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "bob", "namespace": "default"}],
    }
    await door.client.request("POST", f"{ROLES}/clusterrolebindings", body=binding)

    code, body = await door.with_token(token)

    assert code == 200
    copy = ClusterCopy.of(frames("test", [body]), "test")
    assert set(copy.of_kind("Node")) == {"n1", "n2"}


async def test_a_client_certificate_is_known_too(door: Door, shared_apiserver: ApiServerProcess):
    user = config.load(str(shared_apiserver.kubeconfig))
    target = door.connection.target
    assert door.connection.tls is not None and door.connection.tls.authority is not None
    admin = user.beside(
        target.host, target.port, door.connection.tls.authority.text, SNAPSHOT_SERVER
    )
    code, body = await door.get(admin)
    assert code == 200 and ClusterCopy.of(frames("test", [body]), "test").of_kind("Queue")


async def test_what_was_used_of_budgets_goes_along():
    limits = {"budget": {"resources": {"cpu": "9h"}}}
    world = World(policy(plugins=["gang", {"name": "party-limits", "arguments": limits}]))
    world.nodes("n1")
    world.job("runs", cpu=1, on=["n1"], phase="Running")
    world.run()
    world.now += 60
    world.run()
    snapshots = Snapshots(None, world.state, dict(SETTINGS), PolicyFile(""), lambda told: [])  # type: ignore[arg-type]
    copy = state_from([piece async for piece in snapshots.pieces()])
    assert copy.others["BudgetUsage"]["usage"]["used"] == {"default": {"cpu": 60_000.0}}
