"""The keys of a local cluster, as clients of all sorts have to read them."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from hekla.local.machine import certificates
from hekla.local.machine.certificates import Leaf


def test_the_users_key_is_one_that_java_reads_without_another_library(tmp_path: Path) -> None:
    certificates.ensure(tmp_path)
    text = (tmp_path / "admin.key").read_bytes()
    assert text.startswith(b"-----BEGIN PRIVATE KEY-----")
    key = load_pem_private_key(text, None)
    assert isinstance(key, rsa.RSAPrivateKey) and key.key_size == 2048
    certificate = x509.load_pem_x509_certificate((tmp_path / "admin.crt").read_bytes())
    assert certificate.public_key() == key.public_key()


def test_a_key_of_an_older_cluster_is_made_anew_and_then_kept(tmp_path: Path) -> None:
    authority = certificates.Authority(tmp_path)
    authority.ensure(Leaf("admin", "kubernetes-admin", "system:masters"))
    assert isinstance(
        load_pem_private_key((tmp_path / "admin.key").read_bytes(), None),
        ec.EllipticCurvePrivateKey,
    )
    certificates.ensure(tmp_path)
    made = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert isinstance(load_pem_private_key(made["admin.key"], None), rsa.RSAPrivateKey)
    certificates.ensure(tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == made
