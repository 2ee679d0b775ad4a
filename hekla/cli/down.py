"""`hekla down`: stop a cluster.  What it stored stays for the next `hekla up`, unless --delete says otherwise."""

from __future__ import annotations

import sys

from hekla.cli.arguments import Parser
from hekla.local.cluster import Cluster, ClusterError, refusal


def main(argv: list[str]) -> int:
    """Stops the cluster; 0 also when it was not running."""
    parser = Parser("hekla down", __doc__)
    parser.add_argument("--name", default="default", help="the cluster's name (default: %(default)s)")
    parser.add_argument("--delete", action="store_true", help="remove the cluster's state too")
    arguments = parser.parse(argv)
    try:
        cluster = Cluster.named(arguments.name)
        if not cluster.exists():
            if arguments.delete and cluster.directory.exists():
                cluster.delete()  # what an `up` left that was killed before it had written the settings
            print(f'There is no cluster "{arguments.name}".')
            return 0
        stopped = stop(cluster)
        if arguments.delete:
            cluster.delete()
    except (ClusterError, OSError) as error:
        print(f"hekla down: {refusal(error) if isinstance(error, OSError) else error}", file=sys.stderr)
        return 1
    print(
        f'Cluster "{arguments.name}" '
        + ("is stopped" if stopped else "was not running")
        + (" and removed." if arguments.delete else "; its state stays in " + str(cluster.directory))
    )
    return 0


def stop(cluster: Cluster) -> bool:
    """Ends the daemons, then the containers that they left running; False when no supervisor was running."""
    from hekla.local import supervisor
    from hekla.local.agent import runtime

    stopped = supervisor.end(cluster)
    runtime.stop_all(cluster.pods)
    return stopped
