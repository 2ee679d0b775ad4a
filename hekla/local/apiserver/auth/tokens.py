"""Service account tokens: signed, short-lived, and invalid once their account is deleted."""

from __future__ import annotations

import base64
import hmac
import json
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from hekla.api.names import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_TOKEN, SERVICE_ACCOUNT_UID
from hekla.api.text.fieldrules import Errors
from hekla.api.text.times import instant, stamp
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.admission.attributes import Attributes, Plugin
from hekla.local.apiserver.auth.user import AUTHENTICATED, SERVICE_ACCOUNT, User
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.objects.kind import FieldError, Kind
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.status import bad_request, conflict, invalid, not_found
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.rows import encode

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""The type of Secrets with a token that does not expire."""
INVALID_SINCE = "kubernetes.io/legacy-token-invalid-since"
DELETION_MARK = b'"deletionTimestamp":'
LEEWAY = 60.0
"""Seconds for which a token stays valid after its object should have been deleted."""
LEGACY_ISSUER, LEGACY_CLAIM = "kubernetes/serviceaccount", "kubernetes.io/serviceaccount/"
MIN_SECONDS, MAX_SECONDS = 600, 1 << 32
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
"""Extra user information about the pod that a token is bound to."""
BOUND_OBJECTS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
BODY = reader("authentication.k8s.io", "v1", "TokenRequest")
TOKEN_REQUEST = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", True)


def pack(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpack(text: str) -> bytes:
    """Decode base64url without padding. Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Verified(NamedTuple):
    """The content of a token whose signature and claims were verified."""

    user: User
    expires: float
    claims: Json


class TokenKeyError(Exception):
    """The signing key cannot be used; the text names its file."""


