"""The server's certificate: given by files, or made here, and replaced without a restart.

A certificate of our own is renewed after half of its life.  The order of a renewal matters: the new
authority is announced to the API server first, beside the old one, and only then does the server
show a certificate of the new one, so that no review in between meets a certificate that its caller
does not trust.
"""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=365)
SLACK = datetime.timedelta(minutes=5)  # clocks of other machines run behind
MOST = 16
"""Authorities announced at one time: one a copy of the server, and those of copies that were there
before."""


class CertificateError(Exception):
    """The certificates cannot be used; the text says which file and why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key and its authority, all as PEM."""

    authority: bytes
    certificate: bytes
    key: bytes


class Source(Protocol):
    """A source of certificates.  `renewed` returns a new pair when it is due, None otherwise."""

    def first(self) -> Pair: ...

    def renewed(self, now: datetime.datetime) -> Pair | None: ...


class Files:
    """Certificates from files, read again when one of them changes."""

    def __init__(self, certificate: str, key: str, authority: str) -> None:
        self._paths = (Path(authority), Path(certificate), Path(key))
        self._seen = self._stamps()

    def first(self) -> Pair:
        return Pair(*(_read(path) for path in self._paths))

    def renewed(self, now: datetime.datetime) -> Pair | None:
        stamps = self._stamps()
        if stamps == self._seen or None in stamps:
            return None  # unchanged, or in the middle of being replaced
        pair = self.first()
        context_of(pair)  # raises while certificate and key do not match
        self._seen = stamps
        return pair

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [stamp_of(path) for path in self._paths]


class Own:
    """Self-made certificates for the given names."""

    def __init__(self, names: Sequence[str], lifetime: datetime.timedelta = LIFETIME) -> None:
        self._names = list(names)
        self._lifetime = lifetime
        self._made = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def first(self) -> Pair:
        return self._make(datetime.datetime.now(datetime.UTC))

    def renewed(self, now: datetime.datetime) -> Pair | None:
        return self._make(now) if now - self._made >= self._lifetime / 2 else None

    def _make(self, now: datetime.datetime) -> Pair:
        self._made = now
        return make(self._names, now, self._lifetime)


def make(names: Sequence[str], now: datetime.datetime, lifetime: datetime.timedelta) -> Pair:
    """Make an authority and a server certificate signed by it, for host names and addresses."""
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = _name(f"{names[0]} admission authority")

    def builder(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SLACK)
            .not_valid_after(now + lifetime)
        )

    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    authority = (
        builder(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        builder(_name(names[0]), key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(authority.public_bytes(pem), certificate.public_bytes(pem), private)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def context_of(pair: Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show(context, pair)
    return context


def show(context: ssl.SSLContext, pair: Pair) -> None:
    """Use this pair for all new connections."""
    with tempfile.TemporaryDirectory() as directory:
        # OpenSSL reads files only; the directory is ours alone.
        chain = Path(directory) / "pair.pem"
        chain.touch(0o600)
        chain.write_bytes(pair.certificate + b"\n" + pair.key)
        try:
            context.load_cert_chain(chain)
        except ssl.SSLError as error:
            raise CertificateError(
                f"the certificate and key cannot be used: {error.reason or error}"
            ) from error


def bundle(announced: bytes, authority: bytes, now: datetime.datetime, limit: int = MOST) -> bytes:
    """The authorities to announce: the valid ones that were announced before, then this one;
    `limit` at most."""
    kept = {
        certificate.public_bytes(serialization.Encoding.PEM): None
        for certificate in _certificates(announced)
        if certificate.not_valid_after_utc > now
    }
    if authority in kept:
        # In the present order, so that copies of this server do not rewrite it in turn.
        return b"".join(kept)
    return b"".join([*kept][-(limit - 1) :]) + authority


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError:
        return []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror or error}") from error


def stamp_of(path: Path) -> tuple[int, int] | None:
    """The time and size by which a changed file is noticed; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
