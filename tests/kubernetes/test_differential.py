"""The same requests to Kubernetes and to the local cluster's API server.  Slow lane.

Scripts that still differ are in `open_differences.py` with the number of their differences: no number may grow, and one that
has shrunk must be lowered, so that what was won stays won.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.kubernetes import differ, differences, generated, programs, scripts, shrinking
from tests.kubernetes.open_differences import OPEN

pytestmark = programs.slow(120)

SEED, MADE_UP = 1, 30
OPEN_MADE_UP, OPEN_STATUS = "made-up", "made-up statuses"


@pytest.fixture(scope="module")
def apis(servers: dict[str, Path]) -> Iterator[tuple[Api, Api]]:
    with differ.both() as started:
        yield started


def test_no_script_differs_more_than_is_known(apis: tuple[Api, Api]) -> None:
    requests, found = differ.run_all(scripts.scripts(), apis)
    assert requests > 2000
    rest, met = differences.sorted_out(found)
    counts = Counter(difference.script for difference in rest)
    grown = {name for name, count in counts.items() if count > OPEN.get(name, 0)}
    assert not grown, differences.report([difference for difference in rest if difference.script in grown], 10)
    print("lower in open_differences.py:", {name: counts[name] for name in OPEN if counts[name] < OPEN[name]})
    unmet = [intention for intention in differences.INTENDED if intention not in met]
    assert not unmet, f"met no more; take it from intended.py: {unmet}"


def test_made_up_requests_are_answered_in_the_same_way(apis: tuple[Api, Api]) -> None:
    made_up = list(generated.scripts(SEED, MADE_UP))
    requests, found = differ.run_all(made_up, apis)
    assert requests == MADE_UP * generated.STEPS
    rest, _ = differences.sorted_out(found)
    statuses = [difference for difference in rest if difference.place == "status"]
    for name, differing in ((OPEN_STATUS, statuses), (OPEN_MADE_UP, rest)):
        if len(differing) > OPEN[name]:
            shown = "\n".join(shrinking.told(script) for script in differ.shortened(differing, made_up, apis, 3))
            pytest.fail(f"{len(differing)} differences, {OPEN[name]} are known:\n{differences.report(differing, 5)}\n{shown}")
