"""A certificate that a server makes for itself, and the TLS context that shows it."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SLACK = datetime.timedelta(minutes=5)  # clocks of other machines run behind


class CertificateError(Exception):
    """The certificates cannot be used; the text says which file and why."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key and its authority, all as PEM."""

    authority: bytes
    certificate: bytes
    key: bytes


def make(
    names: Sequence[str], issuer_name: str, now: datetime.datetime, lifetime: datetime.timedelta
) -> Pair:
    """Make an authority and a server certificate signed by it, for host names and addresses."""
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    issuer = _name(issuer_name)

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
