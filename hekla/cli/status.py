"""`hekla status`: the processes of a cluster, where their logs are, and whether they are ready."""

from __future__ import annotations

import json
import sys

from hekla.cli.arguments import Parser
from hekla.cli.readiness import TITLES
from hekla.local.cluster.cluster import Cluster
from hekla.local.cluster.members import members
from hekla.local.cluster.supervisor import ProcessStatus, last_status, read_status, running
from hekla.local.machine.files import ClusterError
from hekla.local.machine.processes import age_of


def parser() -> Parser:
    result = Parser("hekla status", __doc__)
    result.add_argument(
        "--name", default="default", help="the cluster's name (default: %(default)s)"
    )
    result.add_argument("--json", action="store_true", help="print one JSON object")
    return result


def main(argv: list[str]) -> int:
    """Print the status; exit code 1 if the cluster does not run, has no supervisor, or a process is
    not ready."""
    arguments = parser().parse(argv)
    try:
        cluster = Cluster.named(arguments.name)
        made = cluster.exists()
    except ClusterError as error:
        print(f"hekla status: {error}", file=sys.stderr)
        return 1
    up = running(cluster) is not None
    processes = found_processes(cluster, up)
    which = "" if cluster.name == "default" else f" --name {cluster.name}"
    if arguments.json:
        shown = [
            {
                "name": p.name,
                "pid": p.pid,
                "ready": p.ready,
                "log": p.log,
                "restarts": p.restarts,
                "lastExit": p.last_exit,
            }
            for p in processes
        ]
        print(
            json.dumps(
                {
                    "name": cluster.name,
                    "running": up,
                    "kubeconfig": str(cluster.kubeconfig),
                    "processes": shown,
                },
                indent=2,
            )
        )
    elif not up and not processes:
        hint = "start it again with" if made else "make it with"
        print(f'Cluster "{cluster.name}" is not running; {hint}: hekla up{which}')
    else:
        print(f'Cluster "{cluster.name}" in {cluster.directory}\n')
        print_table(processes)
        if not up:
            print(
                "\nIts supervisor is dead: these processes still serve, and nobody starts them again when they crash.\n"
                f"hekla up{which} ends them and starts the cluster again; what it stored and its containers stay.\n"
                f"hekla down{which} ends them and its containers."
            )
        print(f"\n  export KUBECONFIG={cluster.kubeconfig}")
    return 0 if up and processes and all(process.ready for process in processes) else 1


def found_processes(cluster: Cluster, up: bool) -> list[ProcessStatus]:
    """The processes by the supervisor's status; if it is dead, those of them that the process table
    has."""
    if up:
        status = read_status(cluster)
        return status.processes if status else []
    last = last_status(cluster)
    said = {(process.pid, process.start): process for process in last.processes} if last else {}
    return [
        said.get((process.pid, process.start))
        or ProcessStatus(name, process.pid, False, str(cluster.logs / f"{name}.log"))
        for name, process in members(cluster)
        if name in TITLES
    ]


def print_table(processes: list[ProcessStatus]) -> None:
    """Print one line for each process, and how its last instance ended."""
    width = max((len(process.name) for process in processes), default=4)
    print(f"  {'PROCESS':<{width}}  {'PID':>7}  READY  {'UP':>8}  RESTARTS  LOG")
    for process in processes:
        age = age_of(process.pid) if process.pid else None
        up = f"{age:.0f} s" if age is not None else "-"
        ready = "yes" if process.ready else "no"
        print(
            f"  {process.name:<{width}}  {process.pid or '-':>7}  {ready:<5}  {up:>8}  {process.restarts:>8}  {process.log}"
        )
        if process.last_exit:
            print(f"  {'':<{width}}  the instance before it ended with {process.last_exit}")
