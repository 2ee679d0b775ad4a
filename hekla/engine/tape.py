"""The bytes of a recording, and what its frames mean for a state.

A recording is a sequence of frames: a header with the settings of the state, the calls that changed
it, policies, and cycles with their decisions.  A snapshot of a running scheduler is one too, with the
calls that make the state as it is and no cycle.  Frames are msgpack with their length before them, in
zlib streams.  Who reads files or connections hands the bytes in.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hekla.engine.model.decisions import Decisions
from hekla.engine.model.state import State

FORMAT = 1

_KINDS = ("pod", "node", "pod_group", "queue", "priority_class")
UPDATES = (
    *(f"{verb}_{kind}" for verb in ("upsert", "remove") for kind in _KINDS),
    "upsert_namespace",
)
OTHERS = ("upsert_other", "remove_other")
OUTCOMES = ("bind_failed", "evict_failed", "condition_failed")
STATE_CALLS = frozenset((*UPDATES, *OTHERS, *OUTCOMES))
"""The calls that change a state, by which frames are named."""

HEADER, POLICY, CYCLE, EXTENDER, MOMENT = "header", "policy", "cycle", "extender", "moment"
"""The other frames.  `moment` ends a snapshot: the time of the scheduler's clock."""

_RENAMED = {"lone_schedulers": "bare_pod_schedulers"}
"""Settings of the state by the names that older recordings have for them."""

Frame = tuple[Any, ...]


class RecordingError(Exception):
    """A recording cannot be read; the text says where and why."""


class Writer:
    """Frames in, bytes of one stream out."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder(enc_hook=_number)
        self._stream = zlib.compressobj(1)

    def frame(self, *parts: Any) -> bytes:
        """The bytes that are due after this frame; often none yet."""
        body = self._encoder.encode(parts)
        return self._stream.compress(len(body).to_bytes(4, "big") + body)

    def flush(self) -> bytes:
        """All that is due, so that a reader has every frame until here."""
        return self._stream.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """The end of the stream."""
        return self._stream.flush()


class Reader:
    """Bytes of one stream in, frames out.  `name`: of the stream, for errors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stream = zlib.decompressobj()
        self._rest = b""
        self._frames = 0

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """The frames that this piece completes.  Raises RecordingError."""
        try:
            rest = self._rest + self._stream.decompress(piece)
        except zlib.error as error:
            damage = f"damaged after frame {self._frames}" if self._frames else "not a recording"
            raise RecordingError(f"{self.name}: {damage}: {error}") from error
        at = 0
        while at + 4 <= len(rest):
            end = at + 4 + int.from_bytes(rest[at : at + 4], "big")
            if end > len(rest):
                break
            try:
                frame = tuple(msgspec.msgpack.decode(rest[at + 4 : end]))
            except (msgspec.DecodeError, TypeError) as error:
                raise RecordingError(
                    f"{self.name}: damaged after frame {self._frames}: {error}"
                ) from error
            yield frame
            at, self._frames = end, self._frames + 1
        self._rest = rest[at:]


def frames(name: str, pieces: Iterable[bytes]) -> Iterator[Frame]:
    """All frames of one stream, without an incomplete last one.  Raises RecordingError."""
    reader = Reader(name)
    for piece in pieces:
        yield from reader.feed(piece)


def encoded(decisions: Decisions) -> bytes:
    """Decisions as bytes, which a replay compares."""
    return msgspec.msgpack.encode(decisions, enc_hook=_number)


def _number(value: Any) -> Any:
    return value.item()


def header(version: str, settings: dict[str, Any]) -> Frame:
    """The frame that a state of these settings begins with."""
    listed = {
        name: value if isinstance(value, str | bool) else list(value)
        for name, value in settings.items()
    }
    return HEADER, FORMAT, version, listed


def settings_of(frame: Frame, name: str) -> dict[str, Any]:
    """What `State` is made with, out of a header.  Raises RecordingError for another format."""
    if frame[1] != FORMAT:
        raise RecordingError(f"{name}: format {frame[1]}; this program reads {FORMAT}")
    return {_RENAMED.get(one, one): value for one, value in frame[3].items()}


def state_of(frame: Frame, name: str) -> State:
    """The empty state of a header.  Raises RecordingError."""
    try:
        return State(**settings_of(frame, name))
    except TypeError as error:
        raise RecordingError(
            f"{name}: written by version {frame[2]}, which this program cannot replay: {error}"
        ) from error


def carry_out(state: State, frame: Frame) -> None:
    """Make the call of a frame (one of `STATE_CALLS`) once more."""
    word, *given = frame
    try:
        getattr(state, word)(*given)
    except (AttributeError, TypeError, ValueError, KeyError):
        pass  # it failed in the same way when it was recorded
