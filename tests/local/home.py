"""A place of its own for the clusters of a test, and the `hekla` command as a user of that place
types it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from hekla.kube.client import Client
from hekla.kube.connection.config import load

LIMIT = 90.0
"""Seconds that a command may take on a machine that has other things to do."""


class Home:
    """A state directory; `python` is what runs the commands, for example as another user."""

    def __init__(
        self,
        state: Path,
        environment: Mapping[str, str] = os.environ,
        python: tuple[str, ...] = (sys.executable,),
    ) -> None:
        self.state = state
        self.python = python
        self.environment = {**environment, "XDG_STATE_HOME": str(state)}

    def command(self, *words: str) -> list[str]:
        return [*self.python, "-m", "hekla", *words]

    def hekla(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
        )

    def good(self, *words: str) -> str:
        """What a command prints that must do well."""
        done = self.hekla(*words)
        assert done.returncode == 0, f"hekla {' '.join(words)}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def bad(self, *words: str, code: int = 1) -> str:
        """What a command says that must be refused: no traceback, and its own name in front."""
        done = self.hekla(*words)
        assert done.returncode == code, (
            f"hekla {' '.join(words)}: exit code {done.returncode}: {done.stdout}\n{done.stderr}"
        )
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith("hekla"), done.stderr
        return done.stderr

    def status(self, name: str = "default") -> dict[str, Any]:
        shown = json.loads(self.hekla("status", "--json", "--name", name).stdout)
        assert isinstance(shown, dict)
        return shown

    def pids(self, name: str = "default") -> dict[str, int]:
        return {process["name"]: process["pid"] for process in self.status(name)["processes"]}

    def directory(self, name: str = "default") -> Path:
        return self.state / "hekla" / name

    def processes(self) -> list[psutil.Process]:
        """Every process on the machine that names this place on its command line: supervisors,
        daemons, shims."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    any(str(self.state) in word for word in process.cmdline())
                    and process.pid != os.getpid()
                ):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def left(self) -> list[str]:
        return [" ".join(line) for line in self.lines()]

    def lines(self) -> list[list[str]]:
        """The command lines of `processes`, without those that end meanwhile."""
        found = []
        for process in self.processes():
            with suppress(psutil.Error):
                found.append(process.cmdline())
        return [line for line in found if line]


@contextmanager
def home() -> Iterator[Home]:
    """A home whose clusters are gone afterwards, whatever happened."""
    state = Path(tempfile.mkdtemp(prefix="hkl"))  # short: the path of a socket has little room
    made = Home(state)
    try:
        yield made
    finally:
        for directory in (state / "hekla").glob("[!.]*"):
            made.hekla("down", "--delete", "--name", directory.name)
        for process in made.processes():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        shutil.rmtree(state, ignore_errors=True)


def ask(own: Home, question: Callable[[Client], Any], name: str = "default") -> Any:
    """What a client of the cluster is answered, through the door for users."""

    async def run() -> Any:
        async with Client(load(str(own.directory(name) / "kubeconfig"))) as client:
            return await question(client)

    return asyncio.run(run())


def until(what: str, look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Looks until there is an answer."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)
    return seen


def below(directory: Path) -> Iterator[tuple[Path, int]]:
    """What is in a directory, and its mode, without what goes while the cluster is at work."""
    for where, directories, files in os.walk(directory):
        for name in directories + files:
            path = Path(where, name)
            with suppress(FileNotFoundError):
                yield path, path.lstat().st_mode
