"""The kubeconfigs of a cluster's users."""

from __future__ import annotations

from hekla.local.cluster.cluster import Cluster
from hekla.local.machine.certificates import kubeconfig, unix_kubeconfig
from hekla.local.machine.files import write_atomically


def write_kubeconfigs(cluster: Cluster, port: int) -> None:
    """Write both kubeconfigs of a cluster: HTTPS for users, the Unix socket for the cluster's own
    daemons."""
    server = f"https://127.0.0.1:{port}"
    write_atomically(cluster.kubeconfig, kubeconfig(cluster.name, server, cluster.pki))
    write_atomically(cluster.internal_kubeconfig, unix_kubeconfig(cluster.name, cluster.socket))
