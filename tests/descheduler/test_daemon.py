"""When cycles start, and what the flags mean."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from hekla.descheduler import daemon
from hekla.descheduler.descheduler import Descheduler, myself
from hekla.descheduler.session import Report
from hekla.kube.daemon import DaemonError
from hekla.kube.flags import Options, parse


class Idle:
    """A descheduler that finds nothing to do."""

    async def cycle(self) -> Report | None:
        return Report()


def options(*argv: str) -> Options:
    return parse(daemon.FLAGS, daemon.renamed(list(argv)))


class Clock:
    """Time that goes on when somebody sleeps, and each cycle takes so many seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cycles: list[float]) -> None:
        self.now = 1_000_000.0
        self.cycles = cycles
        self.starts: list[float] = []
        monkeypatch.setattr(daemon, "sleep", self.sleep)

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def cycle(self) -> Report | None:
        if not self.cycles:
            raise asyncio.CancelledError
        self.starts.append(self.now)
        self.now += self.cycles.pop(0)
        return Report()

    async def run(self, *argv: str) -> list[float]:
        given = options(*argv)
        with pytest.raises(asyncio.CancelledError):
            await daemon.keep_on(cast("Descheduler", self), given, daemon.schedule_of(given), self)
        return self.starts


async def test_an_interval_goes_from_start_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = await Clock(monkeypatch, [2, 25, 3]).run("--descheduling-interval=10s")
    assert [start - starts[0] for start in starts] == [0, 10, 35]


async def test_cron_leaves_out_ticks_that_fall_into_a_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch, [100, 1, 1])
    starts = await clock.run("--descheduling-interval-cron-expression=TZ=UTC * * * * *")
    minutes = [datetime.fromtimestamp(start, UTC).strftime("%H:%M:%S") for start in starts]
    assert minutes == ["13:47:00", "13:49:00", "13:50:00"]


@pytest.mark.scenario("descheduler", "T")
async def test_the_interval_goes_before_cron(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ("--descheduling-interval=10s", "--descheduling-interval-cron-expression=@yearly")
    assert len(await Clock(monkeypatch, [1, 1]).run(*argv)) == 2


async def test_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, [1, 1])
    await daemon.keep_on(cast("Descheduler", clock), options("--once"), None, clock)
    assert len(clock.starts) == 1


@pytest.mark.scenario("descheduler", "U")
@pytest.mark.parametrize(
    "argv", ["--descheduling-interval=1h", "--descheduling-interval-cron-expression=@yearly"]
)
async def test_whoever_is_told_to_stop_stops_at_once(argv: str) -> None:
    given = options(argv)
    idle = cast("Descheduler", Idle())
    work = asyncio.ensure_future(daemon.keep_on(idle, given, daemon.schedule_of(given)))
    await asyncio.sleep(0)
    work.cancel()
    async with asyncio.timeout(1):
        with pytest.raises(asyncio.CancelledError):
            await work


def test_defaults_and_names_of_the_original() -> None:
    given = options(
        "--client-connection-kubeconfig=/k",
        "--client_connection_qps",
        "7",
        "--client-connection-burst=9",
    )
    assert (given.kubeconfig, given.kube_api_qps, given.kube_api_burst) == ("/k", 7, 9)
    assert (
        given.leader_elect,
        given.leader_elect_lease_duration,
        given.leader_elect_renew_deadline,
    ) == (False, 137, 107)
    assert (given.leader_elect_retry_period, given.leader_elect_resource_name) == (
        26,
        "vc-descheduler",
    )
    assert (given.secure_port, given.bind_address, given.dry_run) == (10258, "0.0.0.0", False)


@pytest.mark.scenario("descheduler", "S")
@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "At least one of these two parameter must be configured."),
        (
            ("--descheduling-interval-cron-expression=@often",),
            'expression "@often": unrecognized descriptor: @often',
        ),
    ],
)
def test_without_a_time_there_is_no_start(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(DaemonError) as error:
        daemon.schedule_of(options(*argv))
    assert message in str(error.value)


def test_a_dry_run_needs_no_lease(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "{apiVersion: descheduler/v1alpha2, kind: DeschedulerPolicy, profiles: [{name: p}]}"
    )
    made = daemon.Daemon(
        "descheduler",
        options("--once", "--dry-run", "--leader-elect", f"--policy-config-file={path}"),
    )
    daemon.prepare(made)
    assert not made.options.leader_elect and made.options.dry_run
    assert "disable it to use Leader Election" in caplog.text


def test_events_about_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", "pod-1")
    monkeypatch.setenv("POD_NAMESPACE", "system")
    assert myself("lease", "ns")["metadata"] == {"name": "pod-1", "namespace": "system"}
    monkeypatch.delenv("POD_NAMESPACE")
    assert (myself("lease", "ns")["kind"], myself("lease", "ns")["metadata"]["name"]) == (
        "Lease",
        "lease",
    )


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert daemon.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("Descheduler version ")