class Tokens:
    """Signs tokens with the cluster's key, and verifies them."""

    def __init__(self, key_file: Path, registry: Registry) -> None:
        try:
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise TokenKeyError(
                f"--service-account-key-file: {key_file}: no private key in PEM; put back a copy"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TokenKeyError(
                f"--service-account-key-file: {key_file}: an elliptic curve key (P-256) is wanted"
            )
        self.key = key
        self.public = key.public_key()
        self.registry = registry
        self.restrict_node: Plugin = lambda attributes: None
        """Restricts a node to tokens for the accounts of its pods."""
        der = self.public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashes.Hash(hashes.SHA256())
        digest.update(der)
        self.key_id = pack(digest.finalize())

    def sign(self, claims: Json) -> str:
        """A signed JSON web token with these claims."""
        head = pack(json.dumps({"alg": "ES256", "kid": self.key_id}).encode())
        text = f"{head}.{pack(json.dumps(claims).encode())}"
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{pack(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def verify(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> Verified | None:
        """The content of a token; None if it is not one of ours, not valid now, or its account was
        deleted."""
        parts = token.split(".")
        if len(parts) != 3:
            return None
        try:
            head = json.loads(unpack(parts[0]))
            signature = unpack(parts[2])
            if head.get("alg") != "ES256" or len(signature) != 64:
                return None
            encoded = encode_dss_signature(
                int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
            )
            self.public.verify(
                encoded, f"{parts[0]}.{parts[1]}".encode(), ec.ECDSA(hashes.SHA256())
            )
            claims = json.loads(unpack(parts[1]))
            if claims["iss"] == LEGACY_ISSUER:
                return (
                    Verified(self._legacy_user(claims, token), time.time() + 60.0, claims)
                    if ISSUER in audiences
                    else None
                )
            now = time.time()
            if (
                claims["iss"] != ISSUER
                or not claims["nbf"] - 10 <= now < claims["exp"]
                or not set(claims["aud"]) & set(audiences)
            ):
                return None
            return Verified(self._user(claims), float(claims["exp"]), claims)
        except (ValueError, KeyError, TypeError, InvalidSignature, LookupError):
            return None

    def lives(self, token: str, verified: Verified) -> bool:
        """Whether all objects that a verified token is bound to still exist unchanged. Does not
        check the signature again."""
        try:
            if verified.claims["iss"] == LEGACY_ISSUER:
                self._legacy_user(verified.claims, token)
            else:
                self._user(verified.claims)
        except (ValueError, KeyError, TypeError, LookupError):
            return False
        return True

    def _user(self, claims: Json) -> User:
        bound = claims["kubernetes.io"]
        namespace = bound["namespace"]
        name = bound["serviceaccount"]["name"]
        uid = bound["serviceaccount"]["uid"]
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        self._must_live("serviceaccounts", namespace, name, uid)
        if "pod" in bound:
            self._must_live("pods", namespace, bound["pod"]["name"], bound["pod"]["uid"])
            extra[POD_NAME] = (bound["pod"]["name"],)
            extra[POD_UID] = (bound["pod"]["uid"],)
        elif "node" in bound:
            self._must_live("nodes", "", bound["node"]["name"], bound["node"]["uid"])
        if "secret" in bound:
            self._must_live("secrets", namespace, bound["secret"]["name"], bound["secret"]["uid"])
        if "node" in bound:
            extra["authentication.kubernetes.io/node-name"] = (bound["node"]["name"],)
            if "uid" in bound["node"]:
                extra["authentication.kubernetes.io/node-uid"] = (bound["node"]["uid"],)
        groups = (SERVICE_ACCOUNT[:-1] + "s", f"{SERVICE_ACCOUNT[:-1]}s:{namespace}", AUTHENTICATED)
        return User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, uid, extra)

    def _legacy_user(self, claims: Json, token: str) -> User:
        """The user of a token without expiry, which is valid as long as a Secret holds it."""
        namespace, name, uid = (
            claims[LEGACY_CLAIM + part]
            for part in ("namespace", "service-account.name", "service-account.uid")
        )
        if claims["sub"] != f"{SERVICE_ACCOUNT}{namespace}:{name}":
            raise LookupError("the token is of another account")
        self._must_live("serviceaccounts", namespace, name, uid, leeway=0.0)
        row = self.registry["secrets"].collection.rows.get(
            f"{namespace}/{claims[LEGACY_CLAIM + 'secret.name']}"
        )
        secret: Json = row.tree() if row is not None and DELETION_MARK not in row.data else {}
        kept = (secret.get("data") or {}).get("token") or ""
        if secret.get("type") != SERVICE_ACCOUNT_TOKEN or not hmac.compare_digest(
            base64.b64decode(kept), token.encode()
        ):
            raise LookupError("the token's secret is gone")
        annotations = secret["metadata"].get("annotations") or {}
        if (annotations.get(SERVICE_ACCOUNT_NAME), annotations.get(SERVICE_ACCOUNT_UID)) != (
            name,
            uid,
        ):
            raise LookupError("the secret is for another account")
        if (secret["metadata"].get("labels") or {}).get(INVALID_SINCE):
            raise LookupError("the token was marked as invalid")
        groups = (SERVICE_ACCOUNT[:-1] + "s", f"{SERVICE_ACCOUNT[:-1]}s:{namespace}", AUTHENTICATED)
        return User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, uid)

    def audiences(self, token: str) -> list[str]:
        """The audiences of one of our tokens."""
        try:
            claims = json.loads(unpack(token.split(".")[1]))
        except (ValueError, IndexError):
            return []
        return list(claims.get("aud") or [ISSUER])

    def fill_secret(self, attributes: Attributes) -> None:
        """Add token, CA certificate and namespace to a new Secret of type service-account-token."""
        secret = attributes.object
        assert secret is not None
        if secret.get("type") != SERVICE_ACCOUNT_TOKEN:
            return
        annotations = secret["metadata"].get("annotations") or {}
        name, namespace = annotations.get(SERVICE_ACCOUNT_NAME), attributes.namespace
        account = self.registry["serviceaccounts"].collection.newest(f"{namespace}/{name}")
        if account is None or attributes.call.dry_run or not secret["metadata"].get("name"):
            return
        annotations[SERVICE_ACCOUNT_UID] = account.uid
        claims = {
            "iss": LEGACY_ISSUER,
            LEGACY_CLAIM + "namespace": namespace,
            LEGACY_CLAIM + "secret.name": secret["metadata"]["name"],
            LEGACY_CLAIM + "service-account.name": name,
            LEGACY_CLAIM + "service-account.uid": account.uid,
            "sub": f"{SERVICE_ACCOUNT}{namespace}:{name}",
        }
        data = secret.setdefault("data", {})
        data["token"] = base64.b64encode(self.sign(claims).encode()).decode()
        data["namespace"] = base64.b64encode(namespace.encode()).decode()
        root = self.registry["configmaps"].collection.newest(f"{namespace}/kube-root-ca.crt")
        if root is not None:
            text = (root.tree().get("data") or {}).get("ca.crt") or ""
            data["ca.crt"] = base64.b64encode(text.encode()).decode()

    def _must_live(
        self, plural: str, namespace: str, name: str, uid: str, leeway: float = LEEWAY
    ) -> None:
        row = self.registry[plural].collection.rows.get(
            f"{namespace}/{name}" if namespace else name
        )
        if row is None or row.uid != uid:
            raise LookupError(f"{plural} {namespace}/{name} is gone")
        if DELETION_MARK in row.data:
            going = row.tree()["metadata"].get("deletionTimestamp")
            if going is not None and instant(going) < time.time() - leeway:
                raise LookupError(f"{plural} {namespace}/{name} should be gone")

    async def request(self, call: Call) -> Response:
        """POST serviceaccounts/<name>/token."""
        kind = call.route.kind
        tree = decode_body(call, BODY)
        self.restrict_node(
            Attributes(
                call,
                call.resource,
                "CREATE",
                call.route.namespace,
                call.route.name,
                tree,
                None,
                "token",
            )
        )
        row = call.resource.collection.newest(call.route.key)
        if row is None:
            raise not_found(kind, call.route.name)
        check_named(call, tree.get("metadata") or {}, row.uid)
        spec: Json = tree.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600
        errors = Errors()
        if seconds < MIN_SECONDS:
            why = "may not specify a duration less than 10 minutes"
            errors.invalid("spec.expirationSeconds", seconds, why)
        elif seconds > MAX_SECONDS:
            why = "may not specify a duration larger than 2^32 seconds"
            errors.invalid("spec.expirationSeconds", seconds, why)
        if errors:
            raise invalid(TOKEN_REQUEST, "", errors)
        audiences = spec.get("audiences") or [ISSUER]
        now = int(time.time())
        bound: Json = {
            "namespace": call.route.namespace,
            "serviceaccount": {"name": row.name, "uid": row.uid},
        }
        reference = spec.get("boundObjectRef") or {}
        if reference:
            bound.update(self._bound(call, reference, row.name))
        claims: Json = {
            "iss": ISSUER,
            "sub": f"{SERVICE_ACCOUNT}{call.route.namespace}:{row.name}",
            "aud": audiences,
            "iat": now,
            "nbf": now,
            "exp": now + seconds,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": bound,
        }
        tree["metadata"] = {
            "name": row.name,
            "namespace": row.namespace,
            "uid": str(uuid.uuid4()),
            "creationTimestamp": stamp(now),
        }
        tree["spec"] = {
            **spec,
            "audiences": audiences,
            "expirationSeconds": seconds,
            "boundObjectRef": spec.get("boundObjectRef"),
        }
        tree["status"] = {"token": self.sign(claims), "expirationTimestamp": stamp(now + seconds)}
        return call.respond(
            201, encode({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **tree})
        )

    def _bound(self, call: Call, reference: Json, account: str) -> Json:
        """The claims about the object that a token is bound to."""
        kind, name = reference.get("kind"), str(reference.get("name") or "")
        group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
        if kind not in BOUND_OBJECTS or group:
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        resource = self.registry[BOUND_OBJECTS[kind]]
        row = resource.collection.newest(
            f"{call.route.namespace}/{name}" if resource.kind.namespaced else name
        )
        if row is None:
            raise not_found(resource.kind, name)
        uid = reference.get("uid")
        if uid and uid != row.uid:
            why = (
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            )
            raise conflict(
                resource.kind, name, why + "The object might have been deleted and then recreated"
            )
        bound: Json = {kind.lower(): {"name": row.name, "uid": row.uid}}
        if kind == "Pod":
            spec = row.tree().get("spec") or {}
            if spec.get("serviceAccountName", "") != account:
                why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
                raise bad_request(why)
            node = self.registry["nodes"].collection.newest(spec.get("nodeName") or "")
            if spec.get("nodeName"):
                bound["node"] = {
                    "name": spec["nodeName"],
                    **({"uid": node.uid} if node is not None else {}),
                }
        return bound

    def keys(self) -> Json:
        """The public key as a JSON web key set."""
        numbers = self.public.public_numbers()
        key: dict[str, Any] = {
            "use": "sig",
            "kty": "EC",
            "kid": self.key_id,
            "crv": "P-256",
            "alg": "ES256",
            "x": pack(numbers.x.to_bytes(32, "big")),
            "y": pack(numbers.y.to_bytes(32, "big")),
        }
        return {"keys": [key]}


def check_named(call: Call, metadata: Json, uid: str) -> None:
    """Raises a 422 or 409 if the metadata in the request names another account than the path."""
    for field, wanted in (("name", call.route.name), ("namespace", call.route.namespace)):
        if metadata.get(field) and metadata[field] != wanted:
            text = f'Invalid value: "{metadata[field]}": must match the service account {field} if specified'
            raise invalid(
                TOKEN_REQUEST,
                call.route.name,
                [FieldError(f"metadata.{field}", "FieldValueInvalid", text)],
            )
    if metadata.get("uid") and metadata["uid"] != uid:
        why = f"the UID in the token request ({metadata['uid']}) does not match the UID of the service account ({uid})"
        raise conflict(TOKEN_REQUEST, call.route.name, why, TOKEN_REQUEST.kind)
