"""Service account tokens: dead with what they speak for, with their time, and with any change to
them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path

import pytest

from hekla.local.apiserver.auth.tokens import ISSUER, Tokens
from tests.apiserver_process import ApiServerProcess
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import Namespace
from tests.cluster.objects import pod
from tests.security.conftest import Fort

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def who(api: Api) -> int:
    return api.post(REVIEW, {}).status


def pack(tree: Tree) -> str:
    return base64.urlsafe_b64encode(json.dumps(tree).encode()).rstrip(b"=").decode()


def unpack(text: str) -> Tree:
    return dict(json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def test_a_token_dies_with_its_pod(fort: Fort, ns: Namespace) -> None:
    made = fort.api.create(ns.path("pods"), pod("bound"))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "bound", "uid": made["metadata"]["uid"]}
    user = fort.with_token(fort.token(ns, "default", boundObjectRef=reference))
    assert who(user) == 201
    fort.api.delete(ns.path("pods", "bound"), gracePeriodSeconds=0)
    assert who(user) == 401
    fort.api.create(ns.path("pods"), pod("bound"))  # another of the same name is not the same
    assert who(user) == 401


def test_a_token_dies_with_its_account(fort: Fort, ns: Namespace) -> None:
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    user = fort.with_token(fort.token(ns, "robot"))
    assert who(user) == 201
    fort.api.delete(ns.path("serviceaccounts", "robot"))
    assert who(user) == 401
    fort.api.create(ns.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    assert who(user) == 401


def test_a_token_for_others_is_none_for_the_server(fort: Fort, ns: Namespace) -> None:
    assert who(fort.with_token(fort.token(ns, "default", audiences=["vault"]))) == 401


def test_a_token_of_a_pod_stops_when_the_pod_has_gone(fort: Fort, ns: Namespace) -> None:
    """The very token that a container was given."""
    fort.start(
        ns, "holder", "cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; sleep 600"
    )
    token = eventually(lambda: fort.api.get(ns.path("pods", "holder", "log")).text.strip())
    assert who(fort.with_token(token)) == 201
    fort.api.delete(ns.path("pods", "holder"), gracePeriodSeconds=0)
    eventually(lambda: who(fort.with_token(token)) == 401)


CHANGES = (
    "alg none",
    "HS256 by the public key",
    "subject",
    "time",
    "signature cut",
    "signature of zeros",
    "four parts",
)


@pytest.mark.parametrize("change", CHANGES)
def test_changed_tokens(fort: Fort, ns: Namespace, change: str) -> None:
    head, body, signature = fort.token(ns, "default").split(".")
    claims = unpack(body)
    match change:
        case "alg none":
            changed = f"{pack({'alg': 'none', 'typ': 'JWT'})}.{body}."
        case "HS256 by the public key":
            public = fort.api.get("/openid/v1/jwks").body
            text = f"{pack({'alg': 'HS256', 'typ': 'JWT'})}.{body}"
            made = hmac.new(public, text.encode(), hashlib.sha256).digest()
            changed = f"{text}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"
        case "subject":
            changed = f"{head}.{pack({**claims, 'sub': 'system:serviceaccount:kube-system:default'})}.{signature}"
        case "time":
            changed = f"{head}.{pack({**claims, 'exp': claims['exp'] + 86400})}.{signature}"
        case "signature cut":
            changed = f"{head}.{body}.{signature[:-4]}"
        case "signature of zeros":
            changed = f"{head}.{body}.{'A' * 86}"
        case _:
            changed = f"{head}.{body}.{signature}.{signature}"
    assert who(fort.with_token(changed)) == 401


def test_expired_tokens(tmp_path: Path) -> None:
    """Signed with the cluster's own key, but of yesterday, of tomorrow, or just over."""
    with ApiServerProcess.started(tmp_path) as server:
        api = Api(server.kubeconfig)
        account = api.create(
            "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "late"}}
        )
        fresh = api.post(
            "/api/v1/namespaces/default/serviceaccounts/late/token", {"spec": {}}
        ).tree["status"]["token"]
        claims = unpack(fresh.split(".")[1])
        signer = Tokens(server.pki / "sa.key", None)  # type: ignore[arg-type]  # signing asks no registry
        now = time.time()

        def status(issued: float, until: float, **more: object) -> int:
            signed = signer.sign(
                {**claims, "iat": int(issued), "nbf": int(issued), "exp": int(until), **more}
            )
            return who(Api(server.kubeconfig, token=signed))

        assert account["metadata"]["uid"] == claims["kubernetes.io"]["serviceaccount"]["uid"]
        assert status(now - 10, now + 600) == 201
        assert status(now - 86400, now - 80000) == 401
        assert status(now - 20, now - 1) == 401
        assert status(now + 600, now + 1200) == 401
        assert status(now, now + 600, iss="https://elsewhere.example.com") == 401
        assert status(now, now + 600, aud=[]) == 401
        assert status(now, now + 600, aud=[ISSUER, "vault"]) == 201
        for seconds in (2, 10, 50):  # an answer that came after the end would say nothing
            ends = time.time() + seconds
            short = Api(server.kubeconfig, token=signer.sign({**claims, "exp": ends}))
            answer = who(short)
            if time.time() < ends:
                break
        assert answer == 201
        time.sleep(max(0.0, ends - time.time()) + 0.1)  # it was good a moment ago, also in a cache
        assert who(short) == 401
