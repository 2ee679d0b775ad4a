"""Version and health: what anybody may ask."""

from __future__ import annotations

import platform

from hekla import __version__
from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.auth.tokens import ISSUER
from hekla.local.apiserver.request.status import NOSNIFF
from hekla.local.apiserver.storage.rows import encode
from hekla.local.apiserver.storage.store import Store

KUBERNETES_MINOR = "36"
CHECKS = ("ping", "log", "storage")
PATHS = [
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
]


class Health:
    def __init__(self, store: Store) -> None:
        self.store = store

    def index(self) -> Response:
        return Response(200, encode({"paths": PATHS}))

    def version(self) -> Response:
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        )
        tree: Json = {
            "major": "1",
            "minor": KUBERNETES_MINOR,
            "emulationMajor": "1",
            "emulationMinor": KUBERNETES_MINOR,
            "minCompatibilityMajor": "1",
            "minCompatibilityMinor": str(int(KUBERNETES_MINOR) - 1),
            "gitVersion": f"v1.{KUBERNETES_MINOR}.0+hekla",
            "gitCommit": __version__,
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": f"python{platform.python_version()}",
            "compiler": "cpython",
            "platform": f"{platform.system().lower()}/{machine}",
        }
        return Response(200, encode(tree))

    def openid(self) -> Json:
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }

    def check(self, request: Request, path: str, ready: bool) -> Response:
        """/healthz, /livez, /readyz, and single checks below them."""
        _, root, *rest = path.split("/")
        checks = dict.fromkeys(CHECKS, True)
        if root == "readyz":
            checks["bootstrap"] = ready
        if rest:
            if rest[0] not in checks:
                return Response(404, b"404 page not found\n", "text/plain; charset=utf-8", NOSNIFF)
            checks = {rest[0]: checks[rest[0]]}
        good = all(checks.values())
        if "verbose" in request.options or not good:
            lines = [
                f"[{'+' if passed else '-'}]{name} {'ok' if passed else 'failed'}"
                for name, passed in checks.items()
            ]
            text = "\n".join([*lines, f"{root} check {'passed' if good else 'failed'}\n"])
        else:
            text = "ok"
        return Response(
            200 if good else 500,
            text.encode(),
            "text/plain; charset=utf-8",
            None if rest and good else NOSNIFF,
        )
