"""A daemon as a process: flags, waiting, health, signals, exit codes."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apiserver_process import ApiServerProcess
from tests.ports import free_port

PROGRAM = """
import asyncio, sys
from hekla.kube import daemon
from hekla.kube.flags import TEXT, Flag

FLAGS = (*daemon.connection_flags(), *daemon.health_flags(), *daemon.metrics_flags(), *daemon.leader_flags("t", "default"),
         Flag("end", TEXT, "", "how to end"))

async def run(d):
    print("running", flush=True)
    ready = False
    d.health.ready["warm"] = lambda: None if ready else "not warm yet"
    if d.options.end == "fail":
        raise RuntimeError("a bug")
    if d.options.end == "return":
        return
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)

sys.exit(daemon.main("tester", FLAGS, sys.argv[1:], run))
"""


@contextmanager
def started(tmp_path: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    script = tmp_path / "daemon.py"
    script.write_text(PROGRAM)
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": "", "PYTHONPATH": root}
    process = subprocess.Popen(
        [sys.executable, str(script), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def get(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("flags", "code", "output"),
    [
        (
            ["--kubeconfg=x"],
            1,
            "hekla tester: unknown flag: --kubeconfg; did you mean --kubeconfig?\n",
        ),
        (
            [],
            1,
            "no cluster is configured: give --kubeconfig FILE, set KUBECONFIG, or start one with `hekla up`",
        ),
        (["--kubeconfig=/not/there"], 1, "/not/there: no such kubeconfig file"),
        (["--version"], 0, ""),
        (["--help"], 0, ""),
    ],
)
def test_ends_at_once(tmp_path: Path, flags: list[str], code: int, output: str) -> None:
    with started(tmp_path, *flags) as process:
        out, err = process.communicate(timeout=60)
        assert process.returncode == code
        assert output in err
        if code == 0:
            assert re.match(r"hekla tester \d|Usage: hekla tester \[flags\]", out)


def test_it_waits_for_the_server_and_says_so(tmp_path: Path) -> None:
    with started(tmp_path, f"--master=unix://{tmp_path}/none") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting" in line:
                assert re.match(
                    r"W\d{4} [\d:.]{12} kube.daemon\] waiting for the API server, for 1 s now: unix://",
                    line,
                )
                assert "no such socket; the server is not running" in line
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_it_runs_answers_and_stops_on_a_signal(
    tmp_path: Path, shared_apiserver: ApiServerProcess
) -> None:
    metrics, health = free_port(), free_port()
    flags = [
        f"--kubeconfig={shared_apiserver.internal_kubeconfig}",
        "--enable-metrics",
        f"--listen-address=127.0.0.1:{metrics}",
        "--enable-healthz",
        f"--healthz-address=127.0.0.1:{health}",
    ]
    with started(tmp_path, *flags) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        assert get(health, "/healthz") == (200, "ok")
        assert get(health, "/readyz") == (503, "not warm yet")
        assert get(health, "/metrics")[0] == 404
        assert "process_start_time_seconds" in get(metrics, "/metrics")[1]
        lease = shared_apiserver.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/t"
        )[1]
        assert b'"leaseDurationSeconds":15' in lease

        with started(tmp_path, *flags[:1], *flags[1:3]) as second:
            _, error = second.communicate(timeout=60)
            assert second.returncode == 1
            assert f"--listen-address 127.0.0.1:{metrics}: Address already in use" in error

        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0
        assert out == "cleaned up\n"
        assert "tester has stopped (SIGTERM)" in error
    lease = shared_apiserver.request(
        "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/t"
    )[1]
    assert b'"leaseDurationSeconds":1,' in lease  # given back


@pytest.mark.parametrize(
    ("end", "code", "words"), [("fail", 1, "RuntimeError: a bug"), ("return", 0, "")]
)
def test_how_it_ends(
    tmp_path: Path, shared_apiserver: ApiServerProcess, end: str, code: int, words: str
) -> None:
    flags = (
        f"--kubeconfig={shared_apiserver.internal_kubeconfig}",
        "--leader-elect=false",
        f"--end={end}",
    )
    with started(tmp_path, *flags) as process:
        _, error = process.communicate(timeout=60)
        assert process.returncode == code
        assert words in error


def test_importing_is_quick() -> None:
    heavy = ("yaml", "cryptography", "prometheus_client", "uvloop", "numpy", "rich")
    modules = "hekla.kube.client, hekla.kube.connection.config, hekla.kube.daemon"
    code = f"import sys, {modules}; print([m for m in {heavy!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out == "[]\n"
