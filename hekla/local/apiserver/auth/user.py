"""Who is asking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"
ANONYMOUS = "system:anonymous"
SERVICE_ACCOUNT = "system:serviceaccount:"
NODE, NODES = "system:node:", "system:nodes"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    node: str | None = field(init=False, compare=False)
    """The name of the node that it is; empty for one that does not say which, None for any other
    user.  Each write asks for it."""
    master: bool = field(init=False, compare=False)
    """Whether it may do everything.  Each request asks for it."""

    def __post_init__(self) -> None:
        node = (
            self.name.removeprefix(NODE)
            if self.name.startswith(NODE) and NODES in self.groups
            else None
        )
        object.__setattr__(self, "node", node)
        object.__setattr__(self, "master", MASTERS in self.groups)

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
