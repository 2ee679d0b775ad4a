"""The entry of network QoS in the chain of CNI plugins, and the plugin that it names.
Reference: agent 9.4.

With tc the agent finds the pods' links by itself and needs no plugin in the chain.  The plugin
restores the limits where the node has been restarted before the agent is back, and hands on the
result of the one before it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hekla.agent.network.limits import limits_of
from hekla.agent.network.state import StateFiles

NAME = "network-qos"
PROGRAM = Path("/opt/cni/bin/network-qos")
"""What a runtime calls for the entry; without it each start of a pod on the node would fail."""
ARGUMENTS = {
    "interval": "check-interval",
    "online_bandwidth_watermark": "online-bandwidth-watermark",
    "offline_low_bandwidth": "offline-low-bandwidth",
    "offline_high_bandwidth": "offline-high-bandwidth",
}
"""Field of the limits -> its flag, and its name in the entry."""
VERSIONS = ("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
UNDECODABLE, INVALID_CONFIGURATION, OWN_ERROR = 6, 7, 100
"""Error codes of the CNI's specification."""

Json = dict[str, Any]


class PluginError(Exception):
    """What the runtime is told; with a code of the CNI's specification."""

    def __init__(self, message: str, code: int = OWN_ERROR) -> None:
        super().__init__(message)
        self.code = code


def entry(texts: dict[str, str]) -> Json:
    """The element of `plugins`, from the texts of the limits."""
    arguments = {name: texts.get(field, "") for field, name in ARGUMENTS.items()}
    return {"name": NAME, "type": NAME, "args": {"colocation": "true", **arguments}}


def _is_ours(element: Any) -> bool:
    return isinstance(element, dict) and NAME in (element.get("name"), element.get("type"))


def add_entry(path: Path, texts: dict[str, str]) -> None:
    """Add the entry, or replace it where it is.  Raises OSError, ValueError."""
    chain = _read(path)
    plugins = chain.setdefault("plugins", [])
    for number, element in enumerate(plugins):
        if _is_ours(element):
            plugins[number] = entry(texts)
            break
    else:
        plugins.append(entry(texts))
    _write(path, chain)


def remove_entry(path: Path) -> None:
    """Remove the entry; a chain without it stays as it is, and so does a missing file.
    Raises OSError, ValueError."""
    try:
        chain = _read(path)
    except FileNotFoundError:
        return
    plugins = chain.get("plugins", [])
    kept = [element for element in plugins if not _is_ours(element)]
    if len(kept) < len(plugins):
        chain["plugins"] = kept
        _write(path, chain)


def _read(path: Path) -> Json:
    try:
        chain = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(chain, dict) or not isinstance(chain.get("plugins", []), list):
        raise ValueError(f"{path}: expected an object with a list of plugins")
    return chain


def _write(path: Path, chain: Json) -> None:
    """In one step, with the mode that the file had: the runtime watches it."""
    temporary = path.with_name(f".{path.name}.hekla")
    temporary.write_text(json.dumps(chain, indent=4) + "\n")
    temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o750)
    temporary.replace(path)


def plugin(command: str, given: str, files: StateFiles) -> str:
    """What the plugin prints for a command of the runtime, which gives its configuration.
    Raises PluginError."""
    if command == "VERSION":
        return json.dumps({"cniVersion": VERSIONS[-1], "supportedVersions": VERSIONS})
    if command not in ("ADD", "DEL", "CHECK"):
        raise PluginError(f"unknown CNI_COMMAND: {command}", INVALID_CONFIGURATION)
    try:
        configuration = json.loads(given)
        if not isinstance(configuration, dict):
            raise ValueError("expected an object")
    except ValueError as error:
        raise PluginError(f"the configuration cannot be read: {error}", UNDECODABLE) from None
    if command != "ADD":
        return ""
    previous = configuration.get("prevResult")
    if previous is None:
        raise PluginError("must be called as chained plugin", INVALID_CONFIGURATION)
    _restore(configuration.get("args") or {}, files)
    return json.dumps(previous)


def _restore(arguments: Json, files: StateFiles) -> None:
    """The limits that a restart of the node has taken away."""
    try:
        if arguments.get("colocation") == "true" and files.limits() is None:
            texts = {field: str(arguments.get(name, "")) for field, name in ARGUMENTS.items()}
            files.set_limits(limits_of(texts))
    except (OSError, ValueError) as error:
        raise PluginError(f"failed to restore the limits: {error}") from None


def prepare(files: StateFiles, chain: Path, texts: dict[str, str]) -> None:
    """Set the limits, and the entry where the plugin is there.  Raises OSError, ValueError."""
    files.set_limits(limits_of(texts, files.limits()))
    if PROGRAM.exists():
        add_entry(chain, texts)


def unprepare(files: StateFiles, chain: Path) -> None:
    """Take the limits of offline pods and the entry back.  Raises OSError, ValueError."""
    files.reset()
    remove_entry(chain)
