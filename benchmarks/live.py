"""Jobs through a real kube-apiserver with etcd, beside what that server can do by itself in the same run.

The servers are those of `tests/kubernetes`; nodes, controllers, webhooks and scheduler are Hekla's.  A figure is the part of the
tighter of the server's two limits, creates and binds of pods by a client alone, that jobs reach from first create to last bind.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apiserver import CONNECTIONS, NAMESPACE, Raw
from benchmarks.end_to_end import SHAPES, run
from benchmarks.figure import Aim, Figure
from benchmarks.reference import settle
from hekla.api import core, scheduling
from hekla.kube import config
from hekla.kube.client import Client
from hekla.kube.errors import NotFound

OWN = {"live.1x1000": "e2e.1x1000", "live.20x50": "e2e.20x50", "live.1000x1": "e2e.1000x1"}
FIGURES = tuple(OWN)
AIMS = [Aim(name, ">= 80", "%", 3, f"{OWN[name]} on a kube-apiserver with etcd: of the tighter of its limits") for name in OWN]
NODES = 100
COUNT = 2000


class Where(NamedTuple):
    """A cluster, as far as the measurement asks for it."""

    internal_kubeconfig: Path


def measure(names: set[str]) -> Iterator[Figure]:
    from tests.kubernetes.programs import CannotBuild
    from tests.kubernetes.reference import reference

    try:
        with reference(durable=True, say=lambda text: print(text, file=sys.stderr)) as server:
            asyncio.run(settle(server.kubeconfig))
            with Raw() as raw:
                pki = server.pki
                certificates = [str(pki / name) for name in ("ca.crt", "admin.crt", "admin.key")]
                where: dict[str, Any] = {
                    "socket": "", "port": server.port, "certificates": certificates, "connections": CONNECTIONS, "namespace": NAMESPACE,
                }  # fmt: skip
                raw.ask(what="create", prefix="warm", count=500, **where)
                creates = raw.ask(what="create", prefix="pod", count=COUNT, **where)["speed"]
                binds = raw.ask(what="bind", prefix="pod", count=COUNT, **where)["speed"]
            server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
            server.add_scheduler()
            server.add_webhooks()
            asyncio.run(ready(server.kubeconfig))
            for name in OWN:
                if name in names:
                    found = asyncio.run(run(Where(server.kubeconfig), OWN[name]))  # type: ignore[arg-type]
                    jobs, tasks, _ = SHAPES[OWN[name]]
                    limits = f"{creates:,.0f} creates/s, {binds:,.0f} binds/s"
                    conditions = f"{found.value:,.0f} pods/s; {limits}; {jobs} x {tasks}, {found.conditions}"
                    yield Figure(name, 100 * found.value / min(creates, binds), "%", conditions)
    except CannotBuild as error:
        print(f"nothing live: {error}", file=sys.stderr)


async def ready(kubeconfig: Path, seconds: float = 120) -> None:
    """Waits until all nodes are ready and the default queue is open.  Raises TimeoutError."""
    async with Client(config.load(str(kubeconfig))) as client:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            nodes = (await client.list(core.NODE)).items
            up = sum(1 for node in nodes for one in node.status.conditions if one.type == "Ready" and one.status == "True")
            try:
                queue = await client.get(scheduling.QUEUE, "default")
                if up >= NODES and queue.status.state == "Open":
                    return
            except NotFound:
                pass
            await asyncio.sleep(0.25)
    raise TimeoutError(f"the cluster was not ready within {seconds:.0f} s")
