"""The server's answers do not depend on the machine's time zone."""

from __future__ import annotations

import time

import pytest

from hekla.api.text.times import instant
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.request.forms import age
from hekla.local.apiserver.write.deletion import mark

POD = next(kind for kind in builtin.kinds() if kind.kind == "Pod")


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney"])
@pytest.mark.parametrize("month", ["01", "07"])
def test_summer_and_winter_change_no_time(
    zone: str, month: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the clock goes forward in summer, a shortened grace period and an age were an hour off."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        pod = {
            "metadata": {
                "deletionTimestamp": f"2026-{month}-01T00:00:30Z",
                "deletionGracePeriodSeconds": 30,
            }
        }
        mark(pod, 10, POD)
        assert pod["metadata"]["deletionTimestamp"] == f"2026-{month}-01T00:00:10Z"
        assert age(f"2026-{month}-01T00:00:00Z", instant(f"2026-{month}-01T00:00:45Z")) == "45s"
    finally:
        monkeypatch.undo()
        time.tzset()
