"""The policy: which actions run in which order, and which plugins have a say, in Volcano's
configuration format.

Strict where the original is silent: an unknown action, plugin, key or value is a problem that names
its nearest valid neighbour. Reference: scheduler-core 1.3 to 1.5.
"""

from __future__ import annotations

import difflib
import math
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.plugin import Arguments, Plugin

Path = tuple[str | int, ...]

FLAGS = (
    "enableJobOrder", "enableHierarchy", "enableJobReady", "enableJobPipelined", "enableTaskOrder", "enablePreemptable",
    "enableReclaimable", "enablePreemptive", "enableQueueOrder", "enabledClusterOrder", "enablePredicate", "enableBestNode",
    "enableNodeOrder", "enableTargetJob", "enableReservedNodes", "enableJobEnqueued", "enabledVictim", "enableJobStarving",
    "enabledOverused", "enabledAllocatable", "enabledHyperNodeOrder", "enabledSubJobReady", "enabledSubJobPipelined",
    "enabledSubJobOrder", "enabledHyperNodeGradient",
)  # fmt: skip
_OFF_BY_DEFAULT = frozenset({"enableHierarchy", "enabledClusterOrder"})
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_TOP_KEYS = ("actions", "tiers", "configurations", "metrics", "tieBreaking", "pluginFiles")


class Choice(str):
    """The default of an action's argument that is one of a few words."""

    words: tuple[str, ...]

    def __new__(cls, default: str, words: Iterable[str]) -> Choice:
        made = super().__new__(cls, default)
        made.words = tuple(words)
        return made


class Whole(int):
    """The default of an action's argument that is a whole number within bounds."""

    least: int
    most: int

    def __new__(cls, default: int, least: int, most: int) -> Whole:
        made = super().__new__(cls, default)
        made.least, made.most = least, most
        return made


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a policy, and where."""

    path: Path
    message: str

    def __str__(self) -> str:
        return self.message


class PolicyError(ValueError):
    """The policy cannot be used; `problems` says why, one each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Option:
    """One plugin as the policy lists it."""

    name: str
    flags: Mapping[str, bool]
    arguments: Any
    """An instance of the plugin's own `Arguments`."""
    plugin: type[Plugin]


