"""`hekla network-qos`: the limits and the counters of network QoS by hand, and as a CNI plugin where
CNI_COMMAND is set.  Reference: agent 9.3, whose texts these are."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from hekla import __version__
from hekla.agent.machine import machine
from hekla.agent.network import cni
from hekla.agent.network.limits import DEFAULT_INTERVAL, limits_of
from hekla.agent.network.state import StateFiles
from hekla.kube.flags import TEXT, YES_NO, Flag, FlagError, HelpWanted, Options, parse

LOGS = Path("/var/log/volcano/agent")
"""Where the original logs, if there is such a directory."""
NOT_INITIALIZED = "network qos has not been initialized, please enable network qos first"
FLAGS = (
    Flag("check-interval", TEXT, "", "nanoseconds between two looks at the traffic"),
    Flag("online-bandwidth-watermark", TEXT, "",
         "what all online pods may send before offline pods are held to the low bandwidth, as in 800Mbps"),
    Flag("offline-low-bandwidth", TEXT, "", "what all offline pods may send while online pods send more than that"),
    Flag("offline-high-bandwidth", TEXT, "", "what all offline pods may send otherwise"),
    Flag("enable-network-qos", YES_NO, False, "prepare: whether to set the limits, or to reset them"),
)  # fmt: skip

log = logging.getLogger(__name__)


class CommandError(Exception):
    """The text is what is printed after `error:`."""


def texts_of(options: Options) -> dict[str, str]:
    """The limits as the command line has them."""
    return {
        field: getattr(options, name.replace("-", "_")) for field, name in cni.ARGUMENTS.items()
    }


def set_limits(options: Options, files: StateFiles) -> str:
    limits = limits_of(texts_of(options), files.limits())
    files.set_limits(limits)
    return f"throttling config set: {_json(limits)}\n"


def show(options: Options, files: StateFiles) -> str:
    limits = files.limits()
    if limits is None:
        raise CommandError(f"{files.limits_file}: no such file, {NOT_INITIALIZED}")
    return f"network-qos config: {_json(limits.shown())}\n"


def reset(options: Options, files: StateFiles) -> str:
    limits = files.reset()
    if limits is None:
        return "throttling config does not exist, reset successfully"
    return f"throttling config reset: {_json(limits)}\n"


def status(options: Options, files: StateFiles) -> str:
    try:
        return f"throttling status: {_json(files.status())}\n"
    except FileNotFoundError:
        raise CommandError(f"{files.status_file}: no such file, {NOT_INITIALIZED}") from None


def prepare(options: Options, files: StateFiles) -> str:
    chain = machine().cni_conf
    if not options.enable_network_qos:
        cni.unprepare(files, chain)
        return ""
    texts = texts_of(options)
    cni.prepare(files, chain, {**texts, "interval": texts["interval"] or DEFAULT_INTERVAL})
    return ""


COMMANDS: dict[str, Callable[[Options, StateFiles], str]] = {
    "set": set_limits,
    "show": show,
    "reset": reset,
    "status": status,
    "prepare": prepare,
    "version": lambda options, files: f"hekla network-qos {__version__}\n",
}


def main(argv: list[str]) -> int:
    """`hekla network-qos`."""
    if os.environ.get("CNI_COMMAND"):
        return as_plugin(os.environ["CNI_COMMAND"])
    _log_to(LOGS / "network-qos-tools.log")
    name, rest = (argv[0], argv[1:]) if argv else ("--help", [])
    try:
        if name not in COMMANDS and not name.startswith("-"):
            raise FlagError(f'unknown command "{name}" for "network-qos": {", ".join(COMMANDS)}')
        options = parse(
            FLAGS, rest if name in COMMANDS else argv, program=f"hekla network-qos {name}"
        )
    except HelpWanted as text:
        print(
            str(text)
            if name in COMMANDS
            else f"Usage: hekla network-qos {'|'.join(COMMANDS)} [flags]"
        )
        return 0
    except FlagError as error:
        return _failed("execute command failed", error)
    if name not in COMMANDS:
        return _failed("execute command failed", "flags come after a command")
    try:
        told = COMMANDS[name](options, StateFiles())
    except (CommandError, OSError, ValueError) as error:
        return _failed(f"execute command[{name}] failed", error)
    sys.stdout.write(told)
    log.info("%s: %s", " ".join(argv), told.strip() or "done")
    return 0


def as_plugin(command: str) -> int:
    """As the runtime calls it: configuration at stdin, result or error at stdout."""
    _log_to(LOGS / "network-qos.log")
    try:
        print(cni.plugin(command, "" if command == "VERSION" else sys.stdin.read(), StateFiles()))
        return 0
    except cni.PluginError as error:
        log.error("%s: %s", command, error)
        print(json.dumps({"cniVersion": cni.VERSIONS[-1], "code": error.code, "msg": str(error)}))
        return 1


def _json(what: object) -> str:
    return msgspec.json.encode(what).decode()


def _failed(what: str, error: object) -> int:
    print(f"{what}, error:{error}", file=sys.stderr)
    log.error("%s: %s", what, error)
    return 1


def _log_to(path: Path) -> None:
    """Where the directory is there; a command line without it prints what it has to say."""
    log.propagate = False
    if path.parent.is_dir() and os.access(path.parent, os.W_OK):
        handler = logging.FileHandler(path, delay=True)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
