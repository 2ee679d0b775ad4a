"""`hekla rehearse POLICY --recording DIR`: a recorded day under another policy.

What came from outside (jobs, nodes, queues) comes as it was recorded, and pods run as long as they
ran.  The same is simulated under the recorded policy, so that both are alike but for the policy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hekla.cli.arguments import Parser, worded

if TYPE_CHECKING:
    from argparse import Namespace

MOST = 20
"""Jobs that the table names."""


def main(argv: list[str]) -> int:
    """0 when the day was rehearsed, 2 when an input cannot be used."""
    from hekla.cli.whatif.policies import PolicyProblem
    from hekla.engine.tape import RecordingError

    parser = Parser("hekla rehearse", __doc__)
    parser.add_argument("policy", help="a scheduler's policy file")
    parser.add_argument(
        "--recording", metavar="DIR", required=True, help="of `hekla scheduler --record`"
    )
    parser.add_argument(
        "--default-duration",
        metavar="DURATION",
        help="how long pods run whose end was not recorded and that state no walltime (default: for ever)",
    )
    parser.add_argument("--until", metavar="DURATION", help="stop there: 36h, or seconds")
    parser.add_argument(
        "-o", dest="output", choices=("table", "json"), default="table", help="output"
    )
    arguments = parser.parse(argv)
    try:
        return _run(arguments)
    except (OSError, ValueError, PolicyProblem, RecordingError) as error:
        print(f"hekla rehearse: {worded(error)}", file=sys.stderr)
        return 2


def _run(arguments: Namespace) -> int:
    from hekla.cli.simulate import moment, progress_on
    from hekla.cli.whatif.policies import policy_in, policy_recorded
    from hekla.scheduler.recording import read as frames
    from hekla.simulator import recording, report
    from hekla.simulator.differences import differences
    from hekla.simulator.outcome import outcome
    from hekla.simulator.rehearsal import departure, rehearsed, table
    from hekla.simulator.simulation import simulate
    from hekla.simulator.workload import checked

    directory = Path(arguments.recording)
    other = policy_in(arguments.policy)
    default = arguments.default_duration
    duration = None if default is None else moment(default, "--default-duration")
    until = None if arguments.until is None else moment(arguments.until, "--until")
    workload, recorded = recording.read(frames(directory), str(directory), duration)
    own = policy_recorded(recorded)
    for note in checked(workload, str(directory)).notes:
        print(f"note: {note}", file=sys.stderr)
    before, after = simulate(workload, [own, other], until, progress_on(sys.stderr))
    if parts := departure(frames(directory), before):
        print(
            f"note: the day as recorded and its simulation part: {parts}; what follows compares simulations",
            file=sys.stderr,
        )
    jobs = rehearsed(before, after)
    outcomes = [outcome("recorded", before), outcome(Path(arguments.policy).stem, after)]
    outcomes[1].differences = differences("recorded", before, after)
    if arguments.output == "json":
        shown = {
            "policies": json.loads(report.as_json(outcomes)),
            "jobs": [one._asdict() for one in jobs],
        }
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return 0
    print(report.table(outcomes), end="")
    print("\n" + "\n".join(table(jobs, MOST)))
    return 0
