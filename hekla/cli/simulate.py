"""`hekla simulate WORKLOAD`: what a policy would do with a workload, in virtual time.

WORKLOAD is a log in Standard Workload Format (.swf, .swf.gz), pods of the trace openb (.csv,
.csv.gz), jobs in YAML, or the directory of a recording (`hekla scheduler --record`).  Policies are
compared side by side, each on the same jobs and the same cluster: an empty one, or with what runs in it.
"""

from __future__ import annotations

import dataclasses
import gzip
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hekla.api.text import durations
from hekla.cli.arguments import Parser, worded

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import TextIO

    from hekla.engine.framework.policy import Policy
    from hekla.simulator.recording import RecordedPolicy
    from hekla.simulator.workload import Workload

FORMATS = ("swf", "openb", "recording", "yaml")
_ENDINGS = {".swf": "swf", ".csv": "openb"}
MOST_IGNORED = 5
"""Messages of a policy that are shown."""
OUTPUTS = ("table", "csv", "json", "html", "svg")


def main(argv: list[str]) -> int:
    """0 when everything was simulated, 2 when an input cannot be used."""
    from hekla.engine.tape import RecordingError
    from hekla.scheduler.plugin_files import PluginFileError
    from hekla.scheduler.policy_file import PolicyFileError
    from hekla.simulator import swf

    parser = Parser("hekla simulate", __doc__)
    parser.add_argument(
        "workload",
        nargs="?",
        help="the jobs; may be left out where the cluster has jobs that wait",
    )
    parser.add_argument("--format", choices=FORMATS, help="of the workload, else by its name")
    parser.add_argument(
        "--cluster",
        metavar="FILE",
        help="nodes, queues, and what runs and waits: kubectl get -o yaml, or openb's nodes (.csv)",
    )
    parser.add_argument(
        "--default-duration",
        metavar="DURATION",
        help="how long jobs of the cluster or the recording run of which nothing tells it (default: for ever)",
    )
    parser.add_argument(
        "--policy",
        metavar="FILE",
        action="append",
        default=[],
        help="a scheduler's policy; several are compared",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of what is drawn: arrivals and lengths of jobs, order of nodes that tie",
    )
    parser.add_argument("--until", metavar="DURATION", help="stop there: 36h, or seconds")
    parser.add_argument(
        "--schedule-period",
        metavar="DURATION",
        default="0",
        help="a cycle so often while a pod waits, also where nothing happens, for policies that mind the time (default: none)",
    )
    parser.add_argument("-o", dest="output", choices=OUTPUTS, default="table", help="output")
    parser.add_argument(
        "--estimates",
        choices=swf.ESTIMATES,
        default="requested",
        help="walltimes of a log: those that users requested (where they did, else the actual run time), the actual ones, none",
    )
    parser.add_argument(
        "--order",
        choices=("fifo", "shortest-first"),
        default="fifo",
        help="of the jobs of a log, on its own machine",
    )
    parser.add_argument(
        "--pod-processors",
        type=int,
        metavar="N",
        help="processors of a log's pods at most (default: with --cluster 1, else all in one pod)",
    )
    parser.add_argument(
        "--estimate-starts",
        action="store_true",
        help="estimate the start of each job that has to wait as it comes, and say how far that was off",
    )
    arguments = parser.parse(argv)
    try:
        return _run(arguments)
    except (OSError, ValueError, PolicyFileError, PluginFileError, RecordingError) as error:
        print(f"hekla simulate: {worded(error)}", file=sys.stderr)
        return 2


def _run(arguments: Namespace) -> int:
    from hekla.engine.policies import default_policy
    from hekla.scheduler.replay import recorded_policy
    from hekla.simulator import report
    from hekla.simulator.differences import differences
    from hekla.simulator.gantt import gantt
    from hekla.simulator.outcome import outcome
    from hekla.simulator.page.page import page
    from hekla.simulator.simulation import simulate
    from hekla.simulator.start_estimates import simulate_with_estimates
    from hekla.simulator.workload import of_kind

    workload, recorded = read_workload(arguments)
    policies = _policies(arguments.policy)
    names = [Path(one).stem for one in arguments.policy]
    if not policies:
        policies, names = [default_policy()], ["default"]
        if recorded is not None:
            policies, names = [recorded_policy(*recorded)], ["recorded"]
    if arguments.seed:
        policies = [dataclasses.replace(one, tie_seed=arguments.seed) for one in policies]
    until = None if arguments.until is None else moment(arguments.until, "--until")
    period = moment(arguments.schedule_period, "--schedule-period")
    for note in workload.notes:
        print(f"note: {note}", file=sys.stderr)
    progress = progress_on(sys.stderr)
    if arguments.estimate_starts:
        estimated = simulate_with_estimates(workload, policies, until, progress, period)
        runs, found = [run for run, _ in estimated], [one for _, one in estimated]
    else:
        runs, found = simulate(workload, policies, until, progress, period), []
    for policy, run in zip(names, runs):
        for ignored in run.ignored[:MOST_IGNORED]:
            print(f"note: {policy}: {ignored}", file=sys.stderr)
    if arguments.output == "csv":
        print(report.as_csv(names, runs), end="")
        return 0
    if arguments.output == "svg":
        nodes = [str(one["metadata"]["name"]) for one in of_kind(workload.cluster, "Node")]
        print(gantt(list(zip(names, runs)), nodes), end="")
        return 0
    outcomes = [outcome(name, run) for name, run in zip(names, runs)]
    for one, accuracy in zip(outcomes, found):
        one.estimates = accuracy
    for one, run in zip(outcomes[1:], runs[1:]):
        one.differences = differences(names[0], runs[0], run)
    if arguments.output == "html":
        title = Path(arguments.workload or arguments.cluster).name
        print(page(f"{title}: {', '.join(names)}", outcomes, runs), end="")
        return 0
    print((report.as_json if arguments.output == "json" else report.table)(outcomes), end="")
    return 0


