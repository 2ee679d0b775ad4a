"""Who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
ANONYMOUS = "system:anonymous"
SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def master(self) -> bool:
        return MASTERS in self.groups

    def tree(self) -> dict[str, Any]:
        """As reviews and webhooks are told it."""
        tree: dict[str, Any] = {"username": self.name}
        if self.uid:
            tree["uid"] = self.uid
        if self.groups:
            tree["groups"] = list(self.groups)
        if self.extra:
            tree["extra"] = {key: list(values) for key, values in self.extra.items()}
        return tree


ADMIN = User("kubernetes-admin", (MASTERS, AUTHENTICATED))
NOBODY = User(ANONYMOUS, ("system:unauthenticated",))
