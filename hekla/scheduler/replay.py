"""`hekla replay DIR`: runs a recording again and shows the first difference.

Without --policy the decisions must equal the recorded ones, byte for byte; a difference is a bug.
With --policy the same cluster is scheduled by another policy, and the first difference is where
that binds, evicts, pipelines or admits other pods.  Messages are not compared, because they name
plugins. The replay ends at the first difference: after it, the recorded events no longer follow
from the decisions.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hekla.engine.cycle import cycle
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.engine.policies import default_policy
from hekla.engine.tape import (
    CYCLE,
    EXTENDER,
    HEADER,
    POLICY,
    STATE_CALLS,
    RecordingError,
    carry_out,
    encoded,
    state_of,
)
from hekla.scheduler.plugin_files import PluginFileError, find, from_packages, from_texts
from hekla.scheduler.policy_file import PolicyFileError, named_files, parse
from hekla.scheduler.recording import ReplayedExtender, read


class Difference(NamedTuple):
    """The first decision of a replay that differs from the recording."""

    cycle: int
    now: float
    where: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        clock = datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return (
            f"cycle {self.cycle} ({clock} UTC) decided otherwise in {self.where}\n"
            f"  recorded: {shown(self.recorded)}\n  replayed: {shown(self.replayed)}"
        )


class Outcome(NamedTuple):
    """The result of a replay: cycles and binds until its end, and the difference if there was one."""

    cycles: int
    binds: int
    difference: Difference | None


def replay(directory: Path, policy: Policy | None = None) -> Outcome:
    """Run a recording again, with another policy if one is given.  Raises RecordingError and
    PolicyFileError."""
    state, in_force = State(), policy or default_policy()
    extender = ReplayedExtender()
    cycles = binds = 0
    for frame in read(directory):
        word, *given = frame
        if word == HEADER:
            state = state_of(frame, str(directory))
            extender = ReplayedExtender()
            state.use_extender(extender)
        elif word == POLICY:
            in_force = policy or recorded_policy(*given)
        elif word == CYCLE:
            cycles += 1
            now, recorded = given
            outside = (
                {key for key, job in state.jobs.items() if job.is_pending}
                if policy is not None
                else set()
            )
            decisions = cycle(state, in_force, now)
            extender.answers.clear()
            binds += len(decisions.binds)
            replayed = encoded(decisions)
            if replayed != recorded:
                trees = msgspec.msgpack.decode(recorded), msgspec.msgpack.decode(replayed)
                found = next(
                    differences(
                        *(trees if policy is None else (effects(one, outside) for one in trees))
                    ),
                    None,
                )
                if found is not None:
                    where, before, after = found
                    return Outcome(cycles, binds, Difference(cycles, now, where, before, after))
        elif word == EXTENDER:
            extender.answers.append((given[0], given[1], given[2]))
        elif word in STATE_CALLS:
            carry_out(state, frame)
        else:
            raise RecordingError(
                f'{directory}: a frame "{word}" of which this program knows nothing'
            )
    return Outcome(cycles, binds, None)


def effects(decisions: dict[str, Any], outside: Collection[str]) -> dict[str, Any]:
    """The part of decisions that changes the cluster, without messages.  `outside`: keys of the
    jobs that were not admitted before."""
    done = {kind: decisions[kind] for kind in ("binds", "evictions", "pipelined", "gates", "freed")}
    done["evictions"] = [
        {key: value for key, value in one.items() if key != "purpose"} for one in done["evictions"]
    ]
    entered = [
        one["key"]
        for one in decisions["pod_groups"]
        if one["phase"] in ("Inqueue", "Running") and one["key"] in outside
    ]
    return {**done, "let_in": sorted(entered)}


def recorded_policy(name: str, text: str, sources: dict[str, str]) -> Policy:
    """The policy of a frame, with the recorded plugin files; plugins of packages are those that are
    installed now.  Raises PolicyFileError and PluginFileError."""
    if not text:
        return default_policy()
    packaged, broken = from_packages()
    return parse(text, name, {**packaged, **from_texts(sources)}, broken)


def differences(recorded: Any, replayed: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The places where two trees differ, in order: (path, recorded value, replayed value)."""
    if recorded == replayed and type(recorded) is type(replayed):
        return
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for key in dict.fromkeys((*recorded, *replayed)):
            yield from differences(
                recorded.get(key), replayed.get(key), f"{where}.{key}".lstrip(".")
            )
        if recorded == replayed:
            yield f"the order of {where}", list(recorded), list(replayed)
    elif isinstance(recorded, list) and isinstance(replayed, list) and where.count("[") < 2:
        for number in range(max(len(recorded), len(replayed))):
            before, after = (
                one[number] if number < len(one) else None for one in (recorded, replayed)
            )
            yield from differences(before, after, f"{where}[{number}]")
    else:
        yield where, recorded, replayed


def shown(value: Any) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= 400 else text[:400] + " ..."


def main(argv: list[str]) -> int:
    """`hekla replay`: 0 when all decisions equal the recorded ones, 1 when one differs, 2 when the
    recording or the policy cannot be read."""
    parser = argparse.ArgumentParser(
        "hekla replay",
        description="run a scheduler's recording again and show the first difference",
    )
    parser.add_argument("directory", type=Path, help="where `hekla scheduler --record` wrote")
    parser.add_argument(
        "--policy", type=Path, help="another policy file, to see what it would have decided"
    )
    arguments = parser.parse_args(argv)
    try:
        other = None
        if arguments.policy is not None:
            text, name = arguments.policy.read_text(), str(arguments.policy)
            found = find(named_files(text, name))
            other = parse(text, name, found.plugins, found.broken)
        outcome = replay(arguments.directory, other)
        if not outcome.cycles:
            raise RecordingError(f"{arguments.directory}: no whole cycle is recorded")
    except (OSError, RecordingError, PolicyFileError, PluginFileError) as error:
        print(f"hekla replay: {error}", file=sys.stderr)
        return 2
    if outcome.difference is not None:
        print(outcome.difference)
        return 1
    same = (
        "every decision is the recorded one"
        if other is None
        else "this policy would have done the same"
    )
    print(f"{outcome.cycles} cycles with {outcome.binds} binds: {same}.")
    return 0
