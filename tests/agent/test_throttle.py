"""The quota of best-effort pods: the table of the reference, allocatable being one core."""

from __future__ import annotations

import pytest

from hekla.agent.throttle import UNSENT, Parameters, quota

STANDARD = Parameters.of(True, 80, None, None)


@pytest.mark.parametrize(
    ("parameters", "used", "last", "sent"),
    [
        (STANDARD, 200, UNSENT, 600),
        (STANDARD, 1000, UNSENT, 0),
        (STANDARD, 1000, 0, None),  # still nothing
        (STANDARD, 700, 0, 100),  # from nothing it may grow at once
        (STANDARD, 200, 400, 440),  # grows by a tenth
        (STANDARD, 0, 5, 6),  # a tenth of 5 is 0, and it grows all the same
        (STANDARD, 600, 400, 200),  # shrinks at once
        (STANDARD, 403, 400, None),  # 397: less than the jitter of 1 percent
        (STANDARD, 404, 400, 396),  # 396: exactly the jitter
        (STANDARD, 750, 50, 50),  # 1 percent of 50 is 0, so each round sends
        (Parameters.of(True, 80, 5, 50), 200, 400, 600),
        (Parameters.of(True, 80, 20, 50), 330, 400, None),
        (Parameters.of(True, 50, None, None), 200, UNSENT, 300),
        (Parameters.of(False, 80, 1, 10), 200, UNSENT, None),
        (Parameters(0), 200, 400, None),
    ],
)
def test_quota(parameters: Parameters, used: int, last: int, sent: int | None) -> None:
    assert quota(parameters, 1000, used, last) == sent


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((True, None, 5, 50), Parameters(80, 1, 10)),  # without a threshold all are the defaults
        ((True, 70, 0, 0), Parameters(70, 1, 10)),
        ((True, 70, 3, 30), Parameters(70, 3, 30)),
        ((False, 70, 3, 30), Parameters(0)),
    ],
)
def test_parameters(
    given: tuple[bool, int | None, int | None, int | None], wanted: Parameters
) -> None:
    assert Parameters.of(*given) == wanted
