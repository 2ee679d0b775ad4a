"""Which directories of the clusters on this machine no pod may see, whichever cluster the pod
belongs to.

Every daemon that has a directory of keys or data adds it at start to a file of its user, `.places`
in ~/.local/state/hekla, where the home is the account's, whatever the environment says.  So kubelets
learn of a cluster that was started with another XDG_STATE_HOME, and of an API server with a
directory of its own.  Directories that no longer exist are dropped.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger("hekla")

PLACES = ".places"


def usual_home(account: pwd.struct_passwd) -> Path:
    """The default directory of a user's clusters."""
    return Path(account.pw_dir) / ".local" / "state" / "hekla"


def accounts() -> list[pwd.struct_passwd]:
    """The users whose clusters this process could reach: all for root, else its own."""
    try:
        if os.geteuid() == 0:
            return [
                account
                for account in pwd.getpwall()
                if account.pw_dir.startswith("/") and len(account.pw_dir) > 1
            ]
        return [pwd.getpwuid(os.geteuid())]
    except (KeyError, OSError):  # a user without an account
        return []


def remember(paths: Iterable[Path]) -> None:
    """Add paths to those that pods must not see.  Where the file cannot be written, the log says
    so."""
    wanted = [os.path.realpath(path) for path in paths]
    own = [account for account in accounts() if account.pw_uid == os.geteuid()][:1]
    try:
        for account in own:
            home = usual_home(account)
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(home / PLACES, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                known = file.read().splitlines()
                kept = list(
                    dict.fromkeys([*(path for path in known if os.path.lexists(path)), *wanted])
                )
                if kept != known:
                    file.seek(0)
                    file.truncate()
                    file.write("".join(f"{path}\n" for path in kept))
    except OSError as error:
        log.warning("pods of other clusters are not kept from %s: %s", ", ".join(wanted), error)


class Homes:
    """The paths of all clusters, read again when the files have changed."""

    def __init__(self) -> None:
        self._usual = sorted({os.path.realpath(usual_home(account)) for account in accounts()})
        self._read: dict[str, tuple[tuple[int, ...], list[str]]] = {}

    def paths(self) -> list[str]:
        """The existing directories and files, without those inside others, and without directories
        that hold more than a cluster."""
        found = {*self._usual, *(path for home in self._usual for path in self._places(home))}
        kept: list[str] = []
        for path in sorted(narrowed(found)):
            if os.path.lexists(path) and not any(path.startswith(f"{other}/") for other in kept):
                kept.append(path)
        return kept

    def _places(self, home: str) -> list[str]:
        file = os.path.join(home, PLACES)
        try:
            known = self._read.get(file)
            if known is None or known[0] != _version(os.stat(file)):
                with open(file) as opened:
                    # Not while `remember` writes it: for a moment it is empty then.
                    fcntl.flock(opened, fcntl.LOCK_SH)
                    version = _version(os.fstat(opened.fileno()))
                    lines = opened.read().splitlines()
                known = self._read[file] = (
                    version,
                    [line for line in lines if line.startswith("/")],
                )
        except (OSError, UnicodeDecodeError):
            return []
        return known[1]


def _version(found: os.stat_result) -> tuple[int, ...]:
    """What tells two contents of a file apart, also of one clock tick."""
    return found.st_ino, found.st_mtime_ns, found.st_size


def narrowed(paths: Iterable[str]) -> set[str]:
    """The paths, where a directory that also holds other things (a home, the programs, temporary
    files) is replaced by the files of a cluster in it."""
    wide = {
        os.path.realpath(path)
        for path in (
            "/",
            tempfile.gettempdir(),
            "/tmp",
            sys.prefix,
            sys.base_prefix,
            Path(__file__).parents[2],
        )
    }
    wide |= {os.path.realpath(account.pw_dir) for account in accounts()}
    found: set[str] = set()
    for path in paths:
        if any(other == path or other.startswith(path.rstrip("/") + "/") for other in wide):
            found |= {
                os.path.join(path, name)
                for name in ("pki", "state.db", "kubeconfig", "internal.kubeconfig")
            }
        else:
            found.add(path)
    return found


def programs() -> list[str]:
    """The directories that the daemons run from: Hekla's package, the Python and its packages.  A
    pod that could write there could change the daemons."""
    import sysconfig

    here = sysconfig.get_paths()
    found = {
        here["stdlib"],
        here["platstdlib"],
        here["purelib"],
        here["platlib"],
        str(Path(__file__).parents[2]),
        sys.executable,
    }
    if sys.prefix != sys.base_prefix:
        found.add(sys.prefix)
    else:
        found |= {
            path
            for name in ("hekla", "vcctl")
            if os.path.isfile(path := os.path.join(here["scripts"], name))
        }
    found |= {
        path
        for path in sys.path[1:]
        if "packages" in os.path.basename(path) and os.path.isdir(path)
    }
    real = sorted({os.path.realpath(path) for path in found if os.path.exists(path)})
    return [path for path in real if not any(path.startswith(f"{other}/") for other in real)]
