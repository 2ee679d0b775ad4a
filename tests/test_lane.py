"""The slow lane's order, and that it leaves out what it has no time for."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import conftest, lane


@dataclass
class Item:
    """A test, as far as the lane looks at it."""

    nodeid: str
    slow: Any = None
    callspec: Any = field(default_factory=lambda: SimpleNamespace(params={}))
    fixturenames: list[str] = field(default_factory=list)

    def get_closest_marker(self, name: str) -> Any:
        return self.slow if name == "slow" else None


def item(nodeid: str, seconds: float | None = 0, **params: str) -> pytest.Item:
    """`seconds`: what its mark says, 0 where that says nothing, None where it has none."""
    mark = (
        None if seconds is None else SimpleNamespace(kwargs={"seconds": seconds} if seconds else {})
    )
    return cast("pytest.Item", Item(nodeid, mark, SimpleNamespace(params=params)))


def test_the_cheap_comes_first_and_what_has_to_be_built_last() -> None:
    given = [
        item("tests/kubernetes/test_judgement.py::test_specs", 240),
        item("tests/scheduler/test_live.py::test_binds[kubernetes]", 90, at="kubernetes"),
        item("tests/frameworks/test_isolation.py::test_mpi"),
        item("tests/clients/test_helm.py::test_chart"),
        item("tests/apiserver/test_kills.py::test_long", 200),
        item("tests/apiserver/test_fuzz.py::test_random", 90),
        item("tests/kube/test_restarts.py::test_kills"),
        item("tests/kube/test_cache.py::test_quick", None),
    ]
    assert [
        one.nodeid.split("/")[1] + ":" + one.nodeid.rpartition("_")[2]
        for one in lane.ordered(given)
    ] == [
        "kube:quick",
        "kube:kills",
        "apiserver:random",
        "apiserver:long",
        "clients:chart",
        "frameworks:mpi",
        "scheduler:binds[kubernetes]",
        "kubernetes:specs",
    ]


def test_who_uses_a_server_that_has_to_be_built_waits_with_those_that_try_it() -> None:
    built = Item("tests/descheduler/test_own.py::test_rights", SimpleNamespace(kwargs={}))
    built.fixturenames = ["servers"]
    plain = item("tests/kube/test_restarts.py::test_kills", 500)
    assert lane.ordered([cast("pytest.Item", built), plain]) == [plain, built]


def test_a_file_stays_together_in_its_order() -> None:
    given = [
        item("tests/cluster/test_a.py::test_1"),
        item("tests/cluster/test_a.py::test_2", 130),
        item("tests/cluster/test_b.py::test_1"),
        item("tests/cluster/test_a.py::test_3"),
    ]
    assert [one.nodeid.removeprefix("tests/cluster/test_") for one in lane.ordered(given)] == [
        "b.py::test_1",
        "a.py::test_1",
        "a.py::test_2",
        "a.py::test_3",
    ]


def test_without_a_limit_everything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(lane.MINUTES, raising=False)
    assert lane.left() == math.inf
    conftest.pytest_runtest_setup(item("tests/kubernetes/test_judgement.py::test_specs", 100_000))


def test_what_would_end_too_late_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(lane.MINUTES, "40")
    monkeypatch.setattr(lane, "BEGAN", lane.time.monotonic() - 38 * 60)
    assert 100 < lane.left() <= 120
    conftest.pytest_runtest_setup(item("tests/kube/test_restarts.py::test_kills"))
    with pytest.raises(
        pytest.skip.Exception, match="240 s are too much for what is left of the slow lane"
    ):
        conftest.pytest_runtest_setup(item("tests/kubernetes/test_judgement.py::test_specs", 240))
    monkeypatch.setattr(lane, "BEGAN", lane.time.monotonic() - 41 * 60)
    conftest.pytest_runtest_setup(item("tests/kube/test_cache.py::test_quick", None))
