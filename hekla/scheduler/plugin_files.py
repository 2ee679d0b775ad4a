"""Loads users' plugins, from installed packages (entry points of the group `hekla.plugins`) and
from files.

A file is compiled from its text each time the configuration is read, so that a change takes effect
without a restart.  A file that cannot be loaded is an error of the configuration: it is reported
with its line, and the last good policy stays in force.  A package that cannot be loaded is an error
only for a policy that names its plugin.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from hekla.engine.framework.custom import CustomPluginError, guarded, is_plugin
from hekla.engine.framework.plugin import Plugin
from hekla.engine.plugins import PLUGINS

log = logging.getLogger(__name__)

GROUP = "hekla.plugins"


class PluginFileError(Exception):
    """Files cannot be loaded; each line of the text reads `file:line: what is wrong`."""


class Found(NamedTuple):
    """Plugin classes by name, and where they come from."""

    plugins: Mapping[str, type[Plugin]]
    sources: Mapping[str, str]
    """File -> its text when it was loaded, for recordings."""
    broken: Mapping[str, str]
    """Entry point -> why it could not be loaded."""


def files_of(directory: str) -> list[Path]:
    """The plugin files of `--plugins-dir`, in the order of their names."""
    return (
        sorted(path for path in Path(directory).glob("*.py") if not path.name.startswith("_"))
        if directory
        else []
    )


def find(files: Iterable[Path]) -> Found:
    """All plugins of installed packages and of these files.  Raises PluginFileError."""
    plugins, broken = from_packages()
    sources: dict[str, str] = {}
    problems: list[str] = []
    for path in files:
        try:
            sources[str(path)] = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path}: {error}")
    if problems:
        raise PluginFileError("\n".join(problems))
    plugins.update(from_texts(sources))
    return Found(plugins, sources, broken)


def from_texts(sources: Mapping[str, str]) -> dict[str, type[Plugin]]:
    """The plugins in these files' texts.  Raises PluginFileError."""
    plugins: dict[str, type[Plugin]] = {}
    problems: list[str] = []
    for file, text in sources.items():
        try:
            module = module_of(file, text)
        except (
            Exception,
            SystemExit,
        ) as error:
            # A user's file may raise anything; one that is a script may call sys.exit.
            problems.append(f"{file}:{line_of(error, file)}: {type(error).__name__}: {error}")
            continue
        found = [
            one
            for one in vars(module).values()
            if is_plugin(one) and one.__module__ == module.__name__
        ]
        if not found:
            problems.append(
                f"{file}:1: no plugin in here: a class with a name and a hook such as predicate or score"
            )
        for one in found:
            try:
                made = guarded(one, file)
            except CustomPluginError as error:
                problems.append(f"{file}:1: {error}")
                continue
            if made.name in PLUGINS or made.name in plugins:
                problems.append(f'{file}:1: the plugin name "{made.name}" is taken; choose another')
                continue
            plugins[made.name] = made
    if problems:
        raise PluginFileError("\n".join(problems))
    return plugins


def module_of(file: str, text: str) -> ModuleType:
    """A module from a file's text, under a name that no other module has."""
    module = ModuleType("hekla_plugin_file." + file.replace("/", "_").replace(".", "_"))
    module.__file__ = file
    code = compile(text, file, "exec")
    sys.modules[module.__name__] = module  # annotations are resolved through this
    exec(code, module.__dict__)
    return module


def line_of(error: BaseException, file: str) -> int:
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 1
    lines = [
        frame.lineno or 1
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return lines[-1] if lines else 1


def from_packages() -> tuple[dict[str, type[Plugin]], dict[str, str]]:
    """Plugins of installed packages, and what could not be loaded and why."""
    plugins: dict[str, type[Plugin]] = {}
    broken: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda one: one.name):
        try:
            module = fresh(point.module)
            user = getattr(module, point.attr)
            if not is_plugin(user):
                raise CustomPluginError(
                    f"{point.value} is no plugin: a class with a name and a hook such as predicate or score"
                )
            made = guarded(user, module.__file__ or point.module)
        except (
            Exception,
            SystemExit,
        ) as error:
            # Whatever a user's package raises while it is imported.
            broken[point.name] = f"{point.value}: {type(error).__name__}: {error}"
            log.warning(
                "plugin %s of an installed package cannot be loaded: %s",
                point.name,
                broken[point.name],
            )
            continue
        if made.name in PLUGINS:
            broken[point.name] = f'{point.value}: the plugin name "{made.name}" is taken'
            continue
        plugins[made.name] = made
    return plugins, broken


_STAMPS: dict[str, float] = {}


def fresh(name: str) -> ModuleType:
    """The imported module, reloaded if its file has changed."""
    known = sys.modules.get(name)
    module = importlib.import_module(name)
    stamp = Path(module.__file__).stat().st_mtime if module.__file__ else 0.0
    if known is not None and _STAMPS.get(name, stamp) != stamp:
        module = importlib.reload(module)
    _STAMPS[name] = stamp
    return module
