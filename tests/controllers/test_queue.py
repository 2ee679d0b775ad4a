"""The table of queue states."""

import pytest

from hekla.controllers.queue import next_state

ROWS = [
    ("Open", "OpenQueue", 1, "Open"),
    ("Open", "CloseQueue", 0, "Closed"),
    ("Open", "CloseQueue", 2, "Closing"),
    ("Open", "SyncQueue", 1, "Open"),
    ("", "SyncQueue", 0, "Open"),
    ("", "CloseQueue", 1, "Closing"),
    ("Closed", "OpenQueue", 0, "Open"),
    ("Closed", "CloseQueue", 3, "Closed"),
    ("Closed", "SyncQueue", 0, "Closed"),
    ("Closing", "OpenQueue", 1, "Open"),
    ("Closing", "CloseQueue", 0, "Closed"),
    ("Closing", "CloseQueue", 1, "Closing"),
    ("Closing", "SyncQueue", 0, "Closed"),
    ("Closing", "SyncQueue", 1, "Closing"),
    ("Unknown", "OpenQueue", 0, "Open"),
    ("Unknown", "CloseQueue", 0, "Closed"),
    ("Unknown", "CloseQueue", 1, "Closing"),
    ("Unknown", "SyncQueue", 1, "Unknown"),
    ("Open", "an action of something else", 0, "Open"),
]


@pytest.mark.scenario("controllers", 87)
@pytest.mark.parametrize(("state", "action", "groups", "following"), ROWS)
def test_the_table(state: str, action: str, groups: int, following: str) -> None:
    assert next_state(state, action, groups) == following


@pytest.mark.scenario("controllers", 87)
def test_a_state_that_is_none() -> None:
    with pytest.raises(ValueError, match="queue state Ajar is invalid"):
        next_state("Ajar", "SyncQueue", 0)
