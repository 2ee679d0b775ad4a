"""client-go as operators use it: protobuf, informers, leader election, exec and port-forward over
both transports."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import lane
from tests.cluster.conftest import Namespace

SOURCE = Path(__file__).parent / "golang"
BUILD_PATIENCE = 1500
"""Seconds: the first build compiles all of client-go; Go's own cache makes the next ones quick."""
PARTS = [
    "typed",
    "openapi",
    "informer",
    "leader",
    "exec spdy",
    "exec websocket",
    "forward spdy",
    "forward websocket",
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("this machine has no Go; https://go.dev/dl has it")
    made = tmp_path_factory.mktemp("golang") / "clients"
    build = [go, "build", "-o", str(made), "."]
    try:
        done = subprocess.run(
            build,
            cwd=SOURCE,
            capture_output=True,
            text=True,
            timeout=min(BUILD_PATIENCE, lane.left()),
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        pytest.skip(
            f"client-go was not built within {late.timeout:.0f} s; the next run goes on from here"
        )
    if done.returncode and ("dial tcp" in done.stderr or "no such host" in done.stderr):
        pytest.skip(f"the modules of client-go cannot be fetched: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.slow
@pytest.mark.timeout(BUILD_PATIENCE + 120)
def test_client_go(program: Path, kubeconfig: Path, ns: Namespace, sleeper: str) -> None:
    done = subprocess.run(
        [str(program), str(kubeconfig), ns.name, sleeper],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"ok {part}" for part in PARTS]
