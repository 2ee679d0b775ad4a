"""Service account tokens: signed, short-lived, and dead with the account they speak for."""

from __future__ import annotations

import base64
import json
import time
import uuid
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from hekla.kube.http.server import Response
from hekla.local.apiserver import bodies
from hekla.local.apiserver.call import Call, read_body
from hekla.local.apiserver.identity import AUTHENTICATED, SERVICE_ACCOUNT, User
from hekla.local.apiserver.kind import FieldError, Json, Kind
from hekla.local.apiserver.registry import Registry
from hekla.local.apiserver.status import invalid, not_found
from hekla.local.apiserver.store import encode

ISSUER = "https://kubernetes.default.svc.cluster.local"
SHORTEST, LONGEST = 600, 1 << 32
TOKEN_REQUEST = Kind("authentication.k8s.io", "v1", "TokenRequest", "tokenrequests", True)


def pack(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unpack(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Tokens:
    """Signs tokens with the cluster's key and knows its own again."""

    def __init__(self, key_file: Path, registry: Registry) -> None:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key_file}: an elliptic curve key (P-256) is wanted")
        self.key = key
        self.public = key.public_key()
        self.registry = registry
        der = self.public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        digest = hashes.Hash(hashes.SHA256())
        digest.update(der)
        self.key_id = pack(digest.finalize())

    def sign(self, claims: Json) -> str:
        head = pack(json.dumps({"alg": "ES256", "kid": self.key_id}).encode())
        text = f"{head}.{pack(json.dumps(claims).encode())}"
        r, s = decode_dss_signature(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{pack(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"

    def verify(self, token: str, audiences: tuple[str, ...] = (ISSUER,)) -> tuple[User, float] | None:
        """The user of a token and when it expires; None for one that is not ours, not valid now, or whose account is gone."""
        parts = token.split(".")
        if len(parts) != 3:
            return None
        try:
            head = json.loads(unpack(parts[0]))
            signature = unpack(parts[2])
            if head.get("alg") != "ES256" or len(signature) != 64:
                return None
            encoded = encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))
            self.public.verify(encoded, f"{parts[0]}.{parts[1]}".encode(), ec.ECDSA(hashes.SHA256()))
            claims = json.loads(unpack(parts[1]))
            now = time.time()
            if claims["iss"] != ISSUER or not claims["nbf"] - 10 <= now < claims["exp"] or not set(claims["aud"]) & set(audiences):
                return None
            return self._user(claims), float(claims["exp"])
        except (ValueError, KeyError, TypeError, InvalidSignature, LookupError):
            return None

    def _user(self, claims: Json) -> User:
        bound = claims["kubernetes.io"]
        namespace, name, uid = bound["namespace"], bound["serviceaccount"]["name"], bound["serviceaccount"]["uid"]
        extra = {"authentication.kubernetes.io/credential-id": (f"JTI={claims['jti']}",)}
        self._must_live("serviceaccounts", namespace, name, uid)
        if "pod" in bound:
            self._must_live("pods", namespace, bound["pod"]["name"], bound["pod"]["uid"])
            extra["authentication.kubernetes.io/pod-name"] = (bound["pod"]["name"],)
            extra["authentication.kubernetes.io/pod-uid"] = (bound["pod"]["uid"],)
        groups = (SERVICE_ACCOUNT[:-1] + "s", f"{SERVICE_ACCOUNT[:-1]}s:{namespace}", AUTHENTICATED)
        return User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, uid, extra)

    def _must_live(self, plural: str, namespace: str, name: str, uid: str) -> None:
        row = self.registry[plural].collection.rows.get(f"{namespace}/{name}")
        if row is None or row.uid != uid:
            raise LookupError(f"{plural} {namespace}/{name} is gone")

    async def request(self, call: Call) -> Response:
        """POST serviceaccounts/<name>/token."""
        kind = call.route.kind
        row = call.resource.collection.newest(call.route.key)
        if row is None:
            raise not_found(kind, call.route.name)
        tree = read_body(call, bodies.TOKEN_REQUEST)
        spec: Json = tree.get("spec") or {}
        seconds = spec.get("expirationSeconds") or 3600
        errors: list[FieldError] = []
        if seconds < SHORTEST:
            text = f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
            errors.append(FieldError("spec.expirationSeconds", "FieldValueInvalid", text))
        elif seconds > LONGEST:
            text = f"Invalid value: {seconds}: may not specify a duration larger than 2^32 seconds"
            errors.append(FieldError("spec.expirationSeconds", "FieldValueInvalid", text))
        if errors:
            raise invalid(TOKEN_REQUEST, "", errors)
        audiences = spec.get("audiences") or [ISSUER]
        now = int(time.time())
        bound: Json = {"namespace": call.route.namespace, "serviceaccount": {"name": row.name, "uid": row.uid}}
        reference = spec.get("boundObjectRef") or {}
        if reference.get("kind") == "Pod":
            pods = self.registry["pods"]
            pod = pods.collection.newest(f"{call.route.namespace}/{reference.get('name')}")
            if pod is None:
                raise not_found(pods.kind, str(reference.get("name")))
            bound["pod"] = {"name": pod.name, "uid": pod.uid}
        claims: Json = {
            "iss": ISSUER, "sub": f"{SERVICE_ACCOUNT}{call.route.namespace}:{row.name}", "aud": audiences, "iat": now, "nbf": now,
            "exp": now + seconds, "jti": str(uuid.uuid4()), "kubernetes.io": bound,
        }  # fmt: skip
        tree["metadata"] = {"name": row.name, "namespace": row.namespace, "creationTimestamp": stamp(now)}
        tree["spec"] = {**spec, "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec.get("boundObjectRef")}
        tree["status"] = {"token": self.sign(claims), "expirationTimestamp": stamp(now + seconds)}
        return call.respond(201, encode({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **tree}))

    def keys(self) -> Json:
        """The public key as a JSON web key set."""
        numbers = self.public.public_numbers()
        key: dict[str, Any] = {
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": pack(numbers.x.to_bytes(32, "big")), "y": pack(numbers.y.to_bytes(32, "big")),
        }  # fmt: skip
        return {"keys": [key]}


def stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
