"""`vcctl version`: six lines, as every component prints them.  Reference: cli 6.

The "Go" lines name what this program runs on instead: scripts that read them look for the labels.
"""

from __future__ import annotations

import platform

from hekla import __version__
from hekla.cli.vcctl.command import Invocation

UNKNOWN = "Not provided."


def version(_: Invocation) -> int:
    print("API Version: v1alpha1")
    print(f"Version: {__version__}")
    print(f"Git SHA: {UNKNOWN}")
    print(f"Built At: {UNKNOWN}")
    print(f"Go Version: python{platform.python_version()}")
    print(
        f"Go OS/Arch: {platform.system().lower()}/{MACHINES.get(platform.machine(), platform.machine())}"
    )
    return 0


MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "AMD64": "amd64"}
