"""Separate names, ports and a host name for pods without their own network: a small library that
their programs load.

Pods that share the machine's network would take each other's ports, and without their own hosts
file only Python programs would know the names of other pods. `substitutes/addresses.c` changes the
few calls that matter. It is compiled when the kubelet starts; without a C compiler pods do without it
(decision 0176).
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parents[1] / "substitutes" / "addresses.c"
MOUNT_PATH = "/dev/.hekla-addresses.so"
"""Where containers with their own view of the files find it: /dev is mirrored for them anyway,
another directory would need one more mirror."""
COMPILE_TIMEOUT = 30.0


def compiler() -> str | None:
    """The machine's C compiler."""
    return (
        (shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"))
        if sys.platform == "linux"
        else None
    )


def library(directory: Path) -> str:
    """The path of the library, which is compiled if it does not exist; "" if that fails."""
    program = compiler()
    if program is None:
        return ""
    wanted = directory / f"addresses-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}.so"
    if wanted.exists():
        return str(wanted)
    half = wanted.with_suffix(".half")
    command = [program, "-O1", "-shared", "-fPIC", "-o", str(half), str(SOURCE), "-ldl"]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=COMPILE_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
        os.chmod(half, 0o755)
        half.rename(wanted)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        log.warning(
            "%s could not compile %s: %s",
            program,
            SOURCE.name,
            said.decode(errors="replace").strip() or error,
        )
        return ""
    return str(wanted)


def variables(known: Mapping[str, str], path: str, address: str, hostname: str) -> dict[str, str]:
    """The environment of a container with the library added. `hostname` is "" if the kernel knows
    it already."""
    given = known.get("LD_PRELOAD")
    found = {
        **known,
        "LD_PRELOAD": f"{path}:{given}" if given else path,
        "HEKLA_OWN_ADDRESS": address,
    }
    if hostname:
        found["HEKLA_HOSTNAME"] = hostname
    if "HEKLA_HOSTS" in found:
        # gRPC's own resolver reads /etc/hosts without the library.
        found.setdefault("GRPC_DNS_RESOLVER", "native")
    return found
