"""The network namespace in which the pods' links have their outer ends.

On a node that is the node's own, in which an agent with `hostNetwork` is.  The local cluster keeps
its bridges in a namespace of their own, which changes when its network daemon is replaced.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from hekla.agent.network.shaper import Shaper

T = TypeVar("T")

PLACE_VARIABLE = "POD_NETWORK"
CLONE_NEWNET = 0x40000000
OWN = 1
"""The number for the namespace that the process has been started in."""
PATIENCE = 10.0
"""Seconds that a program may take."""
libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """Something cannot be done with the network; the text says what and why."""


def place_of_pods() -> str:
    """The path of a network namespace, or of a JSON file whose `pid` names a process in it; empty:
    the process' own."""
    return os.environ.get(PLACE_VARIABLE, "")


def enter(place: str, inside: int = 0) -> int:
    """Move this thread into the namespace of a place, unless it is inside already.  Gives the
    namespace's number.  Raises NetworkError."""
    if not place:
        return OWN
    try:
        namespace = os.open(_path(place), os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError, KeyError) as error:
        raise NetworkError(f"network of the pods ({place}): {error}") from None
    try:
        number = os.fstat(namespace).st_ino
        if number != inside and libc.setns(namespace, CLONE_NEWNET) == -1:
            raise NetworkError(f"network of the pods ({place}): {os.strerror(ctypes.get_errno())}")
        return number
    finally:
        os.close(namespace)


def call(place: str, do: Callable[..., T], *arguments: Any) -> T:
    """What a function gives in a thread of its own in the namespace.  Raises NetworkError, and what
    the function raises."""

    def within() -> T:
        enter(place)
        return do(*arguments)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(within).result()


def unavailable(shaper: Shaper) -> str:
    """Why the traffic of this node's pods cannot be shaped; empty if it can.  Where there is no
    network of pods yet, the kernel is asked in our own."""
    place = place_of_pods()
    try:
        return call(place if Path(place).exists() else "", shaper.unavailable)
    except NetworkError as error:
        return str(error)


def _path(place: str) -> str:
    if not place.endswith(".json"):
        return place
    return f"/proc/{json.loads(Path(place).read_text())['pid']}/ns/net"


def program(*words: str, given: str = "") -> str:
    """What a program prints that is given this, in this thread's namespace.  Raises NetworkError."""
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except FileNotFoundError:
        raise NetworkError(f"the program {words[0]} (of iproute2) is not there") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NetworkError(f"{' '.join(words)}: {error}") from None
    if done.returncode:
        told = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise NetworkError(f"{' '.join(words)}: {told}")
    return done.stdout


def table(*words: str) -> list[dict[str, Any]]:
    """What a program of iproute2 prints as JSON.  Raises NetworkError."""
    text = program(*words)
    try:
        found: list[dict[str, Any]] = json.loads(text or "[]")
    except ValueError as error:
        raise NetworkError(f"{' '.join(words)}: {error}") from None
    return found
