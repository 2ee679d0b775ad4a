"""The policy file: read strictly, watched for changes, and never worse than the last good one.

A file that cannot be used is reported line by line, and the policy in force stays in force and is named with the time from
which it has been.  Reference: scheduler-core 1.3, 1.4.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

import yaml

from hekla.engine.policy import Policy, PolicyError, Problem

log = logging.getLogger(__name__)


class PolicyFileError(Exception):
    """The file cannot be used; the text names the lines."""


def parse(text: str, name: str) -> Policy:
    """The policy of a YAML text.  Raises PolicyFileError whose lines read `name:line: what is wrong`."""
    try:
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        tree = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PolicyFileError(f"{name}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise PolicyFileError(f"{name}: not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise PolicyFileError(f"{name}:1: a policy is a mapping with actions and tiers")
    try:
        return Policy.parse(tree)
    except PolicyError as error:
        raise PolicyFileError("\n".join(f"{name}:{line_of(root, problem)}: {problem}" for problem in error.problems)) from error


def line_of(root: Any, problem: Problem) -> int:
    """The line of the file that a problem is about: the deepest part of its path that is there."""
    node = root
    line: int = node.start_mark.line
    for step in problem.path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            found = (node.value[step], node.value[step])
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return line + 1


class PolicyFile:
    """The policy in force.  Without a path it is the built-in one."""

    def __init__(self, path: str, *, fall_back: bool = True) -> None:
        self.path = Path(path) if path else None
        self.policy = Policy.default()
        self.since = time.time()
        self.stamp: tuple[int, int, int] | None = None
        self.problem = ""
        """Why the file as it is now is not in force; empty when it is."""
        if self.path is not None:
            self.reload(first=True, fall_back=fall_back)

    def changed(self) -> bool:
        """Takes the file if it has changed since the last look; whether another policy is in force now."""
        if self.path is None or self.read_stamp() == self.stamp:
            return False
        return self.reload()

    def read_stamp(self) -> tuple[int, int, int] | None:
        """What tells one state of the file from another: also a mounted ConfigMap's, which is swapped by a link."""
        assert self.path is not None
        try:
            stat = os.stat(self.path)
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def reload(self, *, first: bool = False, fall_back: bool = True) -> bool:
        """Reads the file.  Raises PolicyFileError only at the first time and without a policy to fall back to."""
        assert self.path is not None
        self.stamp = self.read_stamp()
        try:
            policy = parse(self.path.read_text(), str(self.path))
        except (OSError, UnicodeDecodeError, PolicyFileError) as error:
            message = str(error) if isinstance(error, PolicyFileError) else f"{self.path}: {error}"
            if first and not fall_back:
                raise PolicyFileError(message) from error
            clock = time.strftime("%H:%M:%S", time.localtime(self.since))
            self.problem = message
            log.error("%s\nThe policy in force is still %s.", message, "the built-in one" if first else f"the one of {clock}")
            return False
        self.policy, self.since, self.problem = policy, time.time(), ""
        log.info("policy %s: actions %s", self.path, ", ".join(policy.actions))
        return True
