"""Flags as Go programs take them, and errors that help."""

from __future__ import annotations

import pytest

from hekla.kube.daemon import (
    GATES,
    connection_flags,
    gate,
    gate_flags,
    health_flags,
    leader_flags,
    metrics_flags,
)
from hekla.kube.flags import (
    NUMBER,
    SECONDS,
    TEXT,
    TEXTS,
    WHOLE,
    YES_NO,
    Flag,
    FlagError,
    HelpWanted,
    Options,
    at_least,
    between,
    duration_text,
    one_of,
    parse,
    seconds,
)

FLAGS = (
    Flag("schedule-period", SECONDS, 1.0, "time between cycles", check=at_least(0)),
    Flag("worker-threads", WHOLE, 3, "workers", check=between(1, 100)),
    Flag("percentage", NUMBER, 0.0, "share"),
    Flag("leader-elect", YES_NO, True, "elect"),
    Flag("scheduler-name", TEXTS, ["volcano"], "names"),
    Flag("mode", TEXT, "none", "sharding", check=one_of("none", "hard", "soft")),
    Flag("v", WHOLE, 0, "verbosity", short="v"),
)


def options(*argv: str) -> Options:
    return parse(FLAGS, argv, program="hekla test")


def test_defaults_stand_where_nothing_is_given() -> None:
    values = options()
    assert (values.schedule_period, values.worker_threads, values.leader_elect) == (1.0, 3, True)
    assert values.scheduler_name == ["volcano"]
    assert not values.given("mode")


def test_every_way_to_give_a_value() -> None:
    assert options("--schedule-period=500ms").schedule_period == 0.5
    assert options("--schedule-period", "1m30s").schedule_period == 90
    assert options("--schedule_period", "2s").schedule_period == 2
    assert options("--leader-elect").leader_elect is True
    assert options("--leader-elect=false").leader_elect is False
    assert options("--leader-elect", "-v=4").v == 4
    assert options("-v", "5").v == options("-v5").v == options("--v=5").v == 5
    assert options("-leader-elect=false").leader_elect is False


def test_a_repeated_list_grows_and_replaces_the_default() -> None:
    assert options("--scheduler-name=a", "--scheduler-name", "b,c").scheduler_name == [
        "a",
        "b",
        "c",
    ]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--worker-thread=2"], "unknown flag: --worker-thread; did you mean --worker-threads?"),
        (["--zzz"], "unknown flag: --zzz"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--mode"], "flag needs an argument: --mode"),
        (
            ["--worker-threads=two"],
            'invalid argument "two" for "--worker-threads" flag: expected a whole number',
        ),
        (
            ["--worker-threads=0"],
            'invalid argument "0" for "--worker-threads" flag: must be from 1 to 100',
        ),
        (
            ["--schedule-period=5"],
            'invalid argument "5" for "--schedule-period" flag: expected a duration such as 500ms, 1s or 1h30m',
        ),
        (
            ["--schedule-period=-1s"],
            'invalid argument "-1s" for "--schedule-period" flag: must be at least 0',
        ),
        (
            ["--leader-elect=maybe"],
            'invalid argument "maybe" for "--leader-elect" flag: expected true or false',
        ),
        (
            ["--mode=hrad"],
            'invalid argument "hrad" for "--mode" flag: expected one of none, hard, soft; did you mean \'hard\'?',
        ),
        (
            ["leftover"],
            "unexpected argument 'leftover': values follow their flag, as in --flag=value",
        ),
    ],
)
def test_errors_quote_what_was_wrong(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        options(*argv)
    assert str(caught.value) == message


def test_help_lists_every_flag_with_its_default() -> None:
    with pytest.raises(HelpWanted) as caught:
        options("--help")
    text = str(caught.value)
    assert "Usage: hekla test [flags]" in text
    for flag in FLAGS:
        assert f"--{flag.name}" in text
    assert "--schedule-period duration" in text
    assert "time between cycles (default 1s)" in text


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1.5s", 1.5), ("1h0m0.5s", 3600.5), ("300us", 0.0003), ("-2m", -120), ("+1s", 1)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "s", "1", "1 s", "1d", "--1s", "1s-", "nan", "١s", "9" * 400 + "h"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        seconds(text)


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0s"), (0.5, "500ms"), (15, "15s"), (90, "1m30s"), (3600, "1h0m0s")]
)
def test_durations_as_text(value: float, text: str) -> None:
    assert duration_text(value) == text


def test_the_common_flags_have_the_defaults_of_the_original() -> None:
    flags = (
        *connection_flags(2000, 2000),
        *health_flags(),
        *metrics_flags(":8080"),
        *leader_flags("volcano"),
        *gate_flags(),
    )
    values = parse(flags, [])
    assert (values.kube_api_qps, values.kube_api_burst) == (2000, 2000)
    assert (values.enable_healthz, values.healthz_address) == (False, ":11251")
    assert (values.enable_metrics, values.listen_address) == (False, ":8080")
    assert values.leader_elect is True
    assert values.leader_elect_resource_name == "volcano"
    assert values.leader_elect_resource_namespace == "volcano-system"
    assert values.leader_elect_lease_duration == 15
    assert values.leader_elect_renew_deadline == 10
    assert values.leader_elect_retry_period == 2
    assert {name: gate(values, name) for name in GATES} == GATES


def test_feature_gates_are_merged_and_checked() -> None:
    values = parse(
        gate_flags(),
        [
            "--feature-gates=CSIStorage=true,PriorityClass=false",
            "--feature-gates",
            "WorkLoadSupport=false",
        ],
    )
    assert (
        gate(values, "CSIStorage")
        and not gate(values, "PriorityClass")
        and not gate(values, "WorkLoadSupport")
    )
    assert gate(values, "ResourceTopology")
    with pytest.raises(FlagError, match="unrecognized name 'CSIStorag'; did you mean 'CSIStorage'"):
        parse(gate_flags(), ["--feature-gates=CSIStorag=true"])
    with pytest.raises(FlagError, match="expected host:port"):
        parse(health_flags(), ["--healthz-address=11251"])
