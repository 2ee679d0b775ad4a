"""The attributes of a request that authorization decides on."""

from __future__ import annotations

from typing import NamedTuple


class Access(NamedTuple):
    """What a user wants to do."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """The path of a request that is not about a resource."""
    node: str = ""
    """The only node whose objects a field selector matches."""

    @property
    def what(self) -> str:
        """The resource, with its subresource, as messages and rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
