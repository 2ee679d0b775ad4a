"""The scoreboard: reads what is published, measures ours, prints both, and writes the page.

`python -m benchmarks scoreboard [FIGURE or PREFIX ...] [--pollux PATH] [--write]`.  With `--write`
what was measured goes to `measured.json`, and the page is made from that file alone: a table that
was not measured again keeps its values, and the page can be checked without measuring.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.figure import Figure

HERE = Path(__file__).parent
PUBLISHED, MEASURED = HERE / "published.tsv", HERE / "measured.json"
PAGE = HERE.parents[1] / "docs" / "scoreboard.md"
SOURCES = {
    "given": "the project's table of figures (`benchmarks/figures.tsv`, `benchmarks/simulate.py`); the log is "
    "`lublin_256.swf` of the Parallel Workloads Archive",
    "fgd": "[Weng et al., Beware of Fragmentation, USENIX ATC 2023]"
    "(https://www.usenix.org/conference/atc23/presentation/weng), values of the project's table of figures",
    "pollux": "[Qiao et al., Pollux, OSDI 2021](https://github.com/petuum/adaptdl/tree/osdi21-artifact/simulator), "
    "`results-jobload/tiresias-1.0`, value of the project's table of figures",
    "gavel": "[Narayanan et al., Gavel, OSDI 2020]"
    "(https://github.com/stanford-futuredata/gavel/blob/master/EXPERIMENTS.md), the log of its figure 8",
    "kueue": "[kubernetes-sigs/kueue]"
    "(https://github.com/kubernetes-sigs/kueue/tree/main/test/performance/scheduler/configs), `rangespec.yaml` of each test",
    "scheduler_perf": "[kubernetes/kubernetes]"
    "(https://github.com/kubernetes/kubernetes/tree/master/test/integration/scheduler_perf), the thresholds in "
    "`misc`, `affinity`, `topology_spreading` and `default_preemption`",
    "volcano": "measured on the same machine: `benchmarks/figures.tsv`",
    "kai": "[NVIDIA/KAI-Scheduler](https://github.com/NVIDIA/KAI-Scheduler/tree/main/test/e2e/scale), "
    "`kwok_scenarios.go`",
}


class Row(NamedTuple):
    """One published value.  `theirs` is a number or a bound in words; `source` a key of SOURCES."""

    table: str
    figure: str
    theirs: str
    unit: str
    what: str
    source: str
    differs: str


class Ours(NamedTuple):
    """What was measured for a row."""

    value: float
    unit: str
    conditions: str


def published() -> list[Row]:
    """Raises ValueError where a row is not whole or names no source."""
    rows = []
    for number, line in enumerate(PUBLISHED.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        words = line.split("\t")
        if len(words) != len(Row._fields) or words[5] not in SOURCES:
            raise ValueError(
                f"{PUBLISHED.name}:{number}: {', '.join(Row._fields)}, with a source out of {', '.join(SOURCES)}"
            )
        rows.append(Row(*words))
    return rows


def measured() -> tuple[dict[str, Ours], dict[str, float]]:
    """Figure -> what was measured last; table -> how many seconds that took."""
    if not MEASURED.exists():
        return {}, {}
    tree = json.loads(MEASURED.read_text())
    return {name: Ours(*one) for name, one in tree["figures"].items()}, tree["seconds"]


def shown(value: float) -> str:
    """Three digits at least, and no more than a measurement is worth."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}" if value else "0"


