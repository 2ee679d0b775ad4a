"""A parameter server in plain Python: needs nothing that Hekla's own environment does not have."""

from __future__ import annotations

import pytest

from tests.frameworks.runs import Runs, cluster


def learns(runs: Runs) -> None:
    logs = runs.run("parameter-server.yaml", 40)
    assert logs["parameter-server-ps-0"] == "3 workers, w=3.000 b=1.000\n"
    assert {logs[f"parameter-server-worker-{i}"] for i in range(3)} == {f"worker {i} is done\n" for i in range(3)}


def test_three_workers_fit_a_line() -> None:
    with cluster() as runs:
        learns(runs)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["shared-network", "none"])
def test_and_with_less_between_the_pods(isolation: str) -> None:
    with cluster(f"--isolation={isolation}") as runs:
        learns(runs)
