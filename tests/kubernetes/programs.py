"""Kubernetes' own programs and those of its neighbours, built from the Go modules beside this file
and kept outside of the repository.

    programs.need("etcd", "kube-apiserver")     builds what is missing; raises CannotBuild with the
    reason programs.wanted("etcd", "kube-apiserver")   the same for tests: skips with the reason

The first build takes some ten minutes of two cores.  What is built stays, and what was begun goes
on where it stopped, because Go keeps every package that it has compiled.  Where the slow lane ends
before a build would, it is not begun.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import lane

MODULES = Path(__file__).with_name("modules")
PATIENCE = 12 * 60.0
"""Seconds that one call may take to build what it needs; HEKLA_KUBERNETES_PATIENCE says otherwise.
"""
PROXY_PATIENCE = 40.0
"""Seconds within which Go has to find out what it can fetch modules from."""
VERSION_PACKAGE = "k8s.io/component-base/version"
ENVIRONMENT = {"GOFLAGS": "", "GOWORK": "off"}
"""What a user may have told Go otherwise."""


class CannotBuild(Exception):
    """Why a program is not there: no Go, no way to the modules, or no time."""


class Program(NamedTuple):
    """One program: the module that pins it and the package that it is."""

    name: str
    module: str
    package: str
    seconds: float
    """What a build takes where nothing has been compiled yet, in this order, on two cores."""
    test: bool = False
    tags: str = ""
    """What is to be left out of it or put in."""


PROGRAMS = {
    program.name: program
    for program in (
        Program("etcd", "etcd", "go.etcd.io/etcd/server/v3", 65),
        Program("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", 215),
        Program(
            "kube-controller-manager",
            "kubernetes",
            "k8s.io/kubernetes/cmd/kube-controller-manager",
            70,
        ),
        Program("e2e.test", "kubernetes", "k8s.io/kubernetes/test/e2e", 145, test=True),
        Program("ginkgo", "kubernetes", "github.com/onsi/ginkgo/v2/ginkgo", 10),
        Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", 25),
        Program("helm", "helm", "helm.sh/helm/v3/cmd/helm", 45),
        Program(
            "prometheus",
            "prometheus",
            "github.com/prometheus/prometheus/cmd/prometheus",
            180,
            tags="remove_all_sd,enable_kubernetes_sd",
        ),
        Program(
            "metrics-server",
            "metrics-server",
            "sigs.k8s.io/metrics-server/cmd/metrics-server",
            150,
        ),
        Program(
            "vpa-recommender",
            "vertical-pod-autoscaler",
            "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender",
            95,
        ),
    )
}
SERVER = ("etcd", "kube-apiserver", "kube-controller-manager")
JUDGE = ("e2e.test", "ginkgo", "kubectl")

Say = Callable[[str], None]


def version() -> str:
    """Of Kubernetes, as the module pins it."""
    found = re.search(
        r"^(?:require |\t)k8s\.io/kubernetes (v\S+)",
        (MODULES / "kubernetes" / "go.mod").read_text(),
        re.M,
    )
    assert found is not None, "modules/kubernetes/go.mod does not pin k8s.io/kubernetes"
    return found.group(1)


def directory() -> Path:
    """Where the programs are: $HEKLA_KUBERNETES, by default ~/.cache/hekla/kubernetes/<version>."""
    if given := os.environ.get("HEKLA_KUBERNETES"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hekla" / "kubernetes" / version()


def need(*names: str, seconds: float | None = None, say: Say = lambda _: None) -> dict[str, Path]:
    """The programs, built where they are missing.  Raises CannotBuild."""
    place = directory()
    missing = [name for name in names if not _is_built(place, PROGRAMS[name])]
    if missing:
        limit = (
            seconds
            if seconds is not None
            else float(os.environ.get("HEKLA_KUBERNETES_PATIENCE", PATIENCE))
        )
        _build(place, missing, time.monotonic() + min(limit, lane.left()), say)
    return {name: place / name for name in names}


def source(name: str, path: str) -> Path:
    """The folder of the module that has `path`, as Go keeps it, beside a program that is built: what
    its users apply to a cluster.  Raises CannotBuild."""
    command = ["go", "list", "-m", "-f={{.Dir}}", path]
    where = MODULES / PROGRAMS[name].module
    found = subprocess.run(
        command,
        cwd=where,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=PROXY_PATIENCE,
        check=False,
    )
    if found.returncode != 0 or not found.stdout.strip():
        raise CannotBuild(f"Go does not keep {path}: {found.stderr.strip()[-300:]}")
    return Path(found.stdout.strip())


def wanted(*names: str, seconds: float | None = None) -> dict[str, Path]:
    """The programs for a test, which is skipped where they cannot be had.

    To be called from a fixture, for a build is no part of a test's own time:
    `@pytest.mark.timeout(..., func_only=True)`.
    """
    try:
        return need(*names, seconds=seconds)
    except CannotBuild as error:
        pytest.skip(str(error))


def slow(seconds: float) -> list[pytest.MarkDecorator]:
    """The marks of a test on these programs that takes so long, on two cores and with everything
    built."""
    return [
        pytest.mark.slow(seconds=seconds),
        pytest.mark.timeout(max(300.0, 4 * seconds), func_only=True),
    ]


def _build(place: Path, names: list[str], deadline: float, say: Say) -> None:
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(f"{', '.join(names)}: not built yet, and this machine has no Go")
    cost = sum(PROGRAMS[name].seconds for name in names)
    if cost > lane.left():
        left = (
            f"{max(0.0, lane.left()) / 60:.0f} of them are left of the slow lane ({lane.MINUTES})"
        )
        raise CannotBuild(
            f"{', '.join(names)}: not built yet, which takes some {cost / 60:.0f} minutes, and {left}"
        )
    _find_modules(go, min(PROXY_PATIENCE, max(1.0, deadline - time.monotonic())))
    place.mkdir(parents=True, exist_ok=True)
    with _lock(place, deadline):
        for name in names:
            program = PROGRAMS[name]
            if not _is_built(place, program):  # another run may have built it while this one waited
                say(f"building {name} ...")
                began = time.monotonic()
                _compile(go, program, place, deadline)
                say(f"built {name} in {time.monotonic() - began:.0f} s")


def _find_modules(go: str, seconds: float) -> None:
    """Raises CannotBuild where Go has Kubernetes neither in its cache nor a proxy that it can be
    fetched from."""
    command = [go, "list", "-m", f"k8s.io/kubernetes@{version()}"]
    try:
        asked = subprocess.run(
            command,
            cwd=MODULES / "kubernetes",
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(
            f"Go has no answer from its module proxy within {seconds:.0f} s"
        ) from None
    if asked.returncode != 0:
        raise CannotBuild(
            f"Go cannot fetch modules: {' | '.join(asked.stderr.strip().splitlines()[-3:])}"
        )


@contextmanager
def _lock(place: Path, deadline: float) -> Iterator[None]:
    """One build at a time; waits for another until the deadline."""
    with (place / ".lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CannotBuild(
                        "another run is building Kubernetes and has not finished in time"
                    ) from None
                time.sleep(0.5)
        yield


def _compile(go: str, program: Program, place: Path, deadline: float) -> None:
    unfinished = place / f".{program.name}.unfinished"
    command = [
        go,
        *(("test", "-c") if program.test else ("build",)),
        "-trimpath",
        "-buildvcs=false",
        "-mod=readonly",
        f"-ldflags={_linker_flags()}",
        *([f"-tags={program.tags}"] if program.tags else []),
        "-o",
        str(unfinished),
        program.package,
    ]
    process = subprocess.Popen(
        command,
        cwd=MODULES / program.module,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise CannotBuild(
                f"{program.name}: not built in time; the next run goes on from here"
            ) from None
        raise
    if process.returncode != 0:
        last = output.decode(errors="replace").strip().splitlines()[-3:]
        raise CannotBuild(f"{program.name}: Go cannot build it: {' | '.join(last)}")
    unfinished.replace(place / program.name)
    (place / f".{program.name}.from").write_text(_origin(program))


def _is_built(place: Path, program: Program) -> bool:
    try:
        return (place / program.name).exists() and (
            place / f".{program.name}.from"
        ).read_text() == _origin(program)
    except OSError:
        return False


def _origin(program: Program) -> str:
    """What a program was built from: another pin or flag gives another text."""
    module = MODULES / program.module
    digest = hashlib.sha256((_linker_flags() + program.tags).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((module / name).read_bytes())
    return digest.hexdigest()


def _linker_flags() -> str:
    # Without these the server says v0.0.0, and its clients take it for one of long ago.
    number = version()
    _, major, minor, _ = re.split(r"[v.]", number, maxsplit=3)
    named = {"gitVersion": number, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(
        ["-s", "-w", *(f"-X {VERSION_PACKAGE}.{name}={value}" for name, value in named.items())]
    )
