"""`python -m tests.kubernetes`: Kubernetes itself as a judge of the local cluster.

build       builds Kubernetes' programs, which takes some ten minutes once
up          a real API server with its controllers, Hekla's fake nodes and Hekla's scheduler
e2e         Kubernetes' own conformance specs
checklist   tests/cluster against the real server
differ      the same requests to both servers, and what differs
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kubernetes import (
    checklist,
    differ,
    differences,
    e2e,
    generated,
    programs,
    scripts,
    shrinking,
)
from tests.kubernetes.clusters import local_cluster, reference_cluster
from tests.kubernetes.processes import NotStarted


def main(arguments: list[str]) -> int:
    """Runs one command; 1 when something is not as it should be, 2 when it could not be found out."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return int(options.command(options))
    except (programs.CannotBuild, NotStarted, e2e.NoSpecs) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    result = argparse.ArgumentParser(
        "python -m tests.kubernetes", description=__doc__, formatter_class=layout
    )
    commands = result.add_subparsers(required=True)
    build_ = commands.add_parser("build", help="build Kubernetes' programs")
    build_.add_argument(
        "names", nargs="*", help=f"of {', '.join(programs.PROGRAMS)} (default: all)"
    )
    build_.set_defaults(command=build)
    up_ = commands.add_parser("up", help="a reference cluster until Ctrl-C")
    up_.set_defaults(command=up)
    e2e_ = commands.add_parser("e2e", help="Kubernetes' own conformance specs")
    e2e_.add_argument("--json", action="store_true", help="send JSON bodies (default: protobuf)")
    e2e_.add_argument(
        "--reference",
        action="store_true",
        help="against the reference server instead of the local cluster",
    )
    e2e_.add_argument(
        "--kubeconfig", type=Path, help="against this cluster, which has four schedulable nodes"
    )
    e2e_.add_argument("--focus", default="", help="only the specs whose name this expression finds")
    e2e_.add_argument("--minutes", type=float, default=30, help="time limit (default: 30)")
    e2e_.add_argument(
        "--processes",
        type=int,
        default=e2e.PROCESSES,
        help="specs at a time (default: %(default)s)",
    )
    e2e_.add_argument("--log", type=Path, help="keep ginkgo's whole output in this file")
    e2e_.set_defaults(command=conformance)
    checklist_ = commands.add_parser("checklist", help="tests/cluster against the reference server")
    checklist_.add_argument("pytest", nargs="*", help="more arguments of pytest, behind --")
    checklist_.set_defaults(command=check)
    differ_ = commands.add_parser("differ", help="the same requests to both servers")
    differ_.add_argument(
        "--scripts", default="", help="only the scripts whose name this expression finds"
    )
    differ_.add_argument(
        "--generated",
        type=int,
        default=0,
        help="so many scripts made up at random, besides those written by hand",
    )
    differ_.add_argument(
        "--seed", type=int, default=1, help="of what is made up (default: %(default)s)"
    )
    differ_.add_argument(
        "--shrink",
        type=int,
        default=0,
        help="show so many of the made-up differences with the least requests",
    )
    differ_.add_argument(
        "--examples",
        type=int,
        default=3,
        help="requests named with each difference (default: %(default)s)",
    )
    differ_.set_defaults(command=differing)
    return result


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build(options: argparse.Namespace) -> int:
    if unknown := [name for name in options.names if name not in programs.PROGRAMS]:
        raise programs.CannotBuild(
            f"there is no program {unknown[0]}; there are {', '.join(programs.PROGRAMS)}"
        )
    for name, path in programs.need(*(options.names or programs.PROGRAMS), say=say).items():
        print(f"{name:<24} {path}")
    return 0


def up(_: argparse.Namespace) -> int:
    with reference_cluster(say) as kubeconfig:
        print(f"Kubernetes {programs.version()} is up; Ctrl-C ends it and removes what it stored.")
        print(f"\n  export KUBECONFIG={kubeconfig}", flush=True)
        while True:
            time.sleep(3600)


@contextmanager
def chosen_cluster(options: argparse.Namespace) -> Iterator[Path]:
    if options.kubeconfig is not None:
        yield options.kubeconfig.absolute()
    elif options.reference:
        with reference_cluster(say) as kubeconfig:
            yield kubeconfig
    else:
        with local_cluster() as kubeconfig:
            yield kubeconfig


def conformance(options: argparse.Namespace) -> int:
    names = [name for name in e2e.listed() if re.search(options.focus, name)]
    programs.need(*programs.JUDGE, say=say)
    content_type = e2e.JSON if options.json else ""
    with chosen_cluster(options) as kubeconfig:
        outcomes = e2e.run(
            kubeconfig,
            names,
            content_type=content_type,
            seconds=60 * options.minutes,
            processes=options.processes,
            log=options.log,
        )
        for (
            outcome
        ) in outcomes:  # told before the cluster ends, which may have something to say too
            print(
                f"{outcome.state:<8} {outcome.seconds:6.1f} s  {outcome.name}"
                + (f"\n         {outcome.failure}" if outcome.failure else "")
            )
        passed = sum(outcome.passed for outcome in outcomes)
        print(f"\n{passed} of {len(names)} specs pass, {len(outcomes)} ran", flush=True)
    return 0 if passed == len(names) else 1


def check(options: argparse.Namespace) -> int:
    with checklist.cluster(say) as kubeconfig:
        return checklist.run(kubeconfig, options.pytest).returncode


def differing(options: argparse.Namespace) -> int:
    chosen = [script for script in scripts.scripts() if re.search(options.scripts, script.name)]
    chosen += generated.scripts(options.seed, options.generated)
    with differ.both(say) as apis:
        requests, found = differ.run_all(chosen, apis, say)
        rest, met = differences.sorted_out(found)
        for script in differ.shortened(rest, chosen, apis, options.shrink):
            print(shrinking.told(script))
    print(differences.report(rest, options.examples))
    print(
        f"\n{requests} requests, {len(rest)} differences, {sum(met.values())} more that are intended"
    )
    return 1 if rest else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
