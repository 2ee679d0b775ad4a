"""The certificates, keys and kubeconfigs of a local cluster.

One certificate authority signs everything: the API server's serving certificate, the user's client
certificate, and both sides of the API server's way to the kubelet.  Another one signs the
certificate by which servers behind the API server know it, because whoever has one of those may say
who its user is.  Everything is made once and
kept; what is missing is made again, what has expired or is about to is renewed.  All files are for
their owner alone.
"""

from __future__ import annotations

import base64
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hekla.local.machine.files import write_atomically
from hekla.local.machine.keys import remove_damaged

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

RSA_BITS, RSA_EXPONENT = 2048, 65537
CA_YEARS = 10
YEARS = 2
RENEW_BEFORE = timedelta(days=60)
SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
)


class Leaf(NamedTuple):
    """A certificate that the authority signs."""

    name: str
    common_name: str
    organization: str = ""
    names: tuple[str, ...] = ()
    """Host names and addresses; empty for a client."""
    client: bool = True
    rsa: bool = False
    """Made for clients of all sorts: those in Java read no other keys without a library more."""


LEAVES = (
    Leaf("apiserver", "kube-apiserver", names=SERVER_NAMES, client=False),
    Leaf("kubelet", "system:node:local", "system:nodes", ("localhost", "127.0.0.1", "::1")),
    # In no group: kubelets know it by its name, and at a kubelet's address another process may
    # listen.
    Leaf("kubelet-client", "kube-apiserver-kubelet-client"),
    Leaf("admission", "hekla-admission", names=("localhost", "127.0.0.1", "::1"), client=False),
    Leaf(
        "metrics-server", "metrics-server", names=("metrics-server.kube-system.svc",), client=False
    ),
    Leaf("admin", "kubernetes-admin", "system:masters", rsa=True),
)

FRONT_PROXY_CLIENT = Leaf("front-proxy-client", "front-proxy-client")
FRONT_PROXY_AUTHORITY = "front-proxy-ca"


class Authority:
    """A certificate authority of a directory: `name` is that of its files."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.name = name
        self.certificate_file = directory / f"{name}.crt"
        self.key_file = directory / f"{name}.key"
        if not self._load():
            self._make()

    def _load(self) -> bool:
        if not (self.certificate_file.exists() and self.key_file.exists()):
            return False
        certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        if certificate.not_valid_after_utc < datetime.now(UTC) + RENEW_BEFORE:
            return False
        key = serialization.load_pem_private_key(self.key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.certificate, self.key = certificate, key
        return True

    def _make(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hekla-{self.name}")])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=365 * CA_YEARS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage(authority=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        write_atomically(self.key_file, private_pem(self.key))
        write_atomically(
            self.certificate_file, self.certificate.public_bytes(serialization.Encoding.PEM)
        )

    def ensure(self, leaf: Leaf) -> None:
        """Makes the certificate and key of a leaf, unless good ones are there."""
        certificate_file = self.directory / f"{leaf.name}.crt"
        key_file = self.directory / f"{leaf.name}.key"
        if certificate_file.exists() and key_file.exists():
            known = x509.load_pem_x509_certificate(certificate_file.read_bytes())
            fresh = known.not_valid_after_utc > datetime.now(UTC) + RENEW_BEFORE
            readable = isinstance(known.public_key(), rsa.RSAPublicKey) or not leaf.rsa
            if fresh and readable and self._signed(known) and known.subject == subject_of(leaf):
                return
        key = (
            rsa.generate_private_key(RSA_EXPONENT, RSA_BITS)
            if leaf.rsa
            else ec.generate_private_key(ec.SECP256R1())
        )
        write_atomically(key_file, private_pem(key))
        write_atomically(
            certificate_file, self.sign(leaf, key).public_bytes(serialization.Encoding.PEM)
        )

    def _signed(self, certificate: x509.Certificate) -> bool:
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

    def sign(self, leaf: Leaf, key: PrivateKey) -> x509.Certificate:
        usages = []
        if leaf.names:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        if leaf.client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject_of(leaf))
            .issuer_name(self.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=365 * YEARS))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if leaf.names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([general_name(n) for n in leaf.names]), critical=False
            )
        return builder.sign(self.key, hashes.SHA256())


def subject_of(leaf: Leaf) -> x509.Name:
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)]
    if leaf.organization:
        subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, leaf.organization))
    return x509.Name(subject)


def key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not authority,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def private_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def ensure(directory: Path) -> None:
    """Makes what is missing of a cluster's certificates and keys: ca, every leaf, the front proxy's,
    and `sa.key`, which signs tokens."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    leaves = [leaf.name for leaf in LEAVES]
    # Servers behind the API server learn of its authority anew when it has changed.
    remove_damaged(directory, [*leaves, FRONT_PROXY_AUTHORITY, FRONT_PROXY_CLIENT.name])
    authority = Authority(directory)
    for leaf in LEAVES:
        authority.ensure(leaf)
    Authority(directory, FRONT_PROXY_AUTHORITY).ensure(FRONT_PROXY_CLIENT)
    tokens = directory / "sa.key"
    if not tokens.exists():
        write_atomically(tokens, private_pem(ec.generate_private_key(ec.SECP256R1())))


def kubeconfig(name: str, server: str, directory: Path) -> bytes:
    """A kubeconfig for the cluster's administrator, everything in the one file."""
    return _config(
        name,
        f"    server: {server}\n    certificate-authority-data: {_data(directory / 'ca.crt')}\n",
        f"    client-certificate-data: {_data(directory / 'admin.crt')}\n    client-key-data: {_data(directory / 'admin.key')}\n",
    )


def unix_kubeconfig(name: str, socket: Path) -> bytes:
    """A kubeconfig for programs of the same user; the socket itself says who they are."""
    return _config(name, f"    server: unix://{socket}\n", "")


def _config(name: str, cluster: str, user: str) -> bytes:
    context = f"hekla-{name}"
    return (
        "apiVersion: v1\nkind: Config\n"
        f"current-context: {context}\n"
        f"clusters:\n- name: {context}\n  cluster:\n{cluster}"
        f"users:\n- name: {context}\n  user:{' {}' if not user else ''}\n{user}"
        f"contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {context}\n"
    ).encode()


def _data(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
