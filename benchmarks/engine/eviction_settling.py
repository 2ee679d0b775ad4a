"""`python -m benchmarks.engine.eviction_settling [SEEDS]`: how many evictions it takes until queues that all want
more are quiet.

In each layout of plugins: the set-up of two queues that deserve 12 of 32 cpus each and ask for all
of them, with jobs of one pod, of four pods with a minimum of two, and of four; then SEEDS random
clusters in all (1,000), the layouts taking turns.  All that is evicted comes back.
"""

from __future__ import annotations

import argparse
import sys

from tests.engine.fairness.settling import LAYOUTS, Settled, played, settled, two_queues

JOBS = {"1 pod": (1, 1), "4, min 2": (4, 2), "4": (4, 4)}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.engine.eviction_settling", description=__doc__
    )
    parser.add_argument("seeds", nargs="?", type=int, default=1000, help="random clusters in all")
    seeds: int = parser.parse_args().seeds
    print(
        f"{'layout':<26}"
        + "".join(f"{name:>10}" for name in JOBS)
        + f"{'random':>9}{'max':>6}{'mean':>7}{'cycles':>8}{'unsettled':>11}"
    )
    unsettled = 0
    of_all: list[Settled] = []
    for at, layout in enumerate(LAYOUTS):
        fixed = [
            settled(two_queues(layout, pods=pods, least=least)) for pods, least in JOBS.values()
        ]
        drawn = [played(layout, seed) for seed in range(at, seeds, len(LAYOUTS))]
        of_all += drawn
        missed = sum(not one.quiet for one in (*fixed, *drawn))
        unsettled += missed
        shown = "".join(f"{one.evictions if one.quiet else 'no end':>10}" for one in fixed)
        print(f"{layout:<26}{shown}{_sums(drawn)}{missed:>11}", flush=True)
    print(f"{'all':<26}{'':>{10 * len(JOBS)}}{_sums(of_all)}{unsettled:>11}")
    return 1 if unsettled else 0


def _sums(found: list[Settled]) -> str:
    if not found:
        return f"{0:>9}{'':>21}"
    evictions = [one.evictions for one in found]
    most = max(one.cycles for one in found)
    return f"{len(found):>9}{max(evictions):>6}{sum(evictions) / len(evictions):>7.2f}{most:>8}"


if __name__ == "__main__":
    sys.exit(main())
