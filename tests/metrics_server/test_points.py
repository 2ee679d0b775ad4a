"""Usage between two answers of a kubelet."""

from __future__ import annotations

import pytest

from hekla.local.metrics_server.points import Measured, Point, Scrape, Usage, between, pods_of, read

TEXT = """\
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="a",pod="p"} 12.5 100500
container_memory_working_set_bytes{container="c",namespace="a",pod="p"} 2048 100500
container_start_time_seconds{container="c",namespace="a",pod="p"} 90
container_memory_working_set_bytes{container="d",namespace="a",pod="p"} 2048 100500
node_cpu_usage_seconds_total 40 100250
node_memory_working_set_bytes 4096 100250
pod_cpu_usage_seconds_total{namespace="a",pod="p"} 12.5 100500
resource_scrape_error 0
"""


def test_a_kubelets_answer_is_read() -> None:
    scrape = read(TEXT)
    assert scrape.node == Point(100.25, 40, 4096)
    assert scrape.containers == {("a", "p", "c"): Point(100.5, 12.5, 2048, 90)}


def test_what_is_no_answer() -> None:
    with pytest.raises(ValueError):
        read("a b c {")


def test_processor_time_over_the_time_between() -> None:
    before, now = Point(100, 5, 10, started=50), Point(110, 20, 30, started=50)
    assert between(before, now) == Measured(110, 10, Usage(1.5, 30))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (None, Point(100, 5, 10)),
        (Point(100, 5, 10), Point(100, 5, 10)),
        (Point(100, 5, 10), Point(110, 4, 10)),
        (Point(100, 5, 10, started=50), Point(110, 1, 10, started=105)),
        (None, Point(100, 5, 10, started=95)),
    ],
)
def test_what_cannot_be_said_yet(before: Point | None, now: Point) -> None:
    assert between(before, now) is None


def test_a_container_that_started_since_is_measured_from_its_start() -> None:
    now = Point(120, 6, 10, started=108)
    assert between(Point(100, 50, 10, started=50), now) == Measured(120, 12, Usage(0.5, 10))
    assert between(None, now) == Measured(120, 12, Usage(0.5, 10))


def test_a_pod_waits_for_all_its_containers() -> None:
    old, new = Point(100, 5, 10, started=50), Point(110, 20, 30, started=50)
    before = Scrape(containers={("a", "p", "x"): old, ("a", "p", "y"): old, ("a", "q", "x"): old})
    now = Scrape(
        containers={("a", "p", "x"): new, ("a", "p", "z"): Point(110, 1, 1), ("a", "q", "x"): new}
    )
    assert list(pods_of(before, now)) == [("a", "q")]
