"""vcctl as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def vcctl(kubeconfig: Path, *words: str) -> tuple[int, str]:
    """Exit code, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "hekla.cli.vcctl", *words],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr
