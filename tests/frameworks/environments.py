"""Python environments for the frameworks, made once a machine and reused.

They are far too large to stand among Hekla's own dependencies, so each lies in the user's cache,
and a run that cannot have one (no network, a slow one, a framework that does not know this Python)
skips its test with the reason.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from tests import lane

LONGEST_CHECK = 120.0
"""Seconds: the first import of the largest framework reads a gigabyte."""


_refused: dict[str, str] = {}
"""Why a framework could not be had: the tests after the first need not try again."""


def cache() -> Path:
    """Where the environments lie."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hekla" / "frameworks"


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework as pip knows it.

    `image` is the pattern of images that it stands for, `check` a program that ends well where it
    can be used, `patience` how many seconds its installation may take.
    """

    name: str
    image: str
    requirements: tuple[str, ...]
    check: str
    patience: float = 120.0
    entrypoint: str = ""
    """What the image runs, a file of examples/frameworks; empty where manifests have commands of
    their own."""

    def environment(self) -> Path:
        """The directory of the virtual environment; makes it where it is not there.  Skips the test
        where that fails."""
        directory = cache() / self.name
        directory.parent.mkdir(parents=True, exist_ok=True)
        stamp = directory / "made-of"
        wanted = "\n".join((sys.version, *self.requirements))
        with _alone(cache() / "lock"):  # one at a time: they share the disk and the line
            if not (stamp.exists() and stamp.read_text() == wanted):
                if self.name in _refused:
                    pytest.skip(_refused[self.name])
                if self.patience > lane.left():
                    self._refuse(
                        f"is not there, and what is left of the slow lane ({lane.MINUTES}) may not do for its installation"
                    )
                shutil.rmtree(directory, ignore_errors=True)
                try:
                    self._make(directory)
                except BaseException:
                    shutil.rmtree(directory, ignore_errors=True)
                    raise
                stamp.write_text(wanted)
        return directory

    def _make(self, directory: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=60
        )
        python = str(directory / "bin" / "python")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        pip.append("--no-compile")  # most of what is installed is never imported
        self._step([*pip, *self.requirements], "could not be installed", self.patience)
        self._step([python, "-c", self.check], "does not work here", LONGEST_CHECK)

    def _step(self, command: list[str], trouble: str, seconds: float) -> None:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            self._refuse(f"{trouble}: not done after {seconds:.0f} s")
        if done.returncode:
            last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
            self._refuse(f"{trouble}: {' '.join(last) or f'exit code {done.returncode}'}")

    def _refuse(self, why: str) -> NoReturn:
        _refused[self.name] = f"{self.name} {why}"
        pytest.skip(_refused[self.name])


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


MPI = Framework(
    "mpi4py",
    "volcanosh/example-mpi",
    ("mpi4py>=4.1",),
    "from mpi4py import MPI; MPI.Get_library_version()",
)
JAX = Framework("jax", "jax/*", ("jax[cpu]>=0.4.34",), "import jax; jax.distributed")
RAY = Framework("ray", "rayproject/*", ("ray[client]>=2.40",), "import ray.util.client")
TENSORFLOW = Framework(
    "tensorflow-cpu", "tensorflow/*", ("tensorflow-cpu>=2.16",), "import tensorflow", patience=180.0
)
PYTORCH = Framework(
    "torch",
    "pytorch/*",
    ("torch>=2.4", "numpy"),
    "import torch.distributed as d; assert d.is_gloo_available()",
    patience=420.0,
)
"""PyPI's wheel for Linux brings CUDA along, five gigabytes of it: it runs without a GPU, but not
without those (decision 0223)."""

SPARK = Framework(
    "pyspark",
    "spark:*",
    ("pyspark>=3.5.5,<4",),
    "import pyspark",
    patience=240.0,
    entrypoint="spark/entrypoint.sh",
)
"""With a Java from elsewhere."""

FRAMEWORKS = (MPI, JAX, RAY, TENSORFLOW, PYTORCH, SPARK)
