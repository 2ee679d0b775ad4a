"""`hekla demo`: all five stories, as root and as a user with no rights but its home, with and
without namespaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.local.ordinary_user import BECOME, PATIENCE, REFUSED, OrdinaryUser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

STORIES = ("01 hello", "02 two queues", "03 gang too big", "04 task dependency", "05 all-reduce")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may look into, for what a demo leaves behind: nothing."""
    with tempfile.TemporaryDirectory(prefix="hkdemo") as made:
        directory = Path(made)
        directory.chmod(0o755)
        (directory / "tmp").mkdir()
        (directory / "tmp").chmod(0o1777)
        yield directory


def clean(place: Path) -> None:
    """No file and no process of the demo is left."""
    assert list((place / "tmp").iterdir()) == []
    lines = [
        " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    ]
    assert not [line for line in lines if str(place / "tmp") in line]


def green(done: subprocess.CompletedProcess[str]) -> str:
    """What a demo printed of which every story ended as expected."""
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "5 of 5 as expected" in done.stdout
    assert all(story in done.stdout for story in STORIES)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def somebody(place: Path) -> OrdinaryUser:
    user = OrdinaryUser(place)
    user.environment["TMPDIR"] = str(place / "tmp")
    return user


@pytest.mark.parametrize("isolation", ["auto", "none"])
def test_the_demo_is_green_and_leaves_nothing(place: Path, isolation: str) -> None:
    environment = {**os.environ, "TMPDIR": str(place / "tmp"), "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, "-m", "hekla", "demo", f"--isolation={isolation}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ("Pods run without namespaces" in green(done)) == (isolation == "none")
    clean(place)


def test_an_ordinary_user_sees_all_five_stories(place: Path, somebody: OrdinaryUser) -> None:
    printed = green(somebody.hekla("demo"))
    assert "This machine runs pods without: " in printed
    assert "only root can change users" in " ".join(printed.split())
    clean(place)
    assert list(somebody.home.iterdir()) == []


def test_a_user_whom_the_system_refuses_namespaces_sees_them_too(
    place: Path, somebody: OrdinaryUser
) -> None:
    tried = subprocess.run(
        [*BECOME, *REFUSED, "true"],
        env=somebody.environment,
        capture_output=True,
        text=True,
        cwd="/",
    )
    if tried.returncode != 0:
        pytest.skip(f"the limit of namespaces cannot be set here: {tried.stderr}")
    said = " ".join(green(somebody.hekla("demo", within=REFUSED)).split())
    for name in ("private view of the files", "host name of its own", "process tree of its own"):
        assert f"{name} (" in said
    clean(place)
    assert list(somebody.home.iterdir()) == []


def test_ctrl_c_in_the_middle_leaves_nothing(place: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "hekla", "demo"],
        env={**os.environ, "TMPDIR": str(place / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "01 hello" in line:
            break
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.1)
    printed, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, "")
    assert "Interrupted; cleaning up." in printed
    clean(place)
