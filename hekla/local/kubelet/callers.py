"""Who may ask a node's endpoint: the API server itself, and whoever the API server knows and lets.

As at a kubelet, a request is an act on the node: what it measures is `nodes/metrics` and
`nodes/stats`, its logs are `nodes/log`, its pods `nodes/pods`, and all else `nodes/proxy`, which also
stands for the pods and the configuration.  A monitoring system with a service account's token and the right
`get` on `nodes/metrics` thus reads the usage, and no more.
"""

from __future__ import annotations

from hekla.kube.connection.delegation import Access, Delegation, Refused
from hekla.kube.http.message import Peer, Request, Response

API_SERVER_CLIENT = "kube-apiserver-kubelet-client"
"""The common name in the client certificates of API servers, also those of kubeadm."""
MASTERS = "system:masters"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
SUBRESOURCES = {
    "stats": ("stats",),
    "metrics": ("metrics",),
    "logs": ("log",),
    "pods": ("pods", "proxy"),
}
"""First segment of the path -> any of which is enough; others need `proxy`."""
CHALLENGE = {"WWW-Authenticate": 'Bearer realm="kubelet"'}


def is_api_server(peer: Peer) -> bool:
    """Whether an API server asks; it has checked what its own user may."""
    return peer.common_name == API_SERVER_CLIENT or MASTERS in peer.organizations


class Callers:
    """Lets requests to the endpoint of one node through, or not."""

    def __init__(self, delegation: Delegation, node: str) -> None:
        self._delegation = delegation
        self._node = node

    async def refusal(self, request: Request) -> Response | None:
        """Why a request is not answered; None where it may be."""
        verb = VERBS.get(request.method, "get")
        subresources = SUBRESOURCES.get(request.path.strip("/").split("/")[0], ("proxy",))
        try:
            user = await self._delegation.user(request)
            for subresource in subresources:
                access = Access(verb, "", "nodes", subresource, self._node)
                if (await self._delegation.verdict(user, access)).allowed:
                    return None
        except Refused as refused:
            headers = CHALLENGE if refused.code == 401 else None
            return Response(refused.code, str(refused).encode(), "text/plain", headers)
        words = (
            f"Forbidden (user={user.name}, verb={verb}, resource=nodes, "
            f"subresource(s)=[{' '.join(subresources)}])"
        )
        return Response(403, words.encode(), "text/plain")
