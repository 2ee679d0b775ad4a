"""The same load on Hekla's API server and on a kube-apiserver with etcd, one after the other in one
run: a ratio for each.

Both are asked by the same raw client through HTTPS on 64 connections, and both wait for the disk.
The reference server is what `tests/kubernetes` builds; where it cannot be built, nothing is
measured.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.apiserver import CONNECTIONS, NAMESPACE, Raw, over_https, prepare
from benchmarks.clusters import api_server
from benchmarks.figure import Aim, Figure
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import NotFound

WHAT = {
    "ratio.create": "creates of 1.5 kB pods",
    "ratio.bind": "POSTs to pods/binding",
    "ratio.update": "merge patches of pod status",
    "ratio.get": "single gets",
    "ratio.list": "lists of 5,000 pods",
    "ratio.watch.p99": "from a write's answer to its event, 500 writes/s",
}
FIGURES = tuple(WHAT)
AIMS = [
    Aim(name, ">= 1", "x", 2, f"{what}: how many times as fast as kube-apiserver with etcd")
    for name, what in WHAT.items()
]
A_SECOND = ("ratio.create", "ratio.bind", "ratio.update", "ratio.get")
"""Measured in requests a second; the others in ms."""
COUNT = 5000


def measure(names: set[str]) -> Iterator[Figure]:
    from tests.kubernetes.programs import CannotBuild
    from tests.kubernetes.reference import reference

    with api_server() as (cluster, _), Raw() as raw:
        asyncio.run(prepare(cluster))
        where = {**over_https(cluster), "connections": CONNECTIONS, "namespace": NAMESPACE}
        own = load(raw, where, cluster.internal_kubeconfig)
    try:
        with (
            reference(durable=True, say=lambda text: print(text, file=sys.stderr)) as server,
            Raw() as raw,
        ):
            asyncio.run(settle(server.kubeconfig))
            pki = server.pki
            certificates = [str(pki / name) for name in ("ca.crt", "admin.crt", "admin.key")]
            where = {
                "socket": "",
                "port": server.port,
                "certificates": certificates,
                "connections": CONNECTIONS,
                "namespace": NAMESPACE,
            }
            theirs = load(raw, where, server.kubeconfig)
    except CannotBuild as error:
        print(f"no ratios: {error}", file=sys.stderr)
        return
    for name in FIGURES:
        if name in names:
            mine, other = own[name], theirs[name]
            ratio, unit = (
                (mine / other, "1/s") if name in A_SECOND else (other / max(mine, 1.0), "ms")
            )
            yield Figure(
                name,
                ratio,
                "x",
                f"{mine:,.1f} to {other:,.1f} {unit}; {WHAT[name]}, HTTPS, {CONNECTIONS} connections",
            )


def load(raw: Raw, where: dict[str, Any], kubeconfig: Path) -> dict[str, float]:
    """What one server does, by figure: requests a second, or ms."""
    raw.ask(what="create", prefix="warm", count=500, **where)
    found = {}
    for name, what in (
        ("ratio.create", "create"),
        ("ratio.bind", "bind"),
        ("ratio.update", "status"),
        ("ratio.get", "get"),
    ):
        found[name] = raw.ask(what=what, prefix="pod", count=COUNT, **where)["speed"]
    found["ratio.list"] = 1000 * raw.ask(what="list", **where)["seconds"]
    version = asyncio.run(newest(kubeconfig))
    found["ratio.watch.p99"] = (
        1000
        * raw.ask(what="delay", prefix="delay", count=2500, rate=500, version=version, **where)[
            "p99"
        ]
    )
    return found


async def newest(kubeconfig: Path) -> str:
    async with Client(config.load(str(kubeconfig))) as client:
        async for page in client.pages(core.POD, NAMESPACE, limit=1):
            return page.resource_version
    raise AssertionError("a list has at least one page")


async def settle(kubeconfig: Path) -> None:
    """Namespace and node of the load, and the service account that the reference's controllers
    make."""
    async with Client(config.load(str(kubeconfig))) as client:
        await client.create(core.NAMESPACE.untyped, {"metadata": {"name": NAMESPACE}})
        await client.create(core.NODE.untyped, {"metadata": {"name": "node-0"}})
        for _ in range(200):
            try:
                await client.get(core.SERVICE_ACCOUNT, "default", NAMESPACE)
                return
            except NotFound:
                await asyncio.sleep(0.05)
        raise TimeoutError("the reference server's controllers made no service account within 10 s")
