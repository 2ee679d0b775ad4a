"""The same runs with less between the pods: in the machine's network, as an ordinary user, and
without namespaces at all.

What a pod does without its own network is made up for by a library that is compiled when the kubelet
starts; without a C compiler most of these programs cannot find each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from hekla.local.kubelet.runtime.preload import compiler
from tests.cluster.api import Tree
from tests.frameworks import expected
from tests.frameworks.runs import Runs, cluster
from tests.kubelet.test_isolation import USER, as_ordinary_user
from tests.local.home import Home, home

pytestmark = [pytest.mark.slow, pytest.mark.timeout(780)]


@pytest.fixture(scope="module", params=["shared-network", "user", "none"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runs(form: str) -> Iterator[Runs]:
    if form != "user":
        with cluster(f"--isolation={form}") as made:
            yield made
        return
    prefix = as_ordinary_user()
    if prefix is None:
        pytest.skip("this system lets nobody become an ordinary user in a user namespace")
    with home() as own, cluster(within=Home(own.state, python=(*prefix, sys.executable))) as made:
        yield made


def needs_a_compiler() -> None:
    if compiler() is None:
        pytest.skip("this machine has no C compiler (apt-get install gcc libc6-dev)")


def test_parameter_server(runs: Runs) -> None:
    expected.parameter_server_learns(runs)


def test_mpi(runs: Runs, form: str) -> None:
    if form == "none":
        needs_a_compiler()
    if form == "shared-network":
        needs_a_compiler()
        expected.mpi_computes_pi(runs)
    expected.mpi_computes_pi(
        runs,
        "mpi-any-user.yaml",
        hosts=form != "none",
        change=_with_an_account if form == "user" else None,
    )


def _with_an_account(files: Tree, job: Tree) -> None:
    """ssh wants to find whom it logs in; this user has been made up by the test."""
    files["data"]["passwd"] = (
        f"root:x:0:0:root:/root:/bin/sh\nsomebody:x:{USER}:{USER}:somebody:/tmp:/bin/sh\n"
    )
    for task in job["spec"]["tasks"]:
        container = task["template"]["spec"]["containers"][0]
        container["volumeMounts"].append(
            {"name": "code", "mountPath": "/etc/passwd", "subPath": "passwd"}
        )


@pytest.mark.parametrize(
    "runs_well",
    [
        expected.tensorflow_mirrors_two_workers, expected.tensorflow_spreads_variables, expected.pytorch_averages_gradients,
        expected.jax_sees_the_devices_of_all, expected.ray_runs_a_task_on_every_node,
    ],
    ids=["tensorflow", "tensorflow-ps", "pytorch", "jax", "ray"],
)  # fmt: skip
def test_frameworks(runs: Runs, form: str, runs_well: Callable[[Runs], None]) -> None:
    if form == "shared-network" and runs_well is not expected.tensorflow_mirrors_two_workers:
        pytest.skip("as in the form for an ordinary user")
    needs_a_compiler()
    runs_well(runs)
