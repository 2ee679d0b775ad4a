"""A whole cluster for the stories of this room: Hekla's own, and in the slow lane Kubernetes' own
server with Hekla installed on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import Api
from tests.cluster.conftest import cluster_of_our_own
from tests.controllers.whole_cluster.cluster import WholeCluster
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

NODES = 3


@pytest.fixture(
    scope="module", params=["local", pytest.param("kubernetes", marks=programs.slow(90))]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[WholeCluster]:
    """Three fake nodes, the scheduler, the controllers, the webhooks."""
    if request.param == "local":
        with cluster_of_our_own(nodes=0, fake_nodes=NODES) as kubeconfig:
            yield WholeCluster(Api(kubeconfig)).ready(NODES)
        return
    programs.wanted(*programs.SERVER)
    with reference() as server:
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        server.add_scheduler()
        server.add_webhooks()
        yield WholeCluster(Api(server.kubeconfig)).ready(NODES)
