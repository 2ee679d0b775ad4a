"""The same scripts against both servers, and where their answers differ.

Both are bare: an API server alone, without controllers and nodes, so that nothing but the requests
changes what it holds.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.apiserver_process import ApiServerProcess
from tests.cluster.api import Api
from tests.kubernetes import differences, programs
from tests.kubernetes.differences import Difference
from tests.kubernetes.exchange import Run, Script
from tests.kubernetes.reference import reference
from tests.kubernetes.shrinking import shrunk


@contextmanager
def both(say: programs.Say = lambda _: None) -> Iterator[tuple[Api, Api]]:
    """(the reference server, ours), fresh and bare.  Raises CannotBuild, NotStarted."""
    directory = Path(tempfile.mkdtemp(prefix="hekla-differ-"))
    try:
        with (
            reference(say=say, controllers=False) as server,
            ApiServerProcess.started(directory) as ours,
        ):
            yield Api(server.kubeconfig), Api(ours.kubeconfig)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(script: Script, apis: tuple[Api, Api]) -> list[Difference]:
    """The differences of one script, in the order of its steps."""
    expected, ours = (Run(api, script.namespace) for api in apis)
    found: list[Difference] = []
    with ThreadPoolExecutor(1) as other:  # a watch takes its second of both servers at once

        def each(what: str, *arguments: object) -> tuple[object, object]:
            theirs = other.submit(getattr(expected, what), *arguments)
            return getattr(ours, what)(*arguments), theirs.result()

        each("prepare")
        for step in script.steps:
            answer, truth = each("step", step)
            found += differences.between(script, step, truth, answer)  # type: ignore[arg-type]
    return found


def shortest(difference: Difference, script: Script, apis: tuple[Api, Api]) -> Script:
    """The least of a script that shows the same difference: at the same place of a request of the
    same method."""

    def shows(attempt: Script) -> bool:
        rest, _ = differences.sorted_out(run(attempt, apis))
        return any(found.likeness == difference.likeness for found in rest)

    return shrunk(script, shows)


def shortened(
    differences: Iterable[Difference], scripts: Iterable[Script], apis: tuple[Api, Api], most: int
) -> Iterator[Script]:
    """The shortest scripts of so many differences, each of another kind, those of a status first."""
    by_name = {script.name: script for script in scripts}
    unlike = {
        difference.likeness: difference
        for difference in reversed(list(differences))
        if difference.script.startswith("made-up")
    }
    for difference in sorted(unlike.values(), key=lambda found: found.place != "status")[:most]:
        yield shortest(difference, by_name[difference.script], apis)


def run_all(
    scripts: Iterable[Script], apis: tuple[Api, Api], say: programs.Say = lambda _: None
) -> tuple[int, list[Difference]]:
    """(requests sent to each server, all differences)."""
    requests, found = 0, []
    for script in scripts:
        differing = run(script, apis)
        requests += len(script.steps)
        found += differing
        say(f"{script.name}: {len(script.steps)} requests, {len(differing)} differences")
    return requests, found
