"""The flags of `hekla controllers`, and which controllers they start."""

import pytest

from hekla.controllers.daemon import FLAGS, enabled
from hekla.kube.flags import FlagError, parse


@pytest.mark.scenario("controllers", 168)
@pytest.mark.parametrize(
    ("wanted", "name", "answer"),
    [
        (["*"], "job-controller", True),
        ([], "job-controller", True),
        (["queue-controller"], "job-controller", False),
        (["*", "-gc-controller"], "gc-controller", False),
        (["+gc-controller"], "gc-controller", True),
        (["-gc-controller", "gc-controller", "*"], "gc-controller", False),
        (["job-controller, gc-controller"], "gc-controller", False),
    ],
)
def test_who_runs(wanted: list[str], name: str, answer: bool) -> None:
    assert enabled(name, wanted) is answer


@pytest.mark.scenario("controllers", 169)
def test_a_controller_is_named_once() -> None:
    for text in (
        "job-controller,-job-controller",
        "+job-controller,job-controller",
        "-gc-controller,-gc-controller",
    ):
        with pytest.raises(FlagError, match="cannot have both '-' and '\\+' prefixes"):
            parse(FLAGS, [f"--controllers={text}"])
    assert parse(FLAGS, ["--controllers=*,*,-gc-controller"]).controllers == [
        "*",
        "*",
        "-gc-controller",
    ]


def test_the_originals_flags_are_known() -> None:
    options = parse(
        FLAGS,
        [
            "--scheduler-name=volcano",
            "--scheduler-name=a,b",
            "--worker-threads=3",
            "--worker-threads-for-podgroup=5",
            "--leader-elect=false",
            "--enable-healthz=true",
            "--kube-api-qps=50",
            "--max-requeue-num=-1",
            "--listen-address=:8081",
        ],
    )
    assert options.scheduler_name == ["volcano", "a,b"] and options.max_requeue_num == -1
