"""Secrets that hold the token of a service account go with the account.  Reference: local-cluster
10.11.

The API server fills such a Secret when it is made and refuses its token once the account is gone;
this clears the rest away.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from hekla.api.kinds import read_as
from hekla.api.kubernetes.core import SECRET, SERVICE_ACCOUNT
from hekla.api.names import SERVICE_ACCOUNT_NAME, SERVICE_ACCOUNT_UID
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound
from hekla.local.controller_manager.garbage import Owned


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}


class TokenSecret(msgspec.Struct, gc=False):
    """Whose token it is; the token itself is not kept here."""

    metadata: Metadata


TOKEN_SECRETS = read_as(SECRET, TokenSecret)


def account_of(secret: TokenSecret) -> list[str]:
    """Index of token Secrets by their account."""
    meta = secret.metadata
    return [f"{meta.namespace}/{meta.annotations.get(SERVICE_ACCOUNT_NAME, '')}"]


class TokenSecretController(Controller):
    """Keys are those of the Secrets."""

    name = "serviceaccount-token"

    def __init__(self, client: Client, secrets: Cache[TokenSecret], accounts: Cache[Owned]) -> None:
        super().__init__(secrets, accounts)
        self.client = client
        self.secrets = secrets
        self.accounts = accounts
        self.enqueue(secrets)
        accounts.on_change(self.account_changed)

    def account_changed(self, old: Owned | None, new: Owned | None) -> None:
        if old is not None and new is None:
            for secret in self.secrets.by(
                "account", f"{old.metadata.namespace}/{old.metadata.name}"
            ):
                self.queue.add(f"{secret.metadata.namespace}/{secret.metadata.name}")

    async def reconcile(self, key: str) -> float | None:
        """Deletes a Secret whose account is gone, or is another one of that name."""
        secret = self.secrets.get(key)
        if secret is None:
            return None
        meta = secret.metadata
        account = self.accounts.get(account_of(secret)[0])
        if account is not None and account.metadata.uid == meta.annotations.get(
            SERVICE_ACCOUNT_UID, account.metadata.uid
        ):
            return None
        with suppress(NotFound):
            fresh = await self.client.get(
                SERVICE_ACCOUNT.untyped,
                meta.annotations.get(SERVICE_ACCOUNT_NAME, ""),
                meta.namespace,
            )
            if fresh["metadata"]["uid"] == meta.annotations.get(
                SERVICE_ACCOUNT_UID, fresh["metadata"]["uid"]
            ):
                return None  # the account exists; the cache was late
        with suppress(NotFound, Conflict):
            await self.client.delete(SECRET, meta.name, meta.namespace, uid=meta.uid)
        return None
