"""How long the command line takes to answer."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figure import Figure

FIGURES = ("cli.help",)
RUNS = 20


def measure(names: set[str]) -> Iterator[Figure]:
    """cli.help: the whole process `vcctl --help`, the median of 20 after one to warm up."""
    command = [str(Path(sys.executable).with_name("vcctl")), "--help"]
    times = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(1000 * (time.perf_counter() - began))
    python = statistics.median(bare_interpreter() for _ in range(5))
    yield Figure(
        "cli.help",
        statistics.median(times[1:]),
        "ms",
        f"median of {RUNS}; an empty Python takes {python:.0f} ms here",
    )


def bare_interpreter() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return 1000 * (time.perf_counter() - began)
