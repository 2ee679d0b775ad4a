"""The same requests to Kubernetes and to the local cluster's API server: whatever differs and is
not named in `intended.py` is a mistake.  Slow lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.kubernetes import differ, differences, generated, programs, scripts, shrinking

pytestmark = programs.slow(120)

SEEDS, MADE_UP = (1, 8), 30
"""Fixed: a landing is not a lottery.  `python -m tests.kubernetes differ --generated N --seed S`
looks for what nobody has seen yet."""


@pytest.fixture(scope="module")
def apis(servers: dict[str, Path]) -> Iterator[tuple[Api, Api]]:
    with differ.both() as started:
        yield started


def test_no_script_differs(apis: tuple[Api, Api]) -> None:
    requests, found = differ.run_all(scripts.scripts(), apis)
    assert requests > 2100
    rest, met = differences.sorted_out(found)
    assert not rest, differences.report(rest, 10)
    unmet = [intention for intention in differences.INTENDED if intention not in met]
    assert not unmet, f"met no more; take it from intended.py: {unmet}"


@pytest.mark.parametrize("seed", SEEDS)
def test_made_up_requests_are_answered_in_the_same_way(apis: tuple[Api, Api], seed: int) -> None:
    made_up = list(generated.scripts(seed, MADE_UP))
    requests, found = differ.run_all(made_up, apis)
    assert requests == MADE_UP * generated.STEPS
    rest, _ = differences.sorted_out(found)
    if rest:
        shown = "\n".join(
            shrinking.told(script) for script in differ.shortened(rest, made_up, apis, 3)
        )
        pytest.fail(f"{len(rest)} differences:\n{differences.report(rest, 5)}\n{shown}")
