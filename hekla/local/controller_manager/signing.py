"""CertificateSigningRequests: approved ones are signed by the cluster's authority, old ones are
deleted.

The signers are those of Kubernetes.  A person or a program with the right to it approves requests;
a node's request for its own client certificate is approved by this controller, after it has checked
that the node may have it.  Reference: local-cluster 5.9, 10.11.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hekla.api.kinds import Kind
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from cryptography import x509


CERTIFICATE_REQUESTS: Kind[Json] = Kind(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    False,
    dict[str, Any],
)
CLIENT = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVING = "kubernetes.io/kubelet-serving"
LONGEST = timedelta(days=365)
SHORTEST = timedelta(minutes=10)
BACKDATED = timedelta(minutes=5)
"""Seconds by which a certificate is valid before now, because clocks of machines differ."""
KEPT = {"Approved": 3600, "Denied": 3600, "Failed": 3600, "": 24 * 3600}
"""Seconds after its last change for which a request is kept, by its state."""
NODES, NODE = "system:nodes", "system:node:"
_KEY_USAGES = {
    "signing": "digital_signature", "digital signature": "digital_signature", "content commitment": "content_commitment",
    "key encipherment": "key_encipherment", "key agreement": "key_agreement", "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign", "crl sign": "crl_sign",
}  # fmt: skip
_OPTIONAL_USAGE = "key encipherment"


class Authority(NamedTuple):
    """The files of the authority that signs."""

    certificate: Path
    key: Path


class Unsignable(Exception):
    """A signer refuses a request; `str()` is a message to its sender."""


def state(request: Json) -> str:
    """Approved, Denied, Failed, or empty while nobody has said anything."""
    told = {
        condition.get("type") for condition in (request.get("status") or {}).get("conditions") or ()
    }
    return next((kind for kind in ("Failed", "Denied", "Approved") if kind in told), "")


class SigningController(Controller):
    """Signs approved requests, approves those of nodes, and deletes old ones.  Keys are the names
    of the requests."""

    name = "csr-signing"

    def __init__(self, client: Client, requests: Cache[Json], authority: Authority | None) -> None:
        """Without an authority nothing is signed."""
        super().__init__(requests)
        self.client = client
        self.requests = requests
        self.authority = authority
        self.enqueue(requests)

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a request.  Gives the seconds until it is deleted."""
        request = self.requests.get(key)
        if request is None:
            return None
        left = self._left(request)
        try:
            if left <= 0:
                await self.client.delete(CERTIFICATE_REQUESTS, key, uid=request["metadata"]["uid"])
                return None
            if not state(request) and request["spec"].get("signerName") == NODE_CLIENT:
                await self._recognize(request)
            elif state(request) == "Approved" and not (request.get("status") or {}).get(
                "certificate"
            ):
                await self._sign(request)
        except (NotFound, Conflict):
            return None  # what changed it brings it here again
        return left

    def _left(self, request: Json) -> float:
        conditions = (request.get("status") or {}).get("conditions") or ()
        times = [
            condition.get("lastUpdateTime") or condition.get("lastTransitionTime")
            for condition in conditions
        ]
        last = max([request["metadata"]["creationTimestamp"], *(time for time in times if time)])
        return instant(last) + KEPT[state(request)] - time.time()

    async def _sign(self, request: Json) -> None:
        if self.authority is None or request["spec"].get("signerName") not in RULES:
            return
        try:
            certificate = signed(
                request["spec"], self.authority, datetime.fromtimestamp(time.time(), UTC)
            )
        except Unsignable as error:
            await self._tell(request, "Failed", "SignerValidationFailure", str(error), "status")
            return
        status = {
            **(request.get("status") or {}),
            "certificate": base64.b64encode(certificate).decode(),
        }
        await self.client.update_status(CERTIFICATE_REQUESTS, {**request, "status": status})

    async def _recognize(self, request: Json) -> None:
        """Approve a client certificate that a node requests for itself, or that somebody with the
        right to it requests for a node."""
        spec = request["spec"]
        try:
            asked = opened(spec)
            RULES[NODE_CLIENT](asked, set(spec.get("usages") or ()))
        except Unsignable:
            return
        own = common_name(asked) == spec.get("username")
        for which in ("selfnodeclient", "nodeclient") if own else ("nodeclient",):
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": spec.get("username"),
                    "uid": spec.get("uid"),
                    "groups": spec.get("groups"),
                    "extra": spec.get("extra"),
                    "resourceAttributes": {
                        "group": "certificates.k8s.io",
                        "resource": "certificatesigningrequests",
                        "verb": "create",
                        "subresource": which,
                    },
                },
            }
            answer = await self.client.create(_REVIEWS, review)
            if (answer.get("status") or {}).get("allowed"):
                why = f"Auto approving {'self ' if which.startswith('self') else ''}kubelet client certificate after SubjectAccessReview."
                await self._tell(request, "Approved", "AutoApproved", why, "approval")
                return

    async def _tell(
        self, request: Json, kind: str, reason: str, message: str, subresource: str
    ) -> None:
        now = stamp(time.time())
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }
        status = dict(request.get("status") or {})
        status["conditions"] = [*(status.get("conditions") or ()), condition]
        with suppress(Invalid):  # somebody else has decided the opposite meanwhile
            await self.client.update(
                CERTIFICATE_REQUESTS, {**request, "status": status}, subresource=subresource
            )


