"""A parameter server in plain Python: needs nothing that Hekla's own environment does not have."""

from __future__ import annotations

from tests.frameworks import expected
from tests.frameworks.runs import cluster


def test_three_workers_fit_a_line() -> None:
    with cluster() as runs:
        expected.parameter_server_learns(runs)
