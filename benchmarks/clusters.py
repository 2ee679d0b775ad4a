"""Clusters and API servers to measure on, each in a temporary place and gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from hekla.cli.down import stop
from hekla.cli.up import bring_up
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.supervisor import read_status


@contextmanager
def cluster(**flags: object) -> Iterator[Cluster]:
    """A running cluster, made as `hekla up` with these flags makes one."""
    directory = Path(tempfile.mkdtemp(prefix="hekla-bench-"))
    made = Cluster(directory / "bench")
    try:
        bring_up(made, flags, 120, lambda *_: None)
        yield made
    finally:
        stop(made)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def api_server(*flags: str) -> Iterator[tuple[Cluster, subprocess.Popen[bytes]]]:
    """An API server alone, with the certificates and kubeconfigs of a cluster; the flags are added
    to its own."""
    from hekla.cli.up import certify, choose_port
    from hekla.local.cluster.cluster import Settings

    directory = Path(tempfile.mkdtemp(prefix="hekla-bench-"))
    made = Cluster(directory / "bench")
    made.make_directories()
    settings = Settings(port=choose_port(0, asked=False))
    certify(made, settings)
    program = made.programs(settings)[0]
    with open(made.logs / "apiserver.log", "wb") as log:
        process = subprocess.Popen([*program.command, *flags], stdout=log, stderr=log)
    try:
        yield made, process
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def kube_controllers(made: Cluster) -> Iterator[None]:
    """The built-in controllers beside an API server: accounts, quota status."""
    with open(made.logs / "kube-controllers.log", "wb") as log:
        process = subprocess.Popen(
            hekla("kube-controllers", f"--kubeconfig={made.internal_kubeconfig}"),
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def resident(cluster: Cluster) -> dict[str, float]:
    """Resident memory of each process of the cluster, in MB, the supervisor's and the API server's
    log writer included."""
    status = read_status(cluster)
    assert status is not None
    pids = {process.name: process.pid for process in status.processes} | {
        "supervisor": status.supervisor
    }
    found = {name: psutil.Process(pid) for name, pid in pids.items()}
    [found["log writer"]] = found["apiserver"].children()
    return {name: process.memory_info().rss / 1e6 for name, process in found.items()}


def hekla(*arguments: str) -> list[str]:
    """The command line of `hekla ARGUMENTS`."""
    return [sys.executable, "-m", "hekla", *arguments]
