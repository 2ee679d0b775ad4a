"""`hekla agent` as a process, on a node that only exists in the API server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.apiserver_process import ApiServerProcess
from tests.ports import free_port

PATIENCE = 30.0


class AgentProcess:
    """One agent, of node n1."""

    def __init__(
        self,
        directory: Path,
        server: ApiServerProcess | Path,
        *flags: str,
        node: str = "n1",
        environment: dict[str, str] | None = None,
    ) -> None:
        """`server`: or the kubeconfig of an account on it."""
        kubeconfig = server if isinstance(server, Path) else server.internal_kubeconfig
        self.log = directory / "agent.log"
        self.port = free_port()
        self.command = [
            *(sys.executable, "-m", "hekla", "agent"),
            f"--kubeconfig={kubeconfig}",
            f"--kube-node-name={node}",
            "--healthz-address=127.0.0.1",
            f"--healthz-port={self.port}",
            "--supported-features=*",
            f"--state-dir={directory / 'state'}",
            *flags,
        ]
        self.environment = {
            **os.environ,
            "SYS_FS_PATH": str(directory / "fs"),
            "CGROUP_DRIVER": "cgroupfs",
            **(environment or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> AgentProcess:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdout=output,
                stderr=output,
                env=self.environment,
                start_new_session=True,
            )
        return self

    def get(self, path: str) -> str:
        """What it answers, once it does."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{self.port}{path}", timeout=5
                ) as answer:
                    return str(answer.read().decode())
            except urllib.error.URLError:
                assert time.monotonic() < deadline, self.log.read_text()
                assert self.process is not None and self.process.poll() is None, (
                    self.log.read_text()
                )
                time.sleep(0.02)

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