_REVIEWS: Kind[Json] = Kind(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    False,
    dict[str, Any],
)


# --- certificates ---------------------------------------------------------------------------------
# The library is imported with the first request: hardly a cluster sees one.


def opened(spec: Json) -> x509.CertificateSigningRequest:
    """The request as the asker signed it.  Raises Unsignable."""
    from cryptography import x509

    try:
        asked = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or ""))
        valid = asked.is_signature_valid
    except ValueError as error:
        raise Unsignable(f"the request cannot be read: {error}") from None
    if not valid:
        raise Unsignable("the request is not signed with the key that it asks a certificate for")
    return asked


def signed(spec: Json, files: Authority, now: datetime) -> bytes:
    """The certificate of an approved request, as PEM.  Raises Unsignable."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    usages = set(spec.get("usages") or ())
    asked = opened(spec)
    RULES[spec["signerName"]](asked, usages)
    try:
        authority = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key: Any = serialization.load_pem_private_key(files.key.read_bytes(), None)
    except (ValueError, TypeError, OSError) as error:
        raise Unsignable(
            f"the authority's {files.certificate} and {files.key} cannot be used: {error}"
        ) from error
    seconds = spec.get("expirationSeconds")
    lasts = LONGEST if seconds is None else min(max(timedelta(seconds=seconds), SHORTEST), LONGEST)
    builder = (
        x509.CertificateBuilder()
        .subject_name(asked.subject)
        .issuer_name(authority.subject)
        .public_key(asked.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - min(BACKDATED, lasts / 8))
        .not_valid_after(min(now + lasts, authority.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    wanted = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    if wanted:  # no client accepts an extension that allows nothing
        builder = builder.add_extension(_key_usage(wanted), critical=True)
    purposes = _purposes(usages)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    names = _names(asked)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_usage(wanted: set[str]) -> x509.KeyUsage:
    from cryptography import x509

    every = dict.fromkeys((*_KEY_USAGES.values(), "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(**{**every, **dict.fromkeys(wanted, True)})


def _purposes(usages: set[str]) -> list[x509.ObjectIdentifier]:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    known = {
        "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
        "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    }
    return [purpose for usage, purpose in known.items() if usage in usages]


def _names(asked: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    from cryptography import x509

    try:
        return asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def common_name(asked: x509.CertificateSigningRequest) -> str:
    """Of several the last, which is the one that a server believes."""
    from cryptography.x509.oid import NameOID

    return next(
        (
            str(each.value)
            for each in reversed(asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
        ),
        "",
    )


def _of_a_node(asked: x509.CertificateSigningRequest, usages: set[str], purpose: str) -> None:
    from cryptography.x509.oid import NameOID

    groups = [
        each.value for each in asked.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    ]
    if groups != [NODES]:
        raise Unsignable("subject organization is not system:nodes")
    if not common_name(asked).startswith(NODE):
        raise Unsignable("subject common name does not begin with system:node:")
    if usages - {_OPTIONAL_USAGE} != {"digital signature", purpose}:
        raise Unsignable(
            f"usages did not match [digital signature {purpose}] or [digital signature key encipherment {purpose}]"
        )


def _client(asked: x509.CertificateSigningRequest, usages: set[str]) -> None:
    if "client auth" not in usages or not usages <= {
        "client auth",
        "digital signature",
        _OPTIONAL_USAGE,
    }:
        raise Unsignable(
            "invalid usages: must be client auth, with digital signature and key encipherment or without"
        )


def _node_client(asked: x509.CertificateSigningRequest, usages: set[str]) -> None:
    _of_a_node(asked, usages, "client auth")
    if _names(asked) is not None:
        raise Unsignable("no names beside the subject's are allowed")


def _node_serving(asked: x509.CertificateSigningRequest, usages: set[str]) -> None:
    from cryptography import x509

    _of_a_node(asked, usages, "server auth")
    names = _names(asked)
    if names is None or not any(isinstance(name, x509.DNSName | x509.IPAddress) for name in names):
        raise Unsignable("DNS or IP subjectAltName is required")
    if any(isinstance(name, x509.RFC822Name | x509.UniformResourceIdentifier) for name in names):
        raise Unsignable("email and URI subjectAltNames are not allowed")


RULES: dict[str, Callable[[x509.CertificateSigningRequest, set[str]], None]] = {
    CLIENT: _client,
    NODE_CLIENT: _node_client,
    NODE_SERVING: _node_serving,
}
