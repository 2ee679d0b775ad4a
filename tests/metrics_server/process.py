"""A metrics server as a process, beside an API server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.apiserver_process import ApiServerProcess


class MetricsServerProcess:
    """One `hekla metrics-server`."""

    def __init__(self, directory: Path, server: ApiServerProcess) -> None:
        pki = server.pki
        self.log = directory / "metrics-server.log"
        self.command = [
            sys.executable,
            "-m",
            "hekla",
            "metrics-server",
            f"--kubeconfig={server.internal_kubeconfig}",
            "--metric-resolution=1s",
            f"--tls-cert-file={pki / 'metrics-server.crt'}",
            f"--tls-private-key-file={pki / 'metrics-server.key'}",
            f"--tls-ca-file={pki / 'ca.crt'}",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
