"""How long a fake pod runs and how it ends: by its annotations, else by its command where that
plainly says so, else for ever; a Job's then ends at once.  Pure.

Reference: local-cluster 9.2. The command is understood only where a reader needs no shell to
understand it: `sleep 5`, `sh -c "echo hi; sleep 5 && exit 3"`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hekla.api.names import JOB_CONTROLLER_UID
from hekla.api.text.durations import seconds as go_seconds

START_DELAY = "pod-ready.stage.kwok.x-k8s.io/delay"
START_JITTER = "pod-ready.stage.kwok.x-k8s.io/jitter-delay"
RUN_TIME = "pod-complete.stage.kwok.x-k8s.io/delay"
"""How long the pod runs before its containers end."""
RUN_JITTER = "pod-complete.stage.kwok.x-k8s.io/jitter-delay"
GOING_DELAY = "pod-delete.stage.kwok.x-k8s.io/delay"
"""How long a deleted pod stays; as long as its grace period is nobody waits."""
FAILURE = "pod-container-running-failed.stage.kwok.x-k8s.io"
"""A label `true` under this name makes the pod fail; annotations behind it say how."""
EXIT_CODE = f"{FAILURE}/exit-code"
FAILURE_DELAY = f"{FAILURE}/delay"
FAILURE_REASON = f"{FAILURE}/reason"
FAILURE_MESSAGE = f"{FAILURE}/message"
FAILURE_CONTAINER = f"{FAILURE}/container-name"
FAILURE_JITTER = f"{FAILURE}/jitter-delay"

RESTING = re.compile(r"(?:^|/)(?:pause|agnhost)(?:[:@]|$)")
"""Images that do nothing until they are stopped."""
TRIAL = re.compile(r"test\s[^;&|\n]*")
"""A line that only tests a condition, which is assumed to be true."""
SHELLS = ("sh", "bash", "ash", "dash", "/bin/sh", "/bin/bash", "/bin/ash")
OPAQUE = re.compile(r"[$`|<>(){}*?\\&]")
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"([0-9]*\.?[0-9]+)([smhd]?)")


class Plan(NamedTuple):
    """What becomes of a fake pod."""

    delay: float = 0.0
    """Seconds from bound to running."""
    run_time: float | None = None
    """Seconds of running; None is for ever."""
    code: int = 0
    reason: str = ""
    message: str = ""
    container: str = ""
    """The one that fails; empty for all."""


def waited(annotations: Mapping[str, str], delay: str, jitter: str, luck: float) -> float | None:
    """Seconds by a delay and its upper bound, of which `luck` (0 to 1) picks; None when there is no
    delay."""
    if delay not in annotations and jitter not in annotations:
        return None  # so it is nearly always
    least = duration(annotations.get(delay, ""))
    most = duration(annotations.get(jitter, ""))
    if most is None or most <= (least or 0.0):
        return least
    return (least or 0.0) + luck * (most - (least or 0.0))


def duration(text: str) -> float | None:
    """Seconds of a Go duration, or of a bare number; None when it is neither."""
    try:
        return float(text)
    except ValueError:
        try:
            return go_seconds(text)
        except ValueError:
            return None


def plan(
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    commands: Iterable[list[str]],
    *,
    luck: float = 0.0,
    rests: bool = False,
) -> Plan:
    """The life of a pod with these containers.  One of a Job ends at once where nothing says how
    long it runs.

    `rests`: an image says that it runs until it is stopped.
    """
    delay = waited(annotations, START_DELAY, START_JITTER, luck) or 0.0
    if labels.get(FAILURE) == "true":
        code = annotations.get(EXIT_CODE, "1")
        return Plan(
            delay,
            waited(annotations, FAILURE_DELAY, FAILURE_JITTER, luck) or 0.0,
            int(code) if code.isdigit() else 1,
            annotations.get(FAILURE_REASON, ""),
            annotations.get(FAILURE_MESSAGE, ""),
            annotations.get(FAILURE_CONTAINER, ""),
        )
    run_time = waited(annotations, RUN_TIME, RUN_JITTER, luck)
    if run_time is not None:
        code = annotations.get(EXIT_CODE, "0")
        return Plan(delay, run_time, int(code) if code.isdigit() else 1)
    longest, worst = 0.0, 0
    for command in commands:
        said = meaning(command)
        if said is None:
            # KWOK too lets the pods of a batch/v1 Job complete.
            return Plan(delay, 0.0 if JOB_CONTROLLER_UID in labels and not rests else None)
        longest, worst = max(longest, said[0]), worst or said[1]
    return Plan(delay, longest, worst)


def meaning(command: list[str]) -> tuple[float, int] | None:
    """(seconds, exit code) of a command that plainly says so; None for any other, also for none."""
    if not command:
        return None
    if command[0] in SHELLS and len(command) == 3 and command[1] in ("-c", "-ec", "-ce"):
        return script(command[2])
    return simple(command)


def simple(words: list[str]) -> tuple[float, int] | None:
    name, *rest = words
    name = name.rpartition("/")[2]
    if name == "sleep" and rest:
        total = 0.0
        for word in rest:
            match = DURATION.fullmatch(word)
            if match is None:
                return None
            total += float(match[1]) * UNITS[match[2]]
        return total, 0
    if name in ("true", ":", "echo", "touch", "mkdir"):
        return 0.0, 0
    if name == "false":
        return 0.0, 1
    return None


def script(text: str) -> tuple[float, int] | None:
    """A script of simple commands joined by `;`, `&&` and line ends."""
    if TRIAL.fullmatch(text.strip()):
        return 0.0, 0
    elapsed, code = 0.0, 0
    for words, joint in statements(text):
        if joint == "unclear":
            return None
        if joint == "&&" and code:
            continue
        if words[0] == "exit":
            if len(words) > 2 or (len(words) == 2 and not words[1].isdigit()):
                return None
            return elapsed, int(words[1]) % 256 if len(words) == 2 else code
        said = simple(words)
        if said is None:
            return None
        elapsed, code = elapsed + said[0], said[1]
    return elapsed, code


def statements(text: str) -> Iterable[tuple[list[str], str]]:
    """(words, how it is joined to the one before: "", ";" or "&&"); "unclear" where a shell would
    be needed."""
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=False, punctuation_chars=";&|<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    joint = ""
    found: list[tuple[list[str], str]] = []
    try:
        tokens = list(lexer)
    except ValueError:
        return [([], "unclear")]
    for token in tokens:
        if token in (";", "&&", ";;", "; ;"):
            if words:
                found.append((words, joint))
                words = []
            joint = token if token == "&&" else ";"
            continue
        quoted = token[:1] == "'" and token[-1:] == "'" and len(token) > 1
        bare = (
            token[1:-1]
            if token[:1] in "\"'" and token[-1:] == token[:1] and len(token) > 1
            else token
        )
        if not quoted and OPAQUE.search(bare):
            return [([], "unclear")]
        words.append(bare)
    if words:
        found.append((words, joint))
    return found
