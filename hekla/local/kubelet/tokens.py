"""Service account tokens for projected volumes: requested when a pod starts, and again when most of
their lifetime is over."""

from __future__ import annotations

import logging
import time
from typing import Any

from hekla.api.kubernetes import core
from hekla.api.text.times import instant
from hekla.kube.client import Client
from hekla.kube.errors import ApiError

log = logging.getLogger("kubelet.tokens")

RENEW_AT = 0.8
"""The part of a token's lifetime after which it is replaced."""


class Tokens:
    """The tokens of one pod, by audience."""

    def __init__(self, client: Client, pod: core.Pod) -> None:
        self._client = client
        self._pod = pod
        self.values: dict[str, str] = {}
        self._renew_at: dict[str, float] = {}
        self._wanted = {
            source.service_account_token.audience: source.service_account_token.expiration_seconds
            or 3600
            for volume in pod.spec.volumes
            if volume.projected is not None
            for source in volume.projected.sources
            if source.service_account_token is not None
        }

    async def renew(self) -> None:
        """Asks for what is missing or nearly spent.  Raises ApiError, TransportError."""
        now = time.time()
        for audience, seconds in self._wanted.items():
            if now < self._renew_at.get(audience, 0.0):
                continue
            meta = self._pod.metadata
            spec: dict[str, Any] = {
                "expirationSeconds": seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": meta.name,
                    "uid": meta.uid,
                },
            }
            if audience:
                spec["audiences"] = [audience]
            account = self._pod.spec.service_account_name or "default"
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            try:
                answer = await self._client.post(
                    core.SERVICE_ACCOUNT, account, meta.namespace, "token", body
                )
            except ApiError as error:
                if error.code in (405, 501):
                    log.warning("the API server gives no tokens (%s); pods go without", error)
                    self._renew_at[audience] = now + 3600
                    continue
                raise
            status = answer.get("status", {})
            self.values[audience] = status.get("token", "")
            expires = status.get("expirationTimestamp")
            life = instant(expires) - now if expires else float(seconds)
            self._renew_at[audience] = now + life * RENEW_AT
