"""Usage between two answers of a kubelet."""

from __future__ import annotations

import pytest

from hekla.local.metrics_server.collector import Answers
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


BURNER = ("a", "p", "x")


def taken(*cpu: float, every: float = 5.0, began: float = 50.0) -> Answers:
    """Answers with one container, which had used so many seconds at each of them."""
    answers = Answers()
    for number, spent in enumerate(cpu):
        at = 100 + number * every
        container = Point(at, spent, 10, began)
        answers.take(Scrape(Point(at, spent, 10), {BURNER: container}))
    return answers


def of_burner(answers: Answers) -> Measured | None:
    return between(answers.before.containers.get(BURNER), answers.now.containers[BURNER])


def test_usage_is_the_mean_of_fifteen_seconds() -> None:
    assert of_burner(taken(0, 0, 0, 0, 0, 5, 10)) == Measured(130, 15, Usage(10 / 15, 10))


def test_what_begins_is_seen_at_the_next_answer() -> None:
    assert of_burner(taken(0, 0, 0, 0, 5)) == Measured(120, 15, Usage(5 / 15, 10))
    assert of_burner(taken(0, 4, began=99)) == Measured(105, 5, Usage(0.8, 10))


def test_answers_that_come_rarely_are_compared_with_the_last() -> None:
    assert of_burner(taken(0, 0, 30, every=30)) == Measured(160, 30, Usage(1.0, 10))


def test_a_container_that_started_again_is_not_compared_with_the_one_before() -> None:
    answers = taken(50, 60, 70)
    answers.take(Scrape(Point(115, 1, 10), {BURNER: Point(115, 1, 10, 112)}))
    assert of_burner(answers) is None
    answers.take(Scrape(Point(120, 1, 10), {BURNER: Point(120, 3, 10, 112)}))
    assert of_burner(answers) == Measured(120, 5, Usage(0.4, 10))


def test_an_answer_that_is_no_newer_is_not_taken() -> None:
    answers = taken(0, 5)
    answers.take(Scrape(Point(105, 9, 10), {}))
    assert of_burner(answers) == Measured(105, 5, Usage(1.0, 10))