def progress_on(terminal: TextIO) -> Callable[[int, int], None] | None:
    """Says on a terminal, once in a second at most, how many jobs have ended; None elsewhere."""
    if not terminal.isatty():
        return None
    told = time.monotonic()

    def progress(ended: int, jobs: int) -> None:
        nonlocal told
        if time.monotonic() - told >= 1 or ended == jobs:
            told = time.monotonic()
            filled = 30 * ended // jobs
            line = f"\r[{'#' * filled}{'.' * (30 - filled)}] {ended:,} of {jobs:,} jobs"
            terminal.write(line if ended < jobs else f"\r{' ' * len(line)}\r")
            terminal.flush()

    return progress


def read_workload(arguments: Namespace) -> tuple[Workload, RecordedPolicy | None]:
    """The jobs and their cluster, and the policy of a recording.  Raises InputError."""
    from hekla.scheduler.recording import read as frames
    from hekla.simulator import clusterfile, openb, recording
    from hekla.simulator.workload import InputError, checked

    if arguments.pod_processors is not None and arguments.pod_processors < 1:
        raise InputError(f"--pod-processors = {arguments.pod_processors}: a whole number from 1 up")
    default = arguments.default_duration
    duration = None if default is None else moment(default, "--default-duration")
    name: str = arguments.workload or arguments.cluster or ""
    if arguments.format == "recording" or (arguments.workload and Path(name).is_dir()):
        if arguments.cluster:
            raise InputError(f"--cluster {arguments.cluster}: a recording has its own cluster")
        workload, recorded = recording.read(frames(Path(name)), name, duration)
        return checked(workload, name), recorded
    workload = _jobs(arguments)
    if arguments.cluster:
        text = read_text(Path(arguments.cluster))
        if arguments.cluster.removesuffix(".gz").endswith(".csv"):
            workload.cluster = openb.read_nodes(text.splitlines(), arguments.cluster)
        else:
            cluster = clusterfile.read(text, arguments.cluster, duration)
            cluster.jobs += workload.jobs
            cluster.notes += workload.notes
            workload = cluster
    elif not name:
        raise InputError("nothing to simulate: give a WORKLOAD, or a cluster with --cluster FILE")
    elif not workload.cluster:
        raise InputError(f"{name}: it names no nodes; give a cluster with --cluster FILE")
    return checked(workload, name), None


def _jobs(arguments: Namespace) -> Workload:
    """The jobs of WORKLOAD, and its machine where it names one."""
    from hekla.simulator import jobfile, openb, swf
    from hekla.simulator.workload import Workload

    name: str | None = arguments.workload
    if name is None:
        return Workload([])
    bare = name.removesuffix(".gz")
    form = arguments.format or _ENDINGS.get(Path(bare).suffix, "yaml")
    text = read_text(Path(name))
    if form == "swf":
        return swf.read(
            text.splitlines(),
            name,
            estimates=arguments.estimates,
            pod_processors=arguments.pod_processors or (1 if arguments.cluster else 0),
            order=arguments.order,
        )
    if form == "openb":
        return openb.read(text.splitlines(), name)
    return jobfile.read(text, name, arguments.seed)


def read_text(path: Path) -> str:
    """The text of a file, packed or not.  Raises OSError and InputError."""
    from hekla.simulator.workload import InputError

    data = path.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        return data.decode("utf-8-sig")
    except (EOFError, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it is no text, nor one that gzip packed: {error}") from error


def _policies(paths: list[str]) -> list[Policy]:
    from hekla.scheduler.plugin_files import find
    from hekla.scheduler.policy_file import named_files, parse

    policies = []
    for path in paths:
        text = Path(path).read_text()
        found = find(named_files(text, path))
        policies.append(parse(text, path, found.plugins, found.broken))
    return policies


def moment(text: str, flag: str) -> int:
    """Microseconds that a flag names.  Raises InputError."""
    from hekla.simulator.workload import InputError, microseconds

    try:
        found = float(text) if text.replace(".", "", 1).isdigit() else durations.seconds(text)
        if found < 0:
            raise ValueError
    except ValueError:
        raise InputError(f"{flag} = {text}: a duration such as 36h, or seconds") from None
    return microseconds(found)