HEAD = """# Scoreboard

What others have published, and ours beside it. `python -m benchmarks scoreboard` measures all of it anew and prints it, and
`--write` makes this page; `scoreboard kueue` measures what begins with that name. Tables of others are reports of other machines
and programs: the last column says what differs. A bound of a test is not a measurement.
"""
TAIL = """
## Left out

- Conservative backfill on the log: we know of no published value.
- Gavel's other figures are curves, and KAI's results a dashboard, without numbers to compare with.
- Kueue's fourth configuration, by devices that pods claim.

## Pollux's workloads

`--pollux PATH` is the artifact, or its directory `simulator`. That has `workloads/*.csv` with the columns `name`, `time` (seconds),
`application`, `num_replicas` (GPUs) and `batch_size`, and `traces/APPLICATION/` with `placements.csv`, `scalability.csv` and
`validation-BATCH.csv`, from which the length of a job follows. Where a workload has a column `duration` (seconds on its GPUs), no
traces are read, and PATH may be a directory of such files, or one of them.
"""


def page(rows: list[Row], found: Mapping[str, Ours], seconds: Mapping[str, float]) -> str:
    """The page, from the same input the same to the byte."""
    took = sum(seconds.values()) / 60
    text = [
        HEAD,
        f"The tables whose seconds are named took {took:.0f} minutes together, on 2 cores.",
    ]
    for table in dict.fromkeys(row.table for row in rows):
        here = [row for row in rows if row.table == table]
        text += ["", f"## {table}", ""]
        text += ["| what | theirs | ours | figure | what differs |", "|---|---|---|---|---|"]
        for row in here:
            one = found.get(row.figure)
            ours = "not measured" if one is None else f"{shown(one.value)} {one.unit}".rstrip()
            theirs = f"{row.theirs} {row.unit}".rstrip()
            text.append(f"| {row.what} | {theirs} | {ours} | `{row.figure}` | {row.differs} |")
        for name in dict.fromkeys(row.source for row in here):
            text += ["", f"Theirs: {SOURCES[name]}."]
        said = dict.fromkeys(found[row.figure].conditions for row in here if row.figure in found)
        long = f" ({max(seconds[table], 1):,.0f} s)" if table in seconds else ""
        if said:
            text += ["", f"Ours{long}:", "", *(f"- {one}" for one in said)]
    return "\n".join(text) + "\n" + TAIL


def printed(row: Row, ours: Figure) -> str:
    return (
        f"{row.figure:<28} {shown(ours.value):>12} {ours.unit:<7} theirs {row.theirs} {row.unit}".rstrip()
        + f"  ({row.what}; {row.differs})"
    )


def main(
    arguments: list[str], measure: Callable[[set[str], Mapping[str, Path]], Iterator[Figure]]
) -> int:
    """Measure and print; 2 where no row has such a name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks scoreboard", description=__doc__)
    parser.add_argument("names", nargs="*", help="figures, or beginnings of their names")
    parser.add_argument("--pollux", type=Path, help="Pollux's workloads and traces")
    parser.add_argument(
        "--write", action="store_true", help="keep what was measured, make the page"
    )
    asked = parser.parse_args(arguments)
    rows = published()
    chosen = [row for row in rows if not asked.names or row.figure.startswith(tuple(asked.names))]
    if not chosen:
        parser.exit(2, f"no figure of {PUBLISHED.name} has such a name\n")
    paths = {"pollux": asked.pollux} if asked.pollux else {}
    found, seconds = measured()
    for table in dict.fromkeys(row.table for row in chosen):
        here = {row.figure: row for row in chosen if row.table == table}
        began = time.perf_counter()
        for figure in measure(set(here), paths):
            found[figure.name] = Ours(figure.value, figure.unit, figure.conditions)
            print(printed(here.pop(figure.name), figure), flush=True)
        if not here and all(row in chosen for row in rows if row.table == table):
            seconds[table] = round(time.perf_counter() - began)
        for name in here:
            print(f"{name:<28} {'not measured':>12}", flush=True)
        if asked.write:
            write(rows, found, seconds)
    return 0


def write(rows: list[Row], found: Mapping[str, Ours], seconds: Mapping[str, float]) -> None:
    """Keep what was measured, and make the page of it."""
    figures = {name: list(one) for name, one in sorted(found.items())}
    tree = {"figures": figures, "seconds": dict(sorted(seconds.items()))}
    MEASURED.write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(rows, *measured()))
