"""`python -m benchmarks [NAME or PREFIX ...] [--step N] [--json]`: measures, and prints each figure
beside its aim.

A benchmark module has `FIGURES`, the names that it can measure, and `measure(names) ->
Iterator[Figure]`, which measures those asked for.  Figures that one set-up gives are measured
together.  One that needs data which is not in the repository has `DATA`, the option that names
its path, and `measure(names, path)`.

`python -m benchmarks scoreboard` prints ours beside what others have published.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

from benchmarks import (
    dayrate,
    fragmentation,
    simulate,
    whatif,
)
from benchmarks.colocation import online, reclaim
from benchmarks.descheduler import engine as descheduler_engine
from benchmarks.descheduler import live_quality
from benchmarks.engine import backfill, scaling
from benchmarks.figure import Aim, Figure
from benchmarks.kube_apiserver import day, jobs, pods, reference, start
from benchmarks.scoreboard import board
from benchmarks.usage import pipeline, top

MODULES = (
    "benchmarks.engine.cycles",
    "benchmarks.engine.hard_cases",
    "benchmarks.engine.backfill",
    "benchmarks.simulate",
    "benchmarks.whatif",
    "benchmarks.fragmentation",
    "benchmarks.apiserver",
    "benchmarks.apiserver_checks",
    "benchmarks.cli",
    "benchmarks.cluster",
    "benchmarks.large_cluster",
    "benchmarks.dayrate",
    "benchmarks.kubelet",
    "benchmarks.controllers",
    "benchmarks.end_to_end",
    "benchmarks.daemon",
    "benchmarks.colocation.cost",
    "benchmarks.colocation.online",
    "benchmarks.colocation.reclaim",
    "benchmarks.descheduler.cycle",
    "benchmarks.descheduler.engine",
    "benchmarks.descheduler.quality",
    "benchmarks.descheduler.live_quality",
    "benchmarks.kube_apiserver.reference",
    "benchmarks.engine.scaling",
    "benchmarks.kube_apiserver.cost",
    "benchmarks.kube_apiserver.day",
    "benchmarks.kube_apiserver.jobs",
    "benchmarks.kube_apiserver.pods",
    "benchmarks.kube_apiserver.start",
    "benchmarks.usage.pipeline",
    "benchmarks.usage.top",
    "benchmarks.scoreboard.gavel",
    "benchmarks.scoreboard.kai",
    "benchmarks.scoreboard.kubescheduler",
    "benchmarks.scoreboard.kueue",
    "benchmarks.scoreboard.pollux",
)

ROOT = Path(__file__).parents[1]


def aims() -> list[Aim]:
    """The table of figures: the shared one, or the copy beside this file where that is absent; and
    our own."""
    shared = ROOT.parent / "shared" / "figures.tsv"
    path = shared if shared.exists() else Path(__file__).with_name("figures.tsv")
    rows = [
        line.split("\t")
        for line in path.read_text().splitlines()
        if line and not line.startswith("#")
    ]
    table = [
        Aim(row[0], row[1], row[2], int(row[3]), row[4] if len(row) > 4 else "") for row in rows
    ]
    return (
        table
        + reference.AIMS
        + simulate.AIMS
        + whatif.AIMS
        + dayrate.AIMS
        + backfill.AIMS
        + fragmentation.AIMS
        + scaling.AIMS
        + day.AIMS
        + jobs.AIMS
        + pods.AIMS
        + start.AIMS
        + descheduler_engine.AIMS
        + live_quality.AIMS
        + pipeline.AIMS
        + top.AIMS
        + online.AIMS
        + reclaim.AIMS
    )


def chosen(table: list[Aim], prefixes: list[str], step: int | None) -> dict[str, Aim]:
    """The aims asked for by name; where a figure has aims in several steps, the highest one not
    past `step` (or of all)."""
    found: dict[str, Aim] = {}
    for aim in table:
        if step is not None and aim.step != step:
            continue
        if prefixes and not any(
            aim.name == p or aim.name.startswith(p + ".") or aim.name.startswith(p)
            for p in prefixes
        ):
            continue
        if aim.name not in found or aim.step > found[aim.name].step:
            found[aim.name] = aim
    return found


def measure(names: set[str], paths: Mapping[str, Path] | None = None) -> Iterator[Figure]:
    """Runs every module that can measure something asked for.  `paths`: option -> where its data
    are; without them a module that needs some is left out."""
    for module_name in MODULES:
        module = import_module(module_name)
        wanted = names & set(module.FIGURES)
        needed: str | None = getattr(module, "DATA", None)
        if wanted and needed is None:
            yield from module.measure(wanted)
        elif wanted and needed and paths and needed in paths:
            yield from module.measure(wanted, paths[needed])


def main() -> int:
    if sys.argv[1:2] == ["scoreboard"]:
        return board.main(sys.argv[2:], measure)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of figures, or beginnings of names")
    parser.add_argument("--step", type=int, help="only the figures of this step")
    parser.add_argument("--pollux", type=Path, help="Pollux's workloads: docs/scoreboard.md")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments = parser.parse_args()
    wanted = chosen(aims(), arguments.names, arguments.step)
    if not wanted:
        print("no figure has such a name; they are in benchmarks/figures.tsv", file=sys.stderr)
        return 2
    if not arguments.json:
        print(f"{'figure':<28} {'value':>12} {'unit':<12} {'aim':<10} {'':<6} conditions")
    measured = set()
    paths = {"pollux": arguments.pollux} if arguments.pollux else {}
    for figure in measure(set(wanted), paths):
        measured.add(figure.name)
        aim = wanted.get(figure.name)
        if arguments.json:
            print(json.dumps(figure._asdict()), flush=True)
        else:
            verdict = "" if aim is None else "met" if aim.met_by(figure.value) else "MISSED"
            shown = (
                f"{figure.value:,.{3 if figure.value < 1 else 1 if figure.value < 1000 else 0}f}"
            )
            print(
                f"{figure.name:<28} {shown:>12} {figure.unit:<12} {aim.aim if aim else '':<10} {verdict:<6} {figure.conditions}",
                flush=True,
            )
    missing = sorted(set(wanted) - measured)
    if missing and not arguments.json:
        print(f"not measured yet: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
