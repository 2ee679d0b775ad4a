"""The library that gives programs the pod's own names and ports: real programs, two pods' worth of
variables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hekla.local.kubelet.runtime import preload

ONE, OTHER = "127.90.11.1", "127.90.11.2"
PYTHON = (sys.executable, "-I", "-S", "-c")
"""Without the module that gives Python programs the names: what works here works in C."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    if preload.compiler() is None:
        pytest.skip("this machine has no C compiler")
    made = preload.library(tmp_path_factory.mktemp("preload"))
    assert made
    return made


class Pod:
    """Runs programs with the variables of a pod."""

    def __init__(
        self, library: str, address: str, hosts: Path | None = None, hostname: str = ""
    ) -> None:
        known = {"PATH": "/usr/bin:/bin", **({"HEKLA_HOSTS": str(hosts)} if hosts else {})}
        self.environment = preload.variables(known, library, address, hostname)

    def says(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=60
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    @contextmanager
    def server(
        self, where: str, port: int, greeting: str, family: str = "AF_INET"
    ) -> Iterator[int]:
        """A program that listens there and greets whoever comes; its port."""
        script = (
            f"import socket; s = socket.create_server(({where!r}, {port}), family=socket.{family}); print(s.getsockname()[1], flush=True)\n"
            f"while True:\n c, peer = s.accept(); c.sendall(({greeting!r} + ' ' + peer[0]).encode()); c.close()"
        )
        process = subprocess.Popen(
            [*PYTHON, script],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        try:
            assert line, process.stderr.read()
            yield int(line)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    def asks(self, where: str, port: int) -> str:
        return self.says(
            *PYTHON,
            f"import socket; print(socket.create_connection(({where!r}, {port}), 5).recv(99).decode())",
        )


@pytest.fixture
def one(library: str) -> Pod:
    return Pod(library, ONE)


@pytest.fixture
def other(library: str) -> Pod:
    return Pod(library, OTHER)


def free_port(one: Pod) -> int:
    with one.server("", 0, "") as port:
        return port


@pytest.mark.parametrize("where", ["", "127.0.0.1"])
def test_two_pods_listen_on_one_port(one: Pod, other: Pod, where: str) -> None:
    port = free_port(one)
    with one.server(where, port, "one"), other.server(where, port, "other"):
        assert one.asks(OTHER, port) == f"other {ONE}", (
            "and a pod is seen to come from its own address"
        )
        assert one.asks("127.0.0.1", port).startswith("one ")
        assert other.asks("127.0.0.1", port).startswith("other ")


def test_a_listener_on_all_of_ipv6_is_found_at_the_pods_address(one: Pod, other: Pod) -> None:
    port = free_port(one)
    script = f"import socket; s = socket.create_server(('::', {port}), family=socket.AF_INET6, dualstack_ipv6=True); print(s.getsockname())"
    assert f"::ffff:{ONE}" in one.says(*PYTHON, script)
    with one.server("", port, "one"):
        assert one.asks("localhost", port).startswith("one ")
        assert "refused" in other.asks("127.0.0.1", port), (
            "what listens in a pod is not on the loopback of another"
        )


def test_what_the_machine_serves_is_reached(one: Pod, library: str) -> None:
    machine = Pod(library, "")
    with machine.server("127.0.0.1", 0, "the machine") as port:
        assert one.asks("127.0.0.1", port).startswith("the machine ")


def test_a_port_of_the_systems_choice_stays_on_every_address(one: Pod) -> None:
    with one.server("", 0, "one") as port:
        assert one.asks(ONE, port).startswith("one ") and one.asks("127.0.0.1", port).startswith(
            "one "
        )


def test_names_are_those_of_the_file(library: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(
        f"# pods\n{ONE}\ttrain-a-0.train train-a-0.train.default # the first\n{OTHER} train-a-1.train\n::1 six.train\n"
    )
    pod = Pod(library, ONE, hosts)
    resolve = "import socket; print(socket.getaddrinfo({!r}, 80, type=socket.SOCK_STREAM)[0][4][0], socket.gethostbyname({!r}))"
    for name, address in (
        ("train-a-0.train", ONE),
        ("Train-A-0.train.default", ONE),
        ("train-a-1.train", OTHER),
    ):
        assert pod.says(*PYTHON, resolve.format(name, name)) == f"{address} {address}"
    assert pod.says(*PYTHON, resolve.format("localhost", "localhost")).endswith(" 127.0.0.1")
    assert "gaierror" in pod.says(*PYTHON, resolve.format("six.train", "six.train")), (
        "it has no address of IPv4"
    )


def test_the_host_name_is_the_pods(library: str) -> None:
    pod = Pod(library, ONE, hostname="train-a-0")
    assert pod.says("uname", "-n") == "train-a-0"
    assert (
        pod.says(*PYTHON, "import socket, os; print(socket.gethostname(), os.uname().nodename)")
        == "train-a-0 train-a-0"
    )


def test_a_library_of_the_users_own_is_loaded_too() -> None:
    found = preload.variables({"LD_PRELOAD": "/opt/mine.so"}, "/ours.so", ONE, "")
    assert found["LD_PRELOAD"] == "/ours.so:/opt/mine.so" and "HEKLA_HOSTNAME" not in found


def test_a_compiler_that_fails_leaves_pods_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no headers >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(preload, "compiler", lambda: str(broken))
    assert preload.library(tmp_path) == ""
    monkeypatch.setattr(preload, "compiler", lambda: None)
    assert preload.library(tmp_path) == ""
