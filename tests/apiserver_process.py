"""A real API server as a process of its own, for every test that speaks HTTP to one.

    with ApiServerProcess.started(tmp_path) as server:
        client = Client(config.load(str(server.internal_kubeconfig)))

or the fixtures `apiserver` (one a test) and `shared_apiserver` (one a module): `from
tests.apiserver_process import apiserver`.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER_VARIABLE = "HEKLA_TEST_SERVER"


class UnixConnection(http.client.HTTPConnection):
    """http.client through a Unix socket."""

    def __init__(self, path: Path, timeout: float = 30.0) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class ApiServerProcess:
    """One `hekla apiserver`.  `kubeconfig` is the HTTPS door, `internal_kubeconfig` the Unix
    socket."""

    program: tuple[str, ...] = (sys.executable, "-m", "hekla")

    def __init__(self, directory: Path, *flags: str) -> None:
        self.directory = directory
        self.data = directory / "data"
        # Socket paths are limited to some hundred bytes, which temporary directories of tests
        # exceed.
        self._short = Path(tempfile.mkdtemp(prefix="hk"))
        self.socket = self._short / "api.sock"
        self.kubeconfig = self.data / "kubeconfig"
        self.internal_kubeconfig = self.data / "internal.kubeconfig"
        self.pki = self.data / "pki"
        self.log = directory / "apiserver.log"
        self.flags = flags
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, timeout: float = 60.0) -> ApiServerProcess:
        """Starts the server and waits until it is ready."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [
            *self.program,
            "apiserver",
            f"--data-dir={self.data}",
            f"--secure-port={self.port}",
            f"--unix-socket={self.socket}",
            *self.flags,
        ]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True
            )
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(
                    f"the API server ended with {self.process.returncode}:\n{self.log.read_text()[-4000:]}"
                )
            if self._ready():
                if self.port == 0:
                    self.port = self._https_port()
                return self
            time.sleep(0.02)
        self.kill()
        raise RuntimeError(
            f"the API server is not ready after {timeout} s:\n{self.log.read_text()[-4000:]}"
        )

    def _ready(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _ = self.request("GET", "/readyz", timeout=2)
            return status == 200 and self.kubeconfig.exists()
        return False

    def _https_port(self) -> int:
        line = next(line for line in self.kubeconfig.read_text().splitlines() if "server:" in line)
        return int(line.rpartition(":")[2])

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30.0,
    ) -> tuple[int, bytes]:
        """One request through the Unix socket."""
        connection = UnixConnection(self.socket, timeout)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def https(self, *, certificate: bool = True) -> http.client.HTTPSConnection:
        """A connection to the HTTPS door, as the administrator or as nobody."""
        context = ssl.create_default_context(cafile=str(self.pki / "ca.crt"))
        if certificate:
            context.load_cert_chain(self.pki / "admin.crt", self.pki / "admin.key")
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=30)

    def controllers_kubeconfig(self) -> Path:
        """With which the batch controllers come."""
        return self.internal_kubeconfig

    def stop(self) -> int:
        """Ends the server as a supervisor does; gives its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(30)

    def kill(self) -> None:
        """Ends the server as a power cut does."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(30)

    def restart(self, *, kill: bool = False) -> ApiServerProcess:
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._short, ignore_errors=True)

    @classmethod
    @contextlib.contextmanager
    def started(cls, directory: Path, *flags: str) -> Iterator[ApiServerProcess]:
        """A server for the time of a `with`."""
        server = cls(directory, *flags)
        try:
            yield server.start()
        finally:
            server.close()


class Kubernetes(ApiServerProcess):
    """Kubernetes' own server in the same clothes.  Whoever started it ends it, and its one door is
    that of everybody."""

    def __init__(self, directory: Path, kubeconfig: Path, pki: Path, port: int) -> None:
        super().__init__(directory)
        self.kubeconfig = self.internal_kubeconfig = kubeconfig
        self.pki = pki
        self.port = port
        self._controllers = Path()

    def controllers_kubeconfig(self) -> Path:
        """That of the account which the chart gives them, so that what they may not do there shows."""
        from tests.deploy import accounts

        if not self._controllers.name:
            self._controllers = accounts.grant(
                self.kubeconfig, "volcano-controllers", accounts.CONTROLLERS
            )
        return self._controllers

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30.0,
    ) -> tuple[int, bytes]:
        connection = self.https()
        connection.timeout = timeout
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @classmethod
    @contextlib.contextmanager
    def alone(cls, directory: Path) -> Iterator[ApiServerProcess]:
        """Without controllers, as Hekla's is in most tests: stories play the controllers' part
        themselves, and pods get no accounts."""
        from tests.kubernetes.reference import reference

        with reference("--disable-admission-plugins=ServiceAccount", controllers=False) as other:
            server = cls(directory, other.kubeconfig, other.pki, other.port)
            yield server
            server.close()


@pytest.fixture
def apiserver(tmp_path: Path) -> Iterator[ApiServerProcess]:
    """A fresh, empty server for one test."""
    with ApiServerProcess.started(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def shared_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    """One server for all tests of a module; with HEKLA_TEST_SERVER=kubernetes it is Kubernetes'
    own, which has to be built."""
    if os.environ.get(SERVER_VARIABLE) == "kubernetes":
        with Kubernetes.alone(tmp_path_factory.mktemp("kubernetes")) as server:
            yield server
        return
    with ApiServerProcess.started(tmp_path_factory.mktemp("apiserver")) as server:
        yield server
