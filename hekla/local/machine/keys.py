"""Which certificates and keys of a cluster can be used.  Files damaged by a full disk or a power
cut are made again, or reported.

A leaf belongs to the cluster alone, so a damaged one is removed, and the authority signs another.
The authority itself, and the key that signs tokens, are trusted by others: these are never replaced
silently.
"""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes

from hekla.local.machine.files import ClusterError


def public_bytes(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private_key(file: Path) -> PrivateKeyTypes:
    """The key of a PEM file.  Raises ValueError."""
    try:
        return serialization.load_pem_private_key(file.read_bytes(), None)
    except (TypeError, UnsupportedAlgorithm) as error:  # it has a passphrase, or an unknown type
        raise ValueError(str(error)) from error


def pair_problem(certificate_file: Path, key_file: Path) -> str:
    """Why a certificate and its key cannot be used together; empty when they can."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
    except ValueError:
        return f"{certificate_file} is no certificate in PEM"
    try:
        key = private_key(key_file)
    except ValueError:
        return f"{key_file} is no private key in PEM"
    if public_bytes(key.public_key()) != public_bytes(certificate.public_key()):
        return f"{key_file} is not the key of {certificate_file}"
    return ""


def remove_damaged(directory: Path, leaves: list[str]) -> None:
    """Removes the pairs of leaves that cannot be used, so that they are made again.

    Raises ClusterError that names the file where it is the authority's or the key of tokens.
    """
    authority, tokens = (directory / "ca.crt", directory / "ca.key"), directory / "sa.key"
    problem = pair_problem(*authority) if all(file.exists() for file in authority) else ""
    if not problem and tokens.exists():
        try:
            private_key(tokens)
        except ValueError:
            problem = f"{tokens} is no private key in PEM"
    if problem:
        raise ClusterError(
            f"{problem}: put back a copy, or remove {directory}; then the next `hekla up` makes all certificates and keys anew, "
            "and kubeconfigs and tokens that were given out before are worth nothing"
        )
    for name in leaves:
        pair = directory / f"{name}.crt", directory / f"{name}.key"
        if all(file.exists() for file in pair) and pair_problem(*pair):
            for file in pair:
                file.unlink()
