"""Damaged certificates and keys: a leaf is made again, the authority and the key of tokens are
named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.kube.connection.tls import TlsError
from hekla.local.kubelet.endpoint import server_tls
from hekla.local.machine import certificates
from hekla.local.machine.files import ClusterError
from hekla.local.machine.keys import pair_problem

DAMAGES = {
    "garbage": lambda content: (
        b"-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"
    ),
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.fixture
def pki(tmp_path: Path) -> Path:
    certificates.ensure(tmp_path)
    return tmp_path


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(
    "name", ["apiserver.crt", "apiserver.key", "admin.key", "kubelet-client.crt"]
)
def test_a_damaged_leaf_is_made_again(pki: Path, name: str, how: str) -> None:
    before = {file.name: file.read_bytes() for file in pki.iterdir()}
    (pki / name).write_bytes(DAMAGES[how](before[name]))
    certificates.ensure(pki)
    stem = name.partition(".")[0]
    assert pair_problem(pki / f"{stem}.crt", pki / f"{stem}.key") == ""
    assert {file.name for file in pki.iterdir() if file.read_bytes() != before[file.name]} == {
        f"{stem}.crt",
        f"{stem}.key",
    }


def test_a_key_of_another_certificate_is_none(pki: Path) -> None:
    (pki / "admin.key").write_bytes((pki / "kubelet.key").read_bytes())
    certificates.ensure(pki)
    assert pair_problem(pki / "admin.crt", pki / "admin.key") == ""


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "sa.key"])
def test_what_others_have_trusted_is_named(pki: Path, name: str, how: str) -> None:
    content = (pki / name).read_bytes()
    (pki / name).write_bytes(DAMAGES[how](content))
    with pytest.raises(
        ClusterError,
        match=rf"{name} is no .* in PEM: put back a copy, or remove {pki}; then the next `hekla up`",
    ):
        certificates.ensure(pki)


@pytest.mark.parametrize("name", ["kubelet.crt", "kubelet.key", "ca.crt"])
def test_a_daemon_names_the_file(pki: Path, name: str) -> None:
    files = str(pki / "kubelet.crt"), str(pki / "kubelet.key"), str(pki / "ca.crt")
    assert server_tls(*files) is not None
    (pki / name).write_bytes(b"nonsense")
    with pytest.raises(TlsError, match=name):
        server_tls(*files)
    (pki / name).unlink()
    with pytest.raises(TlsError, match=f"{name}: No such file"):
        server_tls(*files)
