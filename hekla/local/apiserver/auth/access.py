"""What somebody asks to do."""

from __future__ import annotations

from typing import NamedTuple


class Access(NamedTuple):
    """What is asked for."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Of a request that is not about a resource."""
    node: str = ""
    """The one node whose objects a field selector leaves."""

    @property
    def what(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
