"""`hekla status`: the processes of a cluster, where their logs are, and whether they are ready."""

from __future__ import annotations

import json
import sys
import time

from hekla.cli.arguments import Parser
from hekla.local.cluster import Cluster, ClusterError
from hekla.local.supervisor import ProcessStatus, read_status, running


def main(argv: list[str]) -> int:
    """Prints the status; exit code 1 when the cluster does not run or a process is not ready."""
    parser = Parser("hekla status", __doc__)
    parser.add_argument("--name", default="default", help="the cluster's name (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse(argv)
    try:
        cluster = Cluster.named(arguments.name)
        made = cluster.exists()
    except ClusterError as error:
        print(f"hekla status: {error}", file=sys.stderr)
        return 1
    up = running(cluster) is not None
    status = read_status(cluster) if up else None
    processes = status.processes if status else []
    if arguments.json:
        shown = [
            {"name": p.name, "pid": p.pid, "ready": p.ready, "log": p.log, "restarts": p.restarts, "lastExit": p.last_exit}
            for p in processes
        ]
        print(json.dumps({"name": cluster.name, "running": up, "kubeconfig": str(cluster.kubeconfig), "processes": shown}, indent=2))
    elif not up:
        hint = "start it again with" if made else "make it with"
        which = "" if cluster.name == "default" else f" --name {cluster.name}"
        print(f'Cluster "{cluster.name}" is not running; {hint}: hekla up{which}')
    else:
        print(f'Cluster "{cluster.name}" in {cluster.directory}\n')
        print_table(processes)
        print(f"\n  export KUBECONFIG={cluster.kubeconfig}")
    return 0 if processes and all(process.ready for process in processes) else 1


def print_table(processes: list[ProcessStatus]) -> None:
    """One line a process, and how the last instance ended where one did."""
    width = max((len(process.name) for process in processes), default=4)
    print(f"  {'PROCESS':<{width}}  {'PID':>7}  READY  {'UP':>8}  RESTARTS  LOG")
    for process in processes:
        up = f"{time.time() - process.since:.0f} s" if process.pid else "-"
        ready = "yes" if process.ready else "no"
        print(f"  {process.name:<{width}}  {process.pid or '-':>7}  {ready:<5}  {up:>8}  {process.restarts:>8}  {process.log}")
        if process.last_exit:
            print(f"  {'':<{width}}  the instance before it ended with {process.last_exit}")
