"""The checklist of tests/cluster against the reference server: a test that fails there says
something untrue of Kubernetes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.api import Api
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

ROOT = Path(__file__).parents[2]
LOCAL_POLICY = ROOT / "hekla" / "local" / "cluster" / "policy.yaml"
"""With which `hekla up` starts its scheduler: one of the scenarios waits for what another queue
gives back."""
FAKE_NODES = 10
"""As tests/cluster has them on a cluster of its own."""
LAST_LINE = re.compile(r"(\d+) of \d+ items pass, (\d+) fail, (\d+) skipped, (\d+) not run")


@contextmanager
def cluster(say: programs.Say = lambda _: None) -> Iterator[Path]:
    """A reference cluster in the shape that the checklist asks for: a node that runs containers,
    and fake ones."""
    with reference(say=say) as server:
        server.add_nodes("--nodes=1", f"--fake-nodes={FAKE_NODES}")
        server.add_scheduler(f"--scheduler-conf={LOCAL_POLICY}")
        server.add_webhooks()
        Api(server.kubeconfig).wait(
            "/apis/scheduling.volcano.sh/v1beta1/queues/default",
            lambda queue: bool(queue.get("status")),
            30.0,
        )
        yield server.kubeconfig


def run(
    kubeconfig: Path, more: Sequence[str] = (), *, seconds: float = 900.0, quiet: bool = False
) -> subprocess.CompletedProcess[str]:
    """pytest over tests/cluster with that kubeconfig; its output goes to the screen unless `quiet`."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/cluster",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--kubeconfig={kubeconfig}",
        *more,
    ]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
        timeout=seconds,
        check=False,
    )


def counts(output: str) -> tuple[int, int, int, int]:
    """(pass, fail, skipped, not run) of the checklist's last line."""
    found = LAST_LINE.search(output)
    assert found is not None, f"the checklist did not finish:\n{output[-3000:]}"
    passed, failed, skipped, rest = map(int, found.groups())
    return passed, failed, skipped, rest
