"""Who may have a certificate: what a request may ask for, and who may approve and sign it
(local-cluster 5.9, 7.2).

A certificate is a name for as long as it lasts, so each step of its way has a right of its own on
its signer: `approve` to say yes to a request, `sign` to answer it.  No request may ask for the
group that may do everything.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from hekla.api.trees import Json
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.user import MASTERS
from hekla.local.apiserver.request.status import forbidden

GROUP = "certificates.k8s.io"
REQUESTS = f"certificatesigningrequests.{GROUP}"
API_CLIENT = "kubernetes.io/kube-apiserver-client"


class Subject(NamedTuple):
    """Whom a certificate would name."""

    common_name: str
    organizations: tuple[str, ...]


def subject_of(request: Json) -> Subject:
    """Whom a request asks a certificate for.  Raises ValueError for one that cannot be read to its
    end."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        asked = x509.load_pem_x509_csr(
            base64.b64decode((request.get("spec") or {}).get("request") or "")
        )
        names = [
            str(each.value) for each in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
        organizations = [
            str(each.value)
            for each in asked.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        ]
    except (ValueError, TypeError) as error:
        raise ValueError(str(error)) from error
    # Of several common names the last is the one that a server believes.
    return Subject(names[-1] if names else "", tuple(organizations))


class Certificates:
    """The admission rules of requests for certificates."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.authorizer = authorizer

    def join(self, admission: Admission) -> None:
        admission.checks[REQUESTS, "CREATE"] = [self.check_subject]
        admission.checks[f"{REQUESTS}/approval", "UPDATE"] = [self.check_approval]
        admission.checks[f"{REQUESTS}/status", "UPDATE"] = [self.check_signature]

    def check_subject(self, attributes: Attributes) -> None:
        """CertificateSubjectRestriction."""
        request = attributes.object or {}
        if (request.get("spec") or {}).get("signerName") != API_CLIENT:
            return
        try:
            subject = subject_of(request)
        except ValueError as error:
            raise forbidden(
                attributes.resource.kind, attributes.name, f"failed to parse CSR: {error}"
            ) from error
        if MASTERS in subject.organizations:
            why = f"use of {API_CLIENT} signer with {MASTERS} group is not allowed"
            raise forbidden(attributes.resource.kind, attributes.name, why)

    def check_approval(self, attributes: Attributes) -> None:
        """CertificateApproval."""
        self._signer(
            attributes, "approve", "user not permitted to approve requests with signerName"
        )

    def check_signature(self, attributes: Attributes) -> None:
        """CertificateSigning."""
        old, new = (
            (attributes.old or {}).get("status") or {},
            (attributes.object or {}).get("status") or {},
        )
        if any(
            (old.get(name) or None) != (new.get(name) or None)
            for name in ("certificate", "conditions")
        ):
            self._signer(attributes, "sign", "user not permitted to sign requests with signerName")

    def _signer(self, attributes: Attributes, verb: str, why: str) -> None:
        user = attributes.call.user
        name = str(((attributes.old or {}).get("spec") or {}).get("signerName") or "")
        for wanted in (name, f"{name.partition('/')[0]}/*"):
            if self.authorizer.allows(user, Access(verb, GROUP, "signers", name=wanted))[0]:
                return
        raise forbidden(attributes.resource.kind, attributes.name, f'{why} "{name}"')
