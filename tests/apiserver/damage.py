"""Damages the files of a server's state in seeded ways, and looks what the next start makes of
that.

    python -m tests.apiserver.damage --cases 5000 --seed 1

Each case copies one of the states that a server leaves, damages one file of it and starts.  Either
the start is refused, names the file and changes nothing, or all that was answered is there, and
still is after more was written.  One exception: where nothing tells how much was answered (after a
power cut), the cut end of the newest log.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hekla.local.apiserver.storage import database, logfile, recovery
from hekla.local.apiserver.storage.database import DATABASE
from hekla.local.apiserver.storage.journal import Journal, StorageError
from hekla.local.apiserver.storage.logfile import COMMITTED, Heading, Record
from hekla.local.apiserver.storage.logwriter import LogWriter

REFUSED, WHOLE, DROPPED, NOTHING_TELLS, WRONG = (
    "refused",
    "whole",
    "tail dropped",
    "tail cut between writes",
    "WRONG",
)
OUTCOMES = (REFUSED, WHOLE, DROPPED, NOTHING_TELLS, WRONG)


def as_it_is(row: Record) -> Record:
    return row


class History:
    """Objects that are made, changed and deleted, and all that was ever the state."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: dict[int, Record] = {}
        self.version = 1
        self.states: dict[int, dict[int, Record]] = {1: {}}
        """By version, after each transaction."""

    def transaction(self) -> list[Record]:
        rows = [self._row() for _ in range(self.random.choice((1, 1, 1, 2, 5, 30)))]
        self.states[self.version] = dict(self.rows)
        return rows

    def _row(self) -> Record:
        self.version += 1
        choice = self.random.random()
        id = (
            len(self.rows) + 1
            if choice < 0.5 or not self.rows
            else self.random.choice(list(self.rows))
        )
        if choice > 0.9 and id in self.rows:
            row = Record(id, None, None, self.version, None)
        else:
            size = self.random.choice((40, 200, 200, 900, 900, 6000))
            data = self.random.randbytes(size // 2).hex().encode()
            row = Record(
                id,
                self.random.choice(("configmaps", "pods")),
                f"default/n{id}",
                self.version,
                b'{"metadata":"%b"}' % data,
            )
        self.rows[id] = row
        return row


class Disk:
    """A directory, written to as the server's processes do."""

    def __init__(self, directory: Path, history: History) -> None:
        self.directory = directory
        self.history = history
        state = recovery.recover(directory, as_it_is)
        self._ours, self._theirs = socket.socketpair()
        self.writer = LogWriter(
            directory, self._theirs, state.log, state.size, state.chain, state.version
        )

    def write(self, transactions: int) -> None:
        for _ in range(transactions):
            rows = self.history.transaction()
            assert self.writer.write(msgspec.msgpack.encode(rows), self.history.version) == ""

    def merge(self) -> None:
        self.writer.switch_log()
        self.writer.merge()
        assert not self.writer.old

    def close(self) -> None:
        os.close(self.writer.log)
        if self.writer.mark.descriptor is not None:
            os.close(self.writer.mark.descriptor)
        self._ours.close()
        self._theirs.close()


@dataclass
class State:
    """A directory as a server has left it."""

    name: str
    directory: Path
    history: dict[int, dict[int, Record]]
    version: int
    power_cut: bool = False
    """How much was answered is known to nobody."""
    older: dict[str, bytes] = field(default_factory=dict)
    """Files as they once were."""

    def files(self) -> list[str]:
        return sorted(path.name for path in self.directory.iterdir())


def merged(disk: Disk) -> None:
    disk.merge()


def young(disk: Disk) -> None:
    disk.write(40)


def unmerged(disk: Disk) -> None:
    disk.merge()
    disk.write(30)


def two_logs(disk: Disk) -> None:
    disk.merge()
    disk.write(25)
    disk.writer.switch_log()
    disk.write(25)


def three_logs(disk: Disk) -> None:
    two_logs(disk)
    disk.writer.switch_log()


def begun(disk: Disk) -> None:
    """Killed between the beginning of a log and the end of the one before."""
    disk.merge()
    disk.write(30)
    writer = disk.writer
    log, _ = logfile.begin(
        disk.directory, Heading(writer.number + 1, writer.chain, writer.version, False)
    )
    os.close(log)


def half_merged(disk: Disk) -> None:
    """Killed before the log that was merged has gone."""
    disk.merge()
    disk.write(30)
    path = logfile.path_of(disk.directory, disk.writer.number)
    disk.writer.switch_log()
    content = path.read_bytes()
    disk.writer.merge()
    path.write_bytes(content)
    disk.write(10)


def committed(disk: Disk) -> None:
    """Killed when what was merged lies in the write-ahead file."""
    disk.merge()
    disk.write(30)
    disk.writer.switch_log()
    disk.write(10)
    with closing(database.writable(disk.directory / DATABASE)) as connection:
        digest = database.digest_of(connection, disk.directory / DATABASE)
        database._merge(connection, disk.writer.old[0], digest)
        kept = {
            path: path.read_bytes()
            for path in disk.directory.iterdir()
            if path.name.startswith(DATABASE)
        }
    for path, content in kept.items():
        path.write_bytes(content)


def power_cut(disk: Disk) -> None:
    unmerged(disk)
    (disk.directory / COMMITTED).unlink()


STATES = (
    merged,
    young,
    unmerged,
    two_logs,
    three_logs,
    begun,
    half_merged,
    committed,
    power_cut,
)


def states(directory: Path, seed: int) -> list[State]:
    """What servers leave, each in a directory of its own."""
    made = []
    for number, leave in enumerate(STATES):
        history = History(seed * 100 + number)
        place = directory / leave.__name__
        place.mkdir()
        disk = Disk(place, history)
        disk.write(30)
        older = {path.name: path.read_bytes() for path in place.iterdir()}
        if leave is not young:
            disk.merge()
            older |= {path.name: path.read_bytes() for path in place.iterdir()}
            disk.write(30)
        leave(disk)
        disk.close()
        (place / "lock").write_text("1")
        made.append(
            State(leave.__name__, place, history.states, history.version, leave is power_cut, older)
        )
    return made


def flip(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)


def scribble(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    at = dice.randrange(len(content))
    some = len(content[at : at + dice.randrange(1, 40)])
    content[at : at + some] = dice.randbytes(some)


def cut(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    del content[
        dice.choice(
            (
                0,
                1,
                dice.randrange(len(content)),
                len(content) - dice.randrange(1, min(60, len(content)) + 1),
            )
        ) :
    ]


def block(dice: random.Random, content: bytearray) -> tuple[int, int]:
    """Where a block begins, and its size; often those of disks."""
    size = dice.choice((1, 8, 64, 512, 512, 4096, 4096))
    at = dice.randrange(len(content))
    return (at // size * size if dice.random() < 0.6 else at), size


def zero(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    at, size = block(dice, content)
    content[at : at + size] = bytes(len(content[at : at + size]))


def zero_end(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    at = max(0, len(content) - dice.choice((1, 10, 100, 512, 5000)))
    content[at:] = bytes(len(content) - at)


def swap(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    first, size = block(dice, content)
    second = dice.randrange(len(content)) // size * size + (first % size)
    first, second = sorted((first, second))
    size = min(size, second - first, len(content) - second)
    if size > 0:
        one, other = content[first : first + size], content[second : second + size]
        content[first : first + size], content[second : second + size] = other, one


def grow(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    content += dice.choice(
        (b"\0", dice.randbytes(1), dice.randbytes(dice.randrange(1, 5000)), bytes(4096))
    )


def go_back(dice: random.Random, content: bytearray, state: State, name: str) -> None:
    """An older copy of the file comes back."""
    content[:] = state.older.get(name, content)


Change = Callable[[random.Random, bytearray, State, str], None]
KINDS: dict[str, tuple[int, Change | None]] = {
    "flip": (30, flip),
    "scribble": (10, scribble),
    "cut": (15, cut),
    "zero": (15, zero),
    "zero the end": (5, zero_end),
    "swap": (15, swap),
    "grow": (4, grow),
    "older copy": (3, go_back),
    "remove": (3, None),
}
"""What is done to a file, and how often."""


class Listener(logging.Handler):
    """Keeps what is said."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def warnings() -> Iterator[list[str]]:
    """What a start says."""
    said: list[str] = []
    handler = Listener(said)
    recovery.log.addHandler(handler)
    recovery.log.propagate, before = False, recovery.log.propagate
    try:
        yield said
    finally:
        recovery.log.removeHandler(handler)
        recovery.log.propagate = before


@dataclass
class Case:
    """One damage, and what came of it."""

    state: str
    file: str
    kind: str
    outcome: str
    text: str


def content_of(directory: Path) -> dict[str, bytes]:
    ours = ("lock", f"{DATABASE}-shm", f"{DATABASE}-wal")  # SQLite may make the last, and empty
    return {
        path.name: path.read_bytes()
        for path in directory.iterdir()
        if path.name not in ours or path.stat().st_size > 40_000
    }


def judge(state: State, directory: Path, name: str, kind: str) -> tuple[str, str]:
    """Starts in a damaged directory; gives the outcome and what was said."""
    before = content_of(directory)
    with warnings() as said:
        try:
            rows, version = start(directory)
        except StorageError as error:
            text = str(error)
            if str(directory / name) not in text or "restore" not in text or "move" in text:
                return WRONG, f"refused, but without its file or what to do: {text}"
            if content_of(directory) != before:
                return WRONG, f"refused, but files were changed: {text}"
            return REFUSED, text
    newest = name == logfile.logs(state.directory)[-1].name
    whole = rows == state.history[state.version] and version == state.version
    if not whole and not (state.power_cut and newest and rows == state.history.get(version)):
        return WRONG, f"version {version} of {state.version}, {len(rows)} rows"
    outlived = go_on(directory, rows, version)
    if outlived:
        return WRONG, outlived
    if whole:
        return WHOLE, "; ".join(said)
    if said and "bytes are dropped" in said[0]:
        return DROPPED, said[0]
    return (NOTHING_TELLS if kind == "cut" else WRONG), f"version {version} of {state.version}"


def start(directory: Path) -> tuple[dict[int, Record], int]:
    journal = Journal(directory, as_it_is)
    try:
        return journal.rows(), journal.version
    finally:
        os.close(journal._lock)


def go_on(directory: Path, rows: dict[int, Record], version: int) -> str:
    """Writes, merges and starts again; says what is wrong then."""
    history = History(version)
    history.rows, history.version = dict(rows), version
    disk = Disk(directory, history)
    try:
        disk.write(3)
        disk.merge()
        disk.write(1)
    finally:
        disk.close()
    found, newest = start(directory)
    return (
        ""
        if (found, newest) == (history.rows, history.version)
        else f"after more writes: version {newest} of {history.version}"
    )


def cases(seed: int, count: int, place: Path) -> Iterator[Case]:
    """Damages so many times, in that directory."""
    made = place / "states"
    made.mkdir()
    known = states(made, seed)
    dice = random.Random(seed)
    weights = [weight for weight, _ in KINDS.values()]
    for number in range(count):
        state = dice.choice(known)
        name = dice.choice([file for file in state.files() if file != "lock"] * 6 + ["lock"])
        kind = dice.choices(list(KINDS), weights)[0]
        change = KINDS[kind][1]
        directory = place / f"case{number}"
        shutil.copytree(state.directory, directory)
        path = directory / name
        content = bytearray(path.read_bytes())
        if change is None:
            path.unlink()
        elif content:
            change(dice, content, state, name)
            path.write_bytes(content)
        try:
            outcome, text = judge(state, directory, name, kind)
        except Exception as error:
            outcome, text = WRONG, f"{type(error).__name__}: {error}"
        shutil.rmtree(directory)
        yield Case(state.name, name, kind, outcome, text)


def memory() -> str | None:
    """Where files cost no disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def table(found: list[Case], of: Callable[[Case], str]) -> str:
    counts = Counter((of(case), case.outcome) for case in found)
    names = list(dict.fromkeys(sorted(of(case) for case in found)))
    lines = [f"{'':18}{'cases':>7}" + "".join(f"{outcome:>25}" for outcome in OUTCOMES)]
    for name in [*names, ""]:
        numbers = [
            sum(
                count
                for (one, what), count in counts.items()
                if what == outcome and name in ("", one)
            )
            for outcome in OUTCOMES
        ]
        lines.append(
            f"{name or 'all':18}{sum(numbers):>7}" + "".join(f"{number:>25}" for number in numbers)
        )
    return "\n".join(lines)


def file_kind(case: Case) -> str:
    return "state.log.N" if case.file.startswith(logfile.LOG) else case.file


def main() -> int:
    parser = argparse.ArgumentParser(description="damage the files of a server's state, and start")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=memory()) as place:
        found = list(cases(options.seed, options.cases, Path(place)))
    for of in (lambda case: case.kind, file_kind, lambda case: case.state):
        print(table(found, of), end="\n\n")
    wrong = [case for case in found if case.outcome == WRONG]
    for case in wrong[:20]:
        print(case)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
