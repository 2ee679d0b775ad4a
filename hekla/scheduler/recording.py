"""A recording of a scheduler: everything that went into its cycles, and what came out.

The engine's decisions depend on the calls of its state, the policy and the clock alone.  So a
recording has these, in order: each object that came or went, each bind that failed, the policy with
its plugin files, and the time and decisions of each cycle.  A replay in any process gives the same
decisions byte for byte, unless the code or the policy has changed.

The frames are those of `hekla.engine.tape`, in one stream for each file, flushed after each cycle: a
process that is killed loses the last cycle at most.  Files are numbered; a new process begins a new
file with a header.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hekla import __version__
from hekla.engine.model.decisions import Decisions
from hekla.engine.model.reading import key_of, tree_of_object
from hekla.engine.model.state import State
from hekla.engine.tape import (
    CYCLE,
    EXTENDER,
    OTHERS,
    OUTCOMES,
    POLICY,
    UPDATES,
    Frame,
    RecordingError,
    Writer,
    encoded,
    frames,
    header,
)
from hekla.scheduler.policy_file import PolicyFile

log = logging.getLogger(__name__)

SUFFIX = ".tape"
PART = 64 << 20
"""Bytes after which the next file begins."""
LIMIT = 1 << 30
"""Bytes after which recording stops.  A replay needs the beginning, so old files cannot be
deleted to make room for new ones."""

Ask = Callable[[str, Mapping[str, Any], float], Any]


class Recording:
    """Writes frames to files.  A full disk ends the recording, never the scheduling."""

    def __init__(self, directory: Path, limit: int = LIMIT) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.limit = limit
        self.written = sum(path.stat().st_size for path in directory.glob("*" + SUFFIX))
        self.running = True
        self.policy: Any = None
        self._open()

    def _open(self) -> None:
        numbers = [
            int(path.stem) for path in self.directory.glob("*" + SUFFIX) if path.stem.isdigit()
        ]
        self._file = (self.directory / f"{max(numbers, default=0) + 1:06d}{SUFFIX}").open("xb")
        self._stream = Writer()
        self._part = 0

    def frame(self, *parts: Any) -> None:
        """Write one frame: its type, then its values."""
        if not self.running:
            return
        self._write(self._stream.frame(*parts))

    def cycle(self, now: float, decisions: Decisions) -> None:
        """Write the decisions of a cycle, and flush the file."""
        self.frame(CYCLE, now, encoded(decisions))
        if not self.running:
            return
        self._write(self._stream.flush())
        if self._part > PART:
            self._end_part()
            self._open()

    def take_policy(self, policy: PolicyFile) -> None:
        """Write the policy of the next cycles, if it has changed."""
        if self.policy is not policy.policy:
            self.policy = policy.policy
            self.frame(*frame_of(policy))

    def _write(self, data: bytes) -> None:
        if not data or not self.running:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            self.running = False
            log.error("the recording in %s ends here: %s", self.directory, error)
            return
        self._part += len(data)
        self.written += len(data)
        if self.written > self.limit:
            self.running = False
            log.warning(
                "the recording in %s has reached %d bytes and ends here", self.directory, self.limit
            )

    def _end_part(self) -> None:
        self._write(self._stream.end())
        self._file.close()

    def close(self) -> None:
        """End the recording; later frames are ignored."""
        self._end_part()
        self.running = False


class RecordedState(State):
    """A state that records each call that changes it, before it carries it out."""

    def __init__(self, recording: Recording, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.recording = recording
        self.nested = False
        """Whether a recorded call is under way: the calls that it makes are not recorded."""
        recording.frame(*header(__version__, arguments))


def frame_of(policy: PolicyFile) -> Frame:
    """The frame of the policy in force, with its plugin files."""
    return POLICY, str(policy.path or ""), policy.text, dict(policy.sources)


_FAILURES: dict[str, type[Exception]] = {
    "json": json.JSONDecodeError,
    "value": ValueError,
    "system": OSError,
}


class RecordedExtender:
    """Asks the extender and records its answers, which a replay cannot get again."""

    def __init__(self, recording: Recording, ask: Ask) -> None:
        self.recording = recording
        self.ask = ask

    def __call__(self, address: str, body: Mapping[str, Any], timeout: float) -> Any:
        try:
            answer = self.ask(address, body, timeout)
        except (OSError, ValueError) as error:
            failure = next(name for name, kind in _FAILURES.items() if isinstance(error, kind))
            self.recording.frame(EXTENDER, None, failure, str(error))
            raise
        self.recording.frame(EXTENDER, answer, "", "")
        return answer


class ReplayedExtender:
    """Gives the recorded answers of an extender, in their order."""

    def __init__(self) -> None:
        self.answers: deque[tuple[Any, str, str]] = deque()

    def __call__(self, address: str, body: Mapping[str, Any], timeout: float) -> Any:
        if not self.answers:
            raise OSError(f"{address}: nothing was recorded that it answered")
        answer, failure, text = self.answers.popleft()
        if not failure:
            return answer
        error = json.JSONDecodeError("", "", 0) if failure == "json" else _FAILURES[failure]()
        error.args = (text,)
        raise error


def _key(one: Any) -> Any:
    return one if isinstance(one, str | float | int) else key_of(tree_of_object(one))


def _recorded(name: str) -> Any:
    take = getattr(State, name)
    whole = name.startswith("upsert")

    def recorded(self: RecordedState, *given: Any) -> Any:
        if self.nested:
            return take(self, *given)
        self.recording.frame(name, *(given if whole else [_key(one) for one in given]))
        self.nested = True
        try:
            return take(self, *given)
        finally:
            self.nested = False

    return recorded


for _name in (*UPDATES, *OTHERS, *OUTCOMES):
    setattr(RecordedState, _name, _recorded(_name))


def read(directory: Path) -> Iterator[Frame]:
    """All frames of a recording, without an incomplete last one.  Raises RecordingError."""
    files = sorted(directory.glob("*" + SUFFIX))
    if not files:
        raise RecordingError(f"{directory}: no recording (no *{SUFFIX} in it)")
    for path in files:
        yield from frames(str(path), _pieces(path))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece
