"""`hekla down`: stop a cluster.  What it stored stays for the next `hekla up`, unless --delete says
otherwise."""

from __future__ import annotations

import sys

from hekla.cli.arguments import Parser
from hekla.local.cluster.cluster import Cluster, refusal
from hekla.local.machine.files import ClusterError

PATIENCE = 90.0
"""Seconds for which another command may be starting or stopping the same cluster."""


def parser() -> Parser:
    result = Parser("hekla down", __doc__)
    result.add_argument(
        "--name", default="default", help="the cluster's name (default: %(default)s)"
    )
    result.add_argument("--delete", action="store_true", help="remove the cluster's state too")
    return result


def main(argv: list[str]) -> int:
    """Stop the cluster; exit code 0 also if it was not running."""
    arguments = parser().parse(argv)
    try:
        cluster = Cluster.named(arguments.name)
        cluster.exists()  # where even the look is refused, that is the reason
        with cluster.held(PATIENCE):
            known, stopped = cluster.exists(), stop(cluster)
            if arguments.delete:
                # also what an `up` left that was killed before it had written the settings
                cluster.delete()
    except (ClusterError, OSError) as error:
        print(
            f"hekla down: {refusal(error) if isinstance(error, OSError) else error}",
            file=sys.stderr,
        )
        return 1
    if not known and not stopped:
        print(f'There is no cluster "{arguments.name}".')
        return 0
    print(
        f'Cluster "{arguments.name}" '
        + ("is stopped" if stopped else "was not running")
        + (
            " and removed."
            if arguments.delete
            else "; its state stays in " + str(cluster.directory)
        )
    )
    return 0


def stop(cluster: Cluster) -> bool:
    """Stop the daemons, then the containers that they left running; returns False if nothing of the
    cluster was running.

    Returns when the process table shows none of its processes.  Raises ClusterError if a process
    does not end.
    """
    from hekla.local.cluster import supervisor
    from hekla.local.cluster.members import end_network
    from hekla.local.kubelet.runtime import runtime

    stopped = supervisor.end(cluster)
    while runtime.stop_all(cluster.pods):
        stopped = True  # once more: the last that the kubelet asked for may have begun meanwhile
    end_network(cluster)
    return stopped
