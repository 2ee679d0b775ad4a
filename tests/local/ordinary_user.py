"""An ordinary user for a test that runs as root: one with no rights but its home, and with a Python
that it can read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hekla

NOBODY = 65534
BECOME = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "env")
"""With `env` between: setpriv itself still has root's rights when it looks for the program."""
REFUSED = (
    "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c",
    'for kind in user mnt pid uts; do echo 0 >/proc/sys/user/max_${kind}_namespaces || exit 99; done; '
    'exec setpriv --inh-caps=-all --ambient-caps=-all "$@"', "sh",
)  # fmt: skip
"""Runs a command on a machine that allows no further namespaces: the limit holds inside a namespace
of its own only."""
PATIENCE = 300.0
"""Seconds that a whole demo may take: a bound for what is stuck.  On two idle cores it takes
fifteen."""
NOT_NEEDED = shutil.ignore_patterns(
    "mypy*", "ruff*", "pip*", "hypothesis*", "_pytest", "setuptools*", "*.dist-info"
)


class OrdinaryUser:
    """Runs programs as nobody, with a home of its own below `directory`.

    What it may not read is copied for it, what Python has compiled of that included: it can't write
    that itself, and each of a cluster's processes would compile everything anew.
    """

    def __init__(self, directory: Path) -> None:
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            pytest.skip("only root can become another user")
        self.home = directory / "home"
        self.home.mkdir()
        os.chown(self.home, NOBODY, NOBODY)
        self.path = [
            self._readable(Path(hekla.__file__).parents[1], directory, "hekla"),
            self._site(directory),
        ]
        self.environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, self.path)),
            "LANG": "C.UTF-8",
            "COLUMNS": "160",
        }
        self.python = self._python()

    def _can(self, *command: str) -> bool:
        return (
            subprocess.run(
                [*BECOME, *command],
                capture_output=True,
                cwd="/",
                env=getattr(self, "environment", None),
            ).returncode
            == 0
        )

    def _readable(self, source: Path, directory: Path, name: str) -> Path:
        """The directory that holds the package, or a copy where others may not read it."""
        if self._can("test", "-r", str(source / name / "__init__.py")):
            return source
        shutil.copytree(source / name, directory / "package" / name, ignore=NOT_NEEDED)
        return directory / "package"

    def _site(self, directory: Path) -> Path:
        site = Path(sysconfig.get_paths()["platlib"])
        if self._can("test", "-r", str(site / "msgspec" / "__init__.py")):
            return site
        shutil.copytree(site, directory / "site", ignore=NOT_NEEDED)
        return directory / "site"

    def _python(self) -> str:
        """A Python of this version that others may run: this one, or the system's."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        for candidate in (
            sys.executable,
            os.path.realpath(sys.executable),
            f"/usr/bin/python{version}",
            f"/usr/local/bin/python{version}",
        ):
            if self._can(candidate, "-c", "import hekla.cli.demo.run, numpy"):
                return candidate
        pytest.skip(f"no Python {version} on this machine that others than root can run")

    def hekla(self, *words: str, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Runs `hekla ...` as this user; `within` is a command that runs it."""
        return subprocess.run(
            [*BECOME, *within, self.python, "-m", "hekla", *words],
            env=self.environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            stdin=subprocess.DEVNULL,
        )
