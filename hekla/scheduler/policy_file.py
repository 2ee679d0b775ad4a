"""The policy file: read strictly and watched for changes.

The errors of a bad file are reported with their lines, and the last good policy stays in force; the
message says since when.  Reference: scheduler-core 1.3, 1.4.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hekla.api.text import yamltext
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.policy import Policy, PolicyError, Problem
from hekla.engine.policies import default_policy, read_policy
from hekla.scheduler.plugin_files import Found, PluginFileError, files_of, find

log = logging.getLogger(__name__)


Stamp = tuple[str, int, int, int]


class PolicyFileError(Exception):
    """The file cannot be used; the text names its lines."""


def parse(
    text: str,
    name: str,
    plugins: Mapping[str, type[Plugin]] | None = None,
    broken: Mapping[str, str] | None = None,
) -> Policy:
    """The policy of a YAML text.  Raises PolicyFileError whose lines read `name:line: what is
    wrong`.

    `plugins`: those of users, by name; `broken`: those that could not be loaded and why.
    """
    try:
        yamltext.check(text)
        root = yaml.compose(text, Loader=yaml.CSafeLoader)
        tree = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise PolicyFileError(f"{name}:{line}: not YAML: {error.problem}") from error
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:
        # An invalid date, a number that is too long, too deep a nesting.
        raise PolicyFileError(f"{name}: not YAML: {error}") from error
    if not isinstance(tree, dict):
        raise PolicyFileError(f"{name}:1: a policy is a mapping with actions and tiers")
    twice = [f'{name}:{line}: key "{key}" stands twice' for line, key in repeated(root)]
    if twice:
        raise PolicyFileError("\n".join(twice))
    try:
        return read_policy(tree, plugins=plugins)
    except PolicyError as error:
        lines = [f"{name}:{line_of(root, problem)}: {problem}" for problem in error.problems]
        lines += [
            f"{name}: plugin {plugin} cannot be loaded: {why}"
            for plugin, why in (broken or {}).items()
        ]
        raise PolicyFileError("\n".join(lines)) from error


def named_files(text: str, name: str) -> list[Path]:
    """The plugin files that a policy names under `pluginFiles`, relative to itself.  Raises
    PolicyFileError."""
    try:
        tree = yamltext.load(text)
    except yaml.YAMLError:
        return []  # `parse` says what is wrong
    listed = tree.get("pluginFiles") if isinstance(tree, dict) else None
    if listed is None:
        return []
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise PolicyFileError(f"{name}: pluginFiles: a list of paths")
    return [Path(name).parent / one for one in listed]


def repeated(root: Any) -> Iterator[tuple[int, str]]:
    """Duplicate keys of mappings, with their lines; YAML itself would silently use the last value."""
    seen, nodes = set(), [root]
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen:  # an alias may lead round in a circle
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            nodes.extend(reversed(node.value))
        elif isinstance(node, yaml.MappingNode):
            known = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                    if key.value in known:
                        yield key.start_mark.line + 1, key.value
                    known.add(key.value)
                nodes.append(value)


def line_of(root: Any, problem: Problem) -> int:
    """The line of the file that a problem is about: the deepest part of its path that is there."""
    node = root
    line: int = node.start_mark.line
    for step in problem.path:
        found = None
        if isinstance(node, yaml.MappingNode):
            found = next(
                ((key, value) for key, value in node.value if key.value == str(step)), None
            )
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value)
        ):
            found = (node.value[step], node.value[step])
        if found is None:
            break
        line, node = found[0].start_mark.line, found[1]
    return line + 1


def stamp_of(path: Path) -> Stamp:
    """The file's identity, size and time of change; zeros if there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return str(path), 0, 0, 0
    return str(path), stat.st_ino, stat.st_mtime_ns, stat.st_size


class PolicyFile:
    """The policy in force.  Without a path it is the built-in one."""

    def __init__(
        self,
        path: str,
        *,
        fall_back: bool = True,
        plugins_dir: str = "",
        default: Policy | None = None,
        adapt: Callable[[Policy], Policy] | None = None,
    ) -> None:
        self.path = Path(path) if path else None
        self.adapt = adapt
        """Turns the policy of a file into this scheduler's policy."""
        self.plugins_dir = plugins_dir
        self.policy = default or default_policy()
        self.text = ""
        """The text of the policy in force; empty for the built-in one."""
        self.sources: Mapping[str, str] = {}
        """Its plugin files, and their texts."""
        self.since = time.time()
        self.stamp: tuple[Stamp, ...] = ()
        self.files: list[Path] = []
        """The plugin files that the policy file named when it was last read."""
        self.problem = ""
        """Why the present file is not in force; empty if it is."""
        if self.path is not None:
            self.reload(first=True, fall_back=fall_back)

    def changed(self) -> bool:
        """Read the file again if it or a plugin file has changed.  Returns whether another policy
        is in force now."""
        if self.path is None or self.read_stamp() == self.stamp:
            return False
        return self.reload()

    def read_stamp(self) -> tuple[Stamp, ...]:
        """The stamps of the policy file and its plugin files.  They change also for a mounted
        ConfigMap, which the kubelet updates by swapping a link."""
        assert self.path is not None
        return tuple(
            stamp_of(path) for path in (self.path, *self.files, *files_of(self.plugins_dir))
        )

    def reload(self, *, first: bool = False, fall_back: bool = True) -> bool:
        """Reads the file.  Raises PolicyFileError only at the first time and without a policy to
        fall back to."""
        assert self.path is not None
        self.stamp = self.read_stamp()
        try:
            text = self.path.read_text()
            self.files = named_files(text, str(self.path))
            self.stamp = self.read_stamp()
            found: Found = find([*self.files, *files_of(self.plugins_dir)])
            policy = parse(text, str(self.path), found.plugins, found.broken)
            policy = policy if self.adapt is None else self.adapt(policy)
        except Exception as error:
            # Whatever is in the file, the scheduler goes on with what it has.
            message = (
                str(error)
                if isinstance(error, PolicyFileError | PluginFileError)
                else f"{self.path}: {type(error).__name__}: {error}"
            )
            if first and not fall_back:
                raise PolicyFileError(message) from error
            clock = time.strftime("%H:%M:%S", time.localtime(self.since))
            self.problem = message
            log.error(
                "%s\nThe policy in force is still %s.",
                message,
                "the built-in one" if first else f"the one of {clock}",
            )
            return False
        self.policy, self.since, self.problem = policy, time.time(), ""
        self.text, self.sources = text, found.sources
        log.info("policy %s: actions %s", self.path, ", ".join(policy.actions))
        return True
