"""The same scripts against both servers, and where their answers differ.

Both are bare: an API server alone, without controllers and nodes, so that nothing but the requests changes what it holds.
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


@contextmanager
def both(say: programs.Say = lambda _: None) -> Iterator[tuple[Api, Api]]:
    """(the reference server, ours), fresh and bare.  Raises CannotBuild, NotStarted."""
    directory = Path(tempfile.mkdtemp(prefix="hekla-differ-"))
    try:
        with reference(say=say, controllers=False) as server, ApiServerProcess.started(directory) as ours:
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


def run_all(scripts: Iterable[Script], apis: tuple[Api, Api], say: programs.Say = lambda _: None) -> tuple[int, list[Difference]]:
    """(requests sent to each server, all differences)."""
    requests, found = 0, []
    for script in scripts:
        differing = run(script, apis)
        requests += len(script.steps)
        found += differing
        say(f"{script.name}: {len(script.steps)} requests, {len(differing)} differences")
    return requests, found
