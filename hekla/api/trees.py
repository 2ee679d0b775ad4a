"""JSON trees: objects of the API as Python's json has them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
