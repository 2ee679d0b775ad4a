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
from hekla.local.apiserver.admission import Attributes
from hekla.local.apiserver.call import Call, read_body
from hekla.local.apiserver.identity import AUTHENTICATED, SERVICE_ACCOUNT, User
from hekla.local.apiserver.kind import FieldError, Json, Kind
from hekla.local.apiserver.registry import Registry
from hekla.local.apiserver.status import bad_request, conflict, invalid, not_found
from hekla.local.apiserver.store import encode

ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER, LEGACY_CLAIM = "kubernetes/serviceaccount", "kubernetes.io/serviceaccount/"
SHORTEST, LONGEST = 600, 1 << 32
POD_NAME, POD_UID = "authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"
"""What is told of the pod that a token was made for."""
BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
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
            if claims["iss"] == LEGACY_ISSUER:
                return (self._legacy_user(claims), time.time() + 60.0) if ISSUER in audiences else None
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

    def pod_lives(self, user: User) -> bool:
        """Whether the pod that the token of this user was made for is still there."""
        namespace = user.name.split(":")[2]
        try:
            self._must_live("pods", namespace, user.extra[POD_NAME][0], user.extra[POD_UID][0])
        except LookupError:
            return False
        return True

    def _legacy_user(self, claims: Json) -> User:
        """Of a token without an end, which lives as long as its Secret."""
        namespace, name, uid = (claims[LEGACY_CLAIM + part] for part in ("namespace", "service-account.name", "service-account.uid"))
        self._must_live("serviceaccounts", namespace, name, uid)
        secret = self.registry["secrets"].collection.rows.get(f"{namespace}/{claims[LEGACY_CLAIM + 'secret.name']}")
        if secret is None:
            raise LookupError("the token's secret is gone")
        groups = (SERVICE_ACCOUNT[:-1] + "s", f"{SERVICE_ACCOUNT[:-1]}s:{namespace}", AUTHENTICATED)
        return User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups, uid)

    def audiences(self, token: str) -> list[str]:
        """Whom a token of ours was made for."""
        try:
            claims = json.loads(unpack(token.split(".")[1]))
        except (ValueError, IndexError):
            return []
        return list(claims.get("aud") or [ISSUER])

    def fill_secret(self, attributes: Attributes) -> None:
        """Gives a secret of type service-account-token what it promises."""
        secret = attributes.object
        assert secret is not None
        if secret.get("type") != "kubernetes.io/service-account-token":
            return
        annotations = secret["metadata"].get("annotations") or {}
        name, namespace = annotations.get("kubernetes.io/service-account.name"), attributes.namespace
        account = self.registry["serviceaccounts"].collection.newest(f"{namespace}/{name}")
        if account is None or attributes.call.dry_run or not secret["metadata"].get("name"):
            return
        annotations["kubernetes.io/service-account.uid"] = account.uid
        claims = {
            "iss": LEGACY_ISSUER, LEGACY_CLAIM + "namespace": namespace, LEGACY_CLAIM + "secret.name": secret["metadata"]["name"],
            LEGACY_CLAIM + "service-account.name": name, LEGACY_CLAIM + "service-account.uid": account.uid,
            "sub": f"{SERVICE_ACCOUNT}{namespace}:{name}",
        }  # fmt: skip
        data = secret.setdefault("data", {})
        data["token"] = base64.b64encode(self.sign(claims).encode()).decode()
        data["namespace"] = base64.b64encode(namespace.encode()).decode()
        root = self.registry["configmaps"].collection.newest(f"{namespace}/kube-root-ca.crt")
        if root is not None:
            text = (root.tree().get("data") or {}).get("ca.crt") or ""
            data["ca.crt"] = base64.b64encode(text.encode()).decode()

    def _must_live(self, plural: str, namespace: str, name: str, uid: str) -> None:
        row = self.registry[plural].collection.rows.get(f"{namespace}/{name}" if namespace else name)
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
        if reference:
            bound.update(self._bound(call, reference, row.name))
        claims: Json = {
            "iss": ISSUER, "sub": f"{SERVICE_ACCOUNT}{call.route.namespace}:{row.name}", "aud": audiences, "iat": now, "nbf": now,
            "exp": now + seconds, "jti": str(uuid.uuid4()), "kubernetes.io": bound,
        }  # fmt: skip
        tree["metadata"] = {"name": row.name, "namespace": row.namespace, "uid": str(uuid.uuid4()), "creationTimestamp": stamp(now)}
        tree["spec"] = {**spec, "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": spec.get("boundObjectRef")}
        tree["status"] = {"token": self.sign(claims), "expirationTimestamp": stamp(now + seconds)}
        return call.respond(201, encode({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **tree}))

    def _bound(self, call: Call, reference: Json, account: str) -> Json:
        """The claims about the object that a token is to die with."""
        kind, name = reference.get("kind"), str(reference.get("name") or "")
        if kind not in BOUND:
            group, _, version = str(reference.get("apiVersion") or "").rpartition("/")
            raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        resource = self.registry[BOUND[kind]]
        found = resource.collection.newest(f"{call.route.namespace}/{name}" if resource.kind.namespaced else name)
        if found is None:
            raise not_found(resource.kind, name)
        uid = reference.get("uid")
        if uid and uid != found.uid:
            why = f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            raise conflict(resource.kind, name, why + "The object might have been deleted and then recreated")
        bound: Json = {kind.lower(): {"name": found.name, "uid": found.uid}}
        if kind == "Pod":
            spec = found.tree().get("spec") or {}
            if spec.get("serviceAccountName", "") != account:
                why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
                raise bad_request(why)
            node = self.registry["nodes"].collection.newest(spec.get("nodeName") or "")
            if spec.get("nodeName"):
                bound["node"] = {"name": spec["nodeName"], **({"uid": node.uid} if node is not None else {})}
        return bound

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
