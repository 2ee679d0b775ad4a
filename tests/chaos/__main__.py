"""Kills of every process of a cluster under load, on demand: `python -m tests.chaos --kills 300
--writes 700 --seed 1`."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hekla.local.cluster.cluster import Cluster
from tests.chaos.storm import Storm


def main() -> int:
    """Prints what came of it; 1 where something was lost, went back, or an `up` failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--writes", type=float, default=700.0, help="a second")
    parser.add_argument(
        "--pause", type=float, default=0.7, help="seconds between kills, on average"
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="after which no more kills are begun"
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="hkstorm"))
    environment = {"XDG_STATE_HOME": str(state)}
    cluster = Cluster(state / "hekla" / "storm")
    hekla = [sys.executable, "-m", "hekla"]
    try:
        subprocess.run(
            [*hekla, "up", "--name", "storm"],
            env={**os.environ, **environment},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        storm = Storm(cluster, environment, arguments.writes, arguments.seed)
        tally = asyncio.run(storm.rage(arguments.kills, arguments.pause, arguments.minutes * 60))
        print(f"seed {arguments.seed}\n{tally.text()}", flush=True)
    finally:
        down = subprocess.run(
            [*hekla, "down", "--delete", "--name", "storm"],
            env={**os.environ, **environment},
            check=False,
        )
        shutil.rmtree(state, ignore_errors=True)
    return 1 if tally.lost or tally.backwards or tally.failed or down.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
