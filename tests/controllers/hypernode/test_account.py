"""The hypernode controllers by themselves need no more than the rights over topology that their account has."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import core, rbac, topology
from hekla.controllers.hypernode.controller import KEY
from hekla.kube.client import Client
from hekla.kube.config import load
from hekla.kube.errors import Forbidden
from tests.apiserver_process import ApiServerProcess, apiserver
from tests.controllers.cluster import install
from tests.controllers.hypernode.test_daemon import CONFIG
from tests.kubernetes.processes import free_port

__all__ = ["apiserver"]

NAMESPACE, ACCOUNT = "volcano-system", "hypernode-controller"


def rule(groups: str, resources: str, verbs: str) -> dict[str, Any]:
    return {"apiGroups": [groups], "resources": resources.split(), "verbs": verbs.split()}


EVERYWHERE = [
    rule("", "nodes", "list watch"), rule("topology.volcano.sh", "hypernodes", "list watch create update delete"),
    rule("topology.volcano.sh", "hypernodes/status", "update"),
]  # fmt: skip
AT_HOME = [
    rule("", "configmaps", "list watch"), rule("", "secrets", "get"), rule("", "events", "create update patch"),
    rule("coordination.k8s.io", "leases", "get create update"),
]  # fmt: skip
"""As the chart gives them.  Reference: operations 2."""


async def grant(client: Client) -> None:
    """The account with its rights, and nothing else."""
    await client.create(core.SERVICE_ACCOUNT.untyped, {"metadata": {"name": ACCOUNT}}, NAMESPACE)
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}
    for role, binding, kind, rules, namespace in (
        (rbac.CLUSTER_ROLE, rbac.CLUSTER_ROLE_BINDING, "ClusterRole", EVERYWHERE, None),
        (rbac.ROLE, rbac.ROLE_BINDING, "Role", AT_HOME, NAMESPACE),
    ):
        made: dict[str, Any] = {"metadata": {"name": ACCOUNT}, "rules": rules}
        await client.create(role.untyped, made, namespace)  # type: ignore[attr-defined]
        meant = {"apiGroup": rbac.GROUP, "kind": kind, "name": ACCOUNT}
        bound: dict[str, Any] = {"metadata": {"name": ACCOUNT}, "roleRef": meant, "subjects": [subject]}
        await client.create(binding.untyped, bound, namespace)  # type: ignore[attr-defined]


async def kubeconfig(client: Client, server: ApiServerProcess, path: Path) -> Path:
    """What a pod of the account would have."""
    asked: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer: Any = await client.post(core.SERVICE_ACCOUNT, ACCOUNT, NAMESPACE, "token", asked)
    admin = yaml.safe_load(server.kubeconfig.read_text())
    admin["users"] = [{"name": ACCOUNT, "user": {"token": answer["status"]["token"]}}]
    admin["contexts"] = [{"name": "own", "context": {"cluster": admin["clusters"][0]["name"], "user": ACCOUNT}}]
    admin["current-context"] = "own"
    path.write_text(yaml.safe_dump(admin))
    return path


@pytest.mark.scenario("plugins-placement", 81)
async def test_the_process_of_its_own_does_with_rights_over_topology(apiserver: ApiServerProcess, tmp_path: Path) -> None:
    async with Client(load(str(apiserver.internal_kubeconfig))) as client:
        await install(client)
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        config = {"metadata": {"name": "volcano-controller-configmap"}, "data": {KEY: CONFIG}}
        await client.create(core.CONFIG_MAP.untyped, config, NAMESPACE)
        await grant(client)
        own = await kubeconfig(client, apiserver, tmp_path / "own.kubeconfig")
        async with Client(load(str(own))) as narrow:
            with pytest.raises(Forbidden):
                await narrow.list(core.POD.untyped)
        for name in ("n0", "n1"):
            await client.create(core.NODE.untyped, {"metadata": {"name": name, "labels": {"example.com/rack": "a"}}})
        log = (tmp_path / "log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "hekla", "hypernode-controllers", f"--kubeconfig={own}",
             f"--healthz-address=127.0.0.1:{free_port()}"], stdout=log, stderr=log,
        )  # fmt: skip
        try:

            async def counted(nodes: int) -> None:
                found: list[Any] = []
                for _ in range(400):
                    found = (await client.list(topology.HYPER_NODE)).items
                    if [one.status.node_count for one in found] == ([nodes] if nodes else []):
                        return
                    await asyncio.sleep(0.05)
                raise AssertionError(f"{found}\n{(tmp_path / 'log').read_text()[-3000:]}")

            await counted(2)
            await client.create(core.NODE.untyped, {"metadata": {"name": "n2", "labels": {"example.com/rack": "a"}}})
            await counted(3)
            for name in ("n0", "n1", "n2"):
                await client.patch(core.NODE.untyped, name, {"metadata": {"labels": {"example.com/rack": None}}})
            await counted(0)
        finally:
            process.terminate()
            process.wait(10)
            log.close()
        assert "forbidden" not in (tmp_path / "log").read_text().lower()
