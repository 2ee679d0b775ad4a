"""Kubernetes judges the local cluster, and the tests of the local cluster are held against
Kubernetes.  Slow lane.

The clusters of these tests are their own; each skips with its reason where Kubernetes' programs
cannot be had.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes import checklist, clusters, e2e, programs

pytestmark = programs.slow(240)

SPECS = 174
SECONDS = 480.0
"""For one run; on two cores that nobody else uses it takes a fifth of that."""


def names() -> list[str]:
    try:
        return e2e.listed()
    except e2e.NoSpecs as error:
        pytest.skip(str(error))


def judged(kubeconfig: Path, content_type: str) -> str:
    """The failures of a run over all specs, one a line; fails unless all of them ran."""
    chosen = names()
    outcomes = e2e.run(kubeconfig, chosen, content_type=content_type, seconds=SECONDS)
    assert len(chosen) == len(outcomes) == SPECS
    return "\n".join(
        f"{outcome.name}: {outcome.failure}" for outcome in outcomes if not outcome.passed
    )


@pytest.mark.usefixtures("judge")
@pytest.mark.parametrize("content_type", ["", e2e.JSON], ids=["protobuf", "json"])
def test_kubernetes_own_specs_pass_on_the_local_cluster(content_type: str) -> None:
    names()
    with clusters.local_cluster() as kubeconfig:
        assert judged(kubeconfig, content_type) == ""


@pytest.mark.usefixtures("servers", "judge")
def test_the_same_specs_pass_on_the_reference_server_with_our_nodes_and_scheduler() -> None:
    names()
    with clusters.reference_cluster() as kubeconfig:
        assert judged(kubeconfig, "") == ""


@pytest.mark.usefixtures("servers")
def test_the_checklist_is_true_of_kubernetes() -> None:
    with checklist.cluster() as kubeconfig:
        output = checklist.run(kubeconfig, ["-m", "not slow"], quiet=True).stdout
    passed, failed, skipped, rest = checklist.counts(output)
    assert failed == 0, output[-8000:]
    assert passed + skipped + rest == 150 and passed >= 120, output[-3000:]
