"""Kubernetes' own conformance specs, run against a cluster; what ran is counted, because a focus
that matches nothing succeeds too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.kubernetes import programs
from tests.kubernetes.clusters import NODES

SHARED = Path(__file__).parents[2].parent / "shared"
LIST = SHARED / "conformance" / "kubernetes-e2e.txt"
"""Names of the specs that need neither an image nor a pod's network."""
PROCESSES = 6
JSON = "application/json"


class NoSpecs(Exception):
    """Nothing to run, or the run gave no report; the text says why."""


class Outcome(NamedTuple):
    """How one spec went."""

    name: str
    state: str
    seconds: float
    failure: str

    @property
    def passed(self) -> bool:
        return self.state == "passed"


def listed() -> list[str]:
    """The names on the list.  Raises NoSpecs where it is absent."""
    try:
        return [line for line in LIST.read_text().splitlines() if line.strip()]
    except OSError:
        raise NoSpecs(
            f"the list of specs is not beside the repository ({LIST.parent.name}/{LIST.name})"
        ) from None


def run(
    kubeconfig: Path,
    names: Sequence[str],
    *,
    content_type: str = "",
    seconds: float = 30 * 60,
    processes: int = PROCESSES,
    log: Path | None = None,
) -> list[Outcome]:
    """Runs the specs of these names, several at once.  Raises CannotBuild, NoSpecs."""
    if not names:
        raise NoSpecs("no spec has such a name")
    built = programs.need(*programs.JUDGE)
    with tempfile.TemporaryDirectory(prefix="hekla-e2e-") as directory:
        report = Path(directory) / "report.json"
        command = [
            str(built["ginkgo"]),
            f"-procs={processes}",
            "--no-color",
            "--silence-skips",
            f"--timeout={seconds:.0f}s",
            "--keep-going",
            f"--focus={focus(names)}",
            f"--json-report={report}",
            str(built["e2e.test"]),
            "--",
            "--provider=skeleton",
            f"--kubeconfig={kubeconfig}",
            "--allowed-not-ready-nodes=-1",
            "--minStartupPods=-1",
            "--system-pods-startup-timeout=5s",
            "--system-daemonsets-startup-timeout=1s",
            "--node-schedulable-timeout=30s",
            f"--num-nodes={NODES}",
            "--dump-logs-on-failure=false",
            "--disable-log-dump=true",
            f"--kubectl-path={built['kubectl']}",
            *([f"--kube-api-content-type={content_type}"] if content_type else []),
        ]
        environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds + 120,
            check=False,
        )
        if log is not None:
            log.write_bytes(done.stdout)
        if not report.exists():
            raise NoSpecs(
                f"ginkgo ended with {done.returncode} and no report:\n{done.stdout.decode(errors='replace')[-3000:]}"
            )
        return outcomes(json.loads(report.read_bytes()))


def focus(names: Sequence[str]) -> str:
    """Ginkgo's expression for exactly these names; it is matched against the suite's name, a space
    and the spec's."""
    return f" ({'|'.join(quoted(name) for name in names)})$"


def quoted(text: str) -> str:
    # Go's expressions know no escaped space, which re.escape makes.
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


def outcomes(report: list[dict[str, Any]]) -> list[Outcome]:
    """What a report says of each spec that ran, in the order of their names."""
    found = [
        Outcome(
            " ".join([*(spec.get("ContainerHierarchyTexts") or []), spec["LeafNodeText"]]),
            spec["State"],
            spec.get("RunTime", 0) / 1e9,
            reason(spec.get("Failure") or {}),
        )
        for suite in report
        for spec in suite.get("SpecReports") or []
        if spec["LeafNodeType"] == "It" and spec["State"] not in ("skipped", "pending")
    ]
    return sorted(found)


def reason(failure: dict[str, Any]) -> str:
    """A failure on one line: where, then what."""
    if not failure:
        return ""
    location = failure.get("Location") or {}
    place = f"{Path(location.get('FileName', '')).name}:{location.get('LineNumber', 0)}"
    return f"{place}: {' '.join(failure.get('Message', '').split())[:400]}"