@dataclass(frozen=True)
class Policy:
    """A policy that was read and checked."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[Option, ...], ...]
    configurations: Mapping[str, Tree] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    tie_seed: int = 0
    """0: ties go to the node that was there first.  Anything else: to a fixed shuffle of the nodes.
    """

    def arguments_of(self, plugin: str) -> list[Any]:
        """The arguments of a plugin, once for each time that the policy lists it."""
        return [one.arguments for tier in self.tiers for one in tier if one.name == plugin]


DEFAULT: Tree = {
    "actions": "enqueue, allocate, backfill",
    "tiers": [
        {
            "plugins": [
                {"name": "priority"},
                {"name": "gang", "enablePreemptable": False},
                {"name": "conformance"},
            ]
        },
        {
            "plugins": [
                {"name": "overcommit"},
                {"name": "drf", "enablePreemptable": False},
                {"name": "predicates"},
                {"name": "proportion"},
                {"name": "nodeorder"},
                {"name": "binpack"},
            ]
        },
    ],
}


class PolicyReader:
    """Reads one policy; knows which plugins and actions there are."""

    def __init__(
        self,
        plugins: Mapping[str, type[Plugin]],
        actions: Mapping[str, Tree],
        defaults: bool,
        strict: bool,
    ) -> None:
        self.actions = actions
        self.plugins = plugins
        self.defaults = defaults
        self.strict = strict
        self.problems: list[Problem] = []

    def read(self, tree: Tree) -> Policy:
        if not isinstance(tree, Mapping):
            raise PolicyError(
                [Problem((), "a policy is a mapping with the keys actions and tiers")]
            )
        for key in tree:
            if key not in _TOP_KEYS:
                self._problem((key,), f'key "{key}" does not exist' + _neighbour(key, _TOP_KEYS))
        actions = self._actions(tree.get("actions", ""))
        tiers = tuple(
            self._tier(("tiers", number), tier)
            for number, tier in enumerate(_list(tree.get("tiers"), self, ("tiers",)))
        )
        configurations: dict[str, Tree] = {}
        for number, one in enumerate(_list(tree.get("configurations"), self, ("configurations",))):
            configurations.setdefault(
                str(one.get("name", "")), self._configuration(("configurations", number), one)
            )
        stated = self._mapping(("metrics",), tree.get("metrics"))
        metrics = {
            str(key): str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in stated.items()
        }
        seed = self._seed(self._mapping(("tieBreaking",), tree.get("tieBreaking")))
        if self.problems and self.strict:
            raise PolicyError(self.problems)
        return Policy(actions, tiers, configurations, metrics, seed)

    def _seed(self, tree: Tree) -> int:
        self._only(("tieBreaking",), tree, ("seed",), "tieBreaking")
        seed = tree.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            self._problem(("tieBreaking", "seed"), f"seed = {seed!r}: a whole number from 0 up")
            return 0
        return seed

    def _mapping(self, path: Path, value: Any) -> Tree:
        if value is None or isinstance(value, Mapping):
            return value or {}
        self._problem(path, f"{path[-1]} = {value!r:.80}: a mapping")
        return {}

    def _only(self, path: Path, tree: Tree, known: Iterable[str], what: str) -> None:
        """Keys that mean nothing here."""
        for key in tree:
            if key not in known:
                self._problem(
                    (*path, key), f'{what}: key "{key}" does not exist' + _neighbour(key, known)
                )

    def _problem(self, path: Path, message: str) -> None:
        self.problems.append(Problem(path, message))

    def _actions(self, text: Any) -> tuple[str, ...]:
        if not isinstance(text, str):
            self._problem(
                ("actions",), f"actions = {text!r}: names separated by commas, in one string"
            )
            return ()
        names = [name.strip() for name in text.split(",")]
        if names == [""]:
            self._problem(
                ("actions",), "actions: at least one has to be named" + _neighbour("", self.actions)
            )
            return ()
        for name in names:
            if name not in self.actions:
                self._problem(
                    ("actions",), f'action "{name}" does not exist' + _neighbour(name, self.actions)
                )
        return tuple(name for name in names if name in self.actions)

    def _tier(self, path: Path, tree: Tree) -> tuple[Option, ...]:
        self._only(path, tree, ("plugins",), "a tier")
        options = []
        for number, one in enumerate(_list(tree.get("plugins"), self, (*path, "plugins"))):
            option = self._option((*path, "plugins", number), one)
            if option is not None:
                options.append(option)
        names = {option.name: option for option in options}
        if (
            "proportion" in names
            and "drf" in names
            and names["drf"].flags["enableHierarchy"]
            and self.defaults
        ):
            self._problem(path, "proportion and drf with hierarchy enabled conflicts")
        return tuple(options)

    def _option(self, path: Path, tree: Tree) -> Option | None:
        name = tree.get("name", "")
        plugin = self.plugins.get(name) if isinstance(name, str) else None
        if plugin is None:
            self._problem(
                (*path, "name"), f'plugin "{name}" does not exist' + _neighbour(name, self.plugins)
            )
            return None
        flags = {flag: self.defaults and flag not in _OFF_BY_DEFAULT for flag in FLAGS}
        for key, value in tree.items():
            if key in ("name", "arguments"):
                continue
            if key not in flags:
                self._problem(
                    (*path, key),
                    f'{name}: key "{key}" does not exist' + _neighbour(key, (*FLAGS, "arguments")),
                )
            elif not isinstance(value, bool):
                self._problem((*path, key), f"{name}: {key} = {value!r}: true or false")
            else:
                flags[key] = value
        stated = self._mapping((*path, "arguments"), tree.get("arguments"))
        return Option(name, flags, self._arguments((*path, "arguments"), plugin, stated), plugin)

    def _arguments(self, path: Path, plugin: type[Plugin], tree: Tree) -> Arguments:
        kind = plugin.Arguments
        known = {
            one.encode_name: one
            for one in msgspec.structs.fields(kind)
            if one.name not in kind.made
        }
        given: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for key, value in tree.items():
            if isinstance(value, float) and not math.isfinite(value):
                self._problem((*path, key), f"{key} = {value}: a finite number")
                continue
            if key in known:
                if known[key].name in kind.by_structure:
                    value = _structure(value, known[key].type)
                try:
                    given[key] = msgspec.convert(_boolean(value, known[key].type), known[key].type)
                except msgspec.ValidationError as error:
                    self._problem((*path, key), f"{key} = {value!r}: {_plain(error)}")
                    given.update(
                        {} if self.strict else _what_can_be_read(key, value, known[key].type)
                    )
            elif kind.accepts(key):
                rest[key] = value
            else:
                self._problem(
                    (*path, key),
                    f'{plugin.name}: argument "{key}" does not exist'
                    + _neighbour(key, list(known)),
                )
        try:
            made = msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            self._problem(path, f"{plugin.name}: {_plain(error)}")
            made = kind()
        try:
            return made.extended(rest)
        except ValueError as error:
            self._problem(path, f"{plugin.name}: {error}")
            return made if self.strict else self._lenient(made, rest)

    @staticmethod
    def _lenient(made: Arguments, rest: Tree) -> Arguments:
        """With those of the further keys that can be read."""
        good = {}
        for key, value in rest.items():
            try:
                made.extended({key: value})
            except ValueError:
                continue
            good[key] = value
        try:
            return made.extended(good)
        except ValueError:
            return made

    def _configuration(self, path: Path, tree: Tree) -> Tree:
        name = str(tree.get("name", ""))
        if name not in self.actions:
            self._problem(
                (*path, "name"), f'action "{name}" does not exist' + _neighbour(name, self.actions)
            )
            return {}
        self._only(path, tree, ("name", "arguments"), f"the configuration of {name}")
        arguments = dict(self._mapping((*path, "arguments"), tree.get("arguments")))
        known = self.actions[name]
        for key, value in list(arguments.items()):
            if key not in known:
                self._problem(
                    (*path, "arguments", key),
                    f'{name}: argument "{key}" does not exist' + _neighbour(key, known),
                )
                continue
            default = known[key]
            if isinstance(default, Choice):
                if value not in default.words:
                    self._problem(
                        (*path, "arguments", key),
                        f"{name}: {key} = {value!r} does not exist"
                        + _neighbour(value, default.words),
                    )
                    del arguments[key]
                continue
            if isinstance(default, Whole):
                if type(value) is not int or not default.least <= value <= default.most:
                    self._problem(
                        (*path, "arguments", key),
                        f"{name}: {key} = {value!r}: a whole number from {default.least} to {default.most}",
                    )
                    del arguments[key]
                continue
            arguments[key] = value = _boolean(value, type(default))
            if type(value) is not type(default):
                wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(
                    type(default), "a text"
                )
                self._problem((*path, "arguments", key), f"{key} = {value!r}: {wanted}")
                del arguments[key]
        return arguments


def _list(value: Any, reader: PolicyReader, path: Path) -> list[Tree]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        reader._problem(path, f"{path[-1]}: a list of mappings")
        return []
    return value


def _what_can_be_read(key: str, value: Any, kind: Any) -> dict[str, Any]:
    """Of a section or a list, the fields and entries that are as they should be."""
    if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
        return {
            key: _good(
                ((name, stated, types[name]) for name, stated in value.items() if name in types)
            )
        }
    inner = typing.get_args(kind)
    if isinstance(value, list) and inner and typing.get_origin(inner[0]) is dict:
        of = typing.get_args(inner[0])[1]
        return {
            key: [
                _good((str(name), stated, of) for name, stated in one.items())
                for one in value
                if isinstance(one, Mapping)
            ]
        }
    return {}


def _good(fields: Iterable[tuple[str, Any, Any]]) -> dict[str, Any]:
    """Those of the fields, given with their types, that can be read."""
    found = {}
    for name, stated, kind in fields:
        try:
            found[name] = msgspec.convert(_boolean(stated, kind), kind)
        except msgspec.ValidationError:
            continue
    return found


def _structure(value: Any, kind: Any) -> Any:
    """A section as the original reads it (plugins-placement 0.2, decode): without regard to case
    and to what is behind a point."""
    if kind is int and isinstance(value, float) and math.isfinite(value):
        return int(value)
    inner = typing.get_args(kind)
    if isinstance(value, list) and inner:
        return [_structure(one, inner[0]) for one in value]
    if not isinstance(value, Mapping):
        return value
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return {name: _structure(one, inner[-1] if inner else Any) for name, one in value.items()}
    fields = {one.encode_name.lower(): one for one in msgspec.structs.fields(kind)}
    return {
        fields[name].encode_name: _structure(one, fields[name].type)
        for key, one in value.items()
        if (name := str(key).lower()) in fields
    }


def _boolean(value: Any, kind: Any) -> Any:
    if kind is bool and isinstance(value, str):
        return True if value in _TRUE else False if value in _FALSE else value
    return value


def _neighbour(name: Any, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return (
        f'; did you mean "{near[0]}"?'
        if near
        else "; known are " + ", ".join(sorted(filter(None, known)))
    )


def _plain(error: Exception) -> str:
    return str(error).split(" - at ")[0].lower()
