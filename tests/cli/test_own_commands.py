"""What `hekla` itself helps with: logs, completion, ports and sizes that were meant otherwise, and
the cluster when nobody names one."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from hekla.api.text.quantity import Quantity, QuantityError
from hekla.cli import completion, hekla, logs, up
from hekla.cli.vcctl import connection
from hekla.cli.vcctl.command import CommandError
from hekla.kube.connection.config import DEFAULT_SERVER
from hekla.local.cluster import kubeconfigs, supervisor
from hekla.local.cluster.cluster import Cluster, Settings
from hekla.local.machine import certificates
from hekla.local.machine.files import ClusterError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without any configuration."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def made(name: str) -> Cluster:
    cluster = Cluster.named(name)
    cluster.make_directories()
    cluster.keep(Settings(port=7443))
    certificates.ensure(cluster.pki)
    kubeconfigs.write_kubeconfigs(cluster, port=7443)
    return cluster


def test_the_cluster_that_runs_is_used_and_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = made("one"), made("stopped")
    monkeypatch.setattr(supervisor, "running", lambda cluster: 7 if cluster.name == "one" else None)
    assert connection.configured("", "").source == str(one.kubeconfig)
    assert capsys.readouterr().err == (
        f'No KUBECONFIG is set: this is the cluster "one" of `hekla up`.\n  export KUBECONFIG={one.kubeconfig}\n'
    )


def test_of_several_clusters_none_is_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = made("one"), made("two")
    monkeypatch.setattr(supervisor, "running", lambda cluster: 7)
    with pytest.raises(
        CommandError,
        match=f"several clusters run here(?s:.*){one.kubeconfig}(?s:.*){two.kubeconfig}",
    ):
        connection.configured("", "")


def test_what_is_configured_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made("one")
    monkeypatch.setattr(supervisor, "running", lambda cluster: 7)
    assert connection.configured("", "http://elsewhere:1").target.host == "elsewhere"
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_bytes(one.kubeconfig.read_bytes())
    assert connection.configured("", "").source == str(home / ".kube" / "config")
    monkeypatch.setenv("KUBECONFIG", str(home / "nowhere"))
    assert connection.configured("", "").target.port == int(DEFAULT_SERVER.rpartition(":")[2])


def test_without_any_cluster_it_is_as_ever(home: Path) -> None:
    assert connection.configured("", "").target.port == int(DEFAULT_SERVER.rpartition(":")[2])


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_completion_knows_every_command_and_its_flags(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completion.main([shell]) == 0
    script = capsys.readouterr().out
    assert all(
        name in script
        for name in (*hekla.COMMANDS, *hekla.DAEMONS, "--fake-nodes", "--delete", "--follow")
    )


def test_completion_completes(capsys: pytest.CaptureFixture[str]) -> None:
    completion.main(["bash"])
    script = capsys.readouterr().out
    typed = 'COMP_WORDS=(hekla up --fake-node-p); COMP_CWORD=2; _hekla; echo "${COMPREPLY[@]}"'
    assert (
        subprocess.run(
            ["bash", "-c", script + typed], capture_output=True, text=True, check=True
        ).stdout
        == "--fake-node-pods\n"
    )


def test_logs_are_shown_after_their_processes(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = made("default")
    (cluster.logs / "kubelet.log").write_text("".join(f"line {number}\n" for number in range(50)))
    (cluster.logs / "scheduler.log").write_text("one\ntwo\nnot whole")
    assert logs.main(["--tail", "2"]) == 0
    assert (
        capsys.readouterr().out
        == "kubelet    line 48\nkubelet    line 49\nscheduler  one\nscheduler  two\n"
    )
    assert logs.main(["kubelet", "--tail", "-1"]) == 0
    assert capsys.readouterr().out.count("\n") == 50
    read = {cluster.logs / "scheduler.log": 8}
    (cluster.logs / "scheduler.log").write_text("one\ntwo\nnot whole any more\n")
    assert logs.new_lines(cluster.logs / "scheduler.log", read) == ["not whole any more"]
    assert logs.main(["schedulr"]) == 1
    assert (
        capsys.readouterr().err
        == 'hekla logs: there is no process "schedulr"; did you mean "scheduler"? There are: kubelet, scheduler\n'
    )
    assert logs.main(["--name", "other"]) == 1
    assert "hekla up --name other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1GB", '"1G" or "1Gi"'),
        ("8gb", '"8G" or "8Gi"'),
        ("1.5 MiB", '"1.5M" or "1.5Mi"'),
        ("64kb", '"64k" or "64Ki"'),
        ("2g", '"2G" or "2Gi"'),
    ],
)
def test_sizes_that_people_write_are_understood(text: str, meant: str) -> None:
    with pytest.raises(QuantityError, match=f"; did you mean {meant}\\?$"):
        Quantity.parse(text)
    with pytest.raises(ClusterError, match=f"did you mean {meant}"):
        up.check_size("--node-memory", text)


def test_nothing_is_guessed_of_other_texts() -> None:
    with pytest.raises(QuantityError) as refused:
        Quantity.parse("much")
    assert "did you mean" not in str(refused.value)


def test_a_port_that_is_kept_from_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "forbidden", lambda port: True)
    with pytest.raises(
        ClusterError, match="--port 80: this user may not listen there; choose a port from 1024 up"
    ):
        up.choose_port(80, asked=True)


@pytest.mark.parametrize(
    ("error", "kept"),
    [(PermissionError("not you"), True), (OSError(98, "it is in use"), False), (None, False)],
)
def test_whether_a_port_is_kept_from_the_user(
    monkeypatch: pytest.MonkeyPatch, error: OSError | None, kept: bool
) -> None:
    class Probe(socket.socket):
        def bind(self, address: object) -> None:
            if error is not None:
                raise error

    monkeypatch.setattr("hekla.cli.up.socket.socket", Probe)
    assert up.forbidden(80) is kept
