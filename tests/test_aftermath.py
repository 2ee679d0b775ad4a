"""A session that is killed leaves no process behind, however well its clusters were made to outlive
their starters."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import aftermath
from tests.local.home import until

ROOT = Path(__file__).parents[1]
SESSION = """
import subprocess, sys
from tests import aftermath
waiting = aftermath.begin()
detached = subprocess.Popen(["sleep", "300"], start_new_session=True)
shim = subprocess.Popen(["sh", "-c", "echo $$; env -i sleep 300 & echo $!; wait"], start_new_session=True, stdout=subprocess.PIPE)
print(detached.pid, shim.stdout.readline().decode().strip(), shim.stdout.readline().decode().strip(), waiting.pid, flush=True)
if sys.stdin.readline():
    aftermath.end(waiting)
"""
KILLED = """
import os, signal
from tests.cluster.api import Api
from tests.cluster.conftest import cluster_of_our_own, find_real_node
from tests.cluster.objects import shell

def test_that_is_killed():
    with cluster_of_our_own(nodes=1) as kubeconfig:
        api = Api(kubeconfig)
        pods = "/api/v1/namespaces/default/pods"
        api.wait("/api/v1/namespaces/default/serviceaccounts/default", lambda _: True)
        api.create(pods, shell("lasting", find_real_node(api), "sleep 300"))
        api.wait(pods + "/lasting", lambda pod: pod["status"]["phase"] == "Running", 30)
        open({place!r}, "w").write(str(kubeconfig.parent))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def outside() -> dict[str, str]:
    """The environment of a session that is not part of this one."""
    return {name: value for name, value in os.environ.items() if name != aftermath.MARK}


def aliases() -> list[str]:
    """Of the interfaces that lead to clusters: the directory of the kubelet that each is for."""
    found = []
    for file in Path("/sys/class/net").glob("hekla*/ifalias"):
        with contextlib.suppress(OSError):  # it has just vanished
            found.append(file.read_text())
    return found


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "ended"])
def test_what_was_started_ends_with_the_session(killed: bool) -> None:
    """Also what is in a session of its own, and what has an environment of its own but a marked
    parent."""
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION],
        cwd=ROOT,
        env=outside(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert session.stdin is not None and session.stdout is not None
    started = [psutil.Process(int(pid)) for pid in session.stdout.readline().split()]
    assert len(started) == 4
    if killed:
        session.kill()
        session.wait(10)
        assert started[0].is_running()
    else:
        session.communicate("end\n", timeout=60)
        assert session.returncode == 0
    _, alive = psutil.wait_procs(started, 30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_cluster_ends_with_the_session_that_was_killed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    story = tmp_path / "test_story.py"
    story.write_text(KILLED.replace("{place!r}", repr(str(place))))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        "-p",
        "tests.conftest",
        str(story),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=outside(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    cluster = place.read_text()

    def named() -> list[list[str]]:
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(cluster in word for word in process.info["cmdline"] or ()):
                found.append(process.info["cmdline"])
        return found

    until("every process of the cluster is gone", lambda: not named(), 40)
    until(
        "the interface of its network is gone",
        lambda: not any(cluster in alias for alias in aliases()),
        20,
    )
