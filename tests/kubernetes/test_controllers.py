"""The live tests of the controllers once more, with Kubernetes' own server in the place of Hekla's.

They are the same files; only the server behind their fixture is another one.  Stories of whole
clusters, with Kubernetes' controllers at work, are in tests/controllers/whole_cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apiserver_process import SERVER_VARIABLE
from tests.kubernetes import programs

pytestmark = programs.slow(90)

ROOT = Path(__file__).parents[2]
FILES = (
    "test_jobs_live.py", "test_queues_live.py", "test_podgroups_live.py", "test_colocation.py", "jobflow/test_live.py",
    "cronjob/test_live.py", "cronjob/test_reconcile.py", "hypernode/test_live.py", "hypernode/test_ufm.py", "sharding/test_live.py",
    "test_examples.py",
)  # fmt: skip


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("file", FILES)
def test_on_kubernetes_own_server(file: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        "--tb=short",
        str(ROOT / "tests" / "controllers" / file),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, SERVER_VARIABLE: "kubernetes"},
        capture_output=True,
        text=True,
        check=False,
        timeout=340,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"\b[1-9][0-9]* passed", done.stdout)
