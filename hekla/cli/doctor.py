"""`hekla doctor`: what this machine allows a local cluster to do, what it goes without, and what
would change that."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from typing import NamedTuple

from hekla.cli.arguments import Parser
from hekla.kube import openfiles
from hekla.local.cluster.cluster import state_home


class Check(NamedTuple):
    """One check: whether it passed, and what follows from that."""

    name: str
    good: bool
    detail: str
    needed: bool = False
    """A cluster cannot run without it."""


def main(argv: list[str]) -> int:
    """Print every check; exit code 1 if something is missing that a cluster needs."""
    Parser("hekla doctor", __doc__).parse(argv)
    checks = [*basics(), *isolation(), *colocation()]
    for check in checks:
        mark = "ok     " if check.good else "MISSING" if check.needed else "without"
        print(f"  {mark}  {check.name:<30} {check.detail}".rstrip())
    missing = [check.name for check in checks if check.needed and not check.good]
    print()
    print(
        f"A cluster cannot run here before this is mended: {', '.join(missing)}"
        if missing
        else "A cluster can run here."
    )
    return 1 if missing else 0


def basics() -> Iterator[Check]:
    """The checks of what every cluster needs, and of what is useful."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Check("Python", sys.version_info >= (3, 11), version, needed=True)
    yield Check(
        "SQLite", sqlite3.sqlite_version_info >= (3, 35), sqlite3.sqlite_version, needed=True
    )
    home = state_home()
    existing = next(p for p in (home, *home.parents) if p.exists())
    yield Check(
        "state directory",
        os.access(existing, os.W_OK),
        f"{home}; set XDG_STATE_HOME for another",
        needed=True,
    )
    free = shutil.disk_usage(existing).free
    yield Check(
        "disk",
        free > 500 * 2**20,
        f"{free / 2**30:.1f} GiB free there; 0.5 GiB is the least",
        needed=True,
    )
    too_few = openfiles.problem()
    yield Check("open files", not too_few, too_few, needed=True)
    cores = os.cpu_count() or 1
    yield Check(
        "cpu", cores >= 2, f"{cores} cores" + ("" if cores >= 2 else "; everything works, slowly")
    )
    kubectl = shutil.which("kubectl")
    yield Check(
        "kubectl",
        kubectl is not None,
        kubectl or "not on PATH; vcctl does without, Kubernetes users will want it",
    )


def isolation() -> Iterator[Check]:
    """The checks of what isolates pods from each other."""
    from hekla.local.kubelet.runtime.isolation import survey

    for finding in survey():
        yield Check(
            finding.name,
            finding.available,
            "" if finding.available else f"{finding.why_not}: {finding.cost}",
        )


def colocation() -> Iterator[Check]:
    """The checks of what keeps offline pods out of the way of online ones, with `hekla up
    --colocation`."""
    from hekla.agent.cgroups import find
    from hekla.agent.doctor import features, traffic
    from hekla.agent.machine import machine

    for finding in (*features(find(machine())), traffic()):
        detail = finding.how if finding.available else f"{finding.how}: {finding.cost}"
        yield Check(f"colocation: {finding.name}", finding.available, detail)
