"""Devices that pods claim (dynamic resource allocation): what drivers devices, what claims ask for,
and which device who gets.

`pools` reads ResourceSlices, `requests` reads ResourceClaims, `search` finds devices for the claims
of one pod on one node, and `book` keeps account of who has what and answers for all nodes.
Reference: plugins-placement 1.6 (DynamicResources).
"""

from hekla.engine.model.claims.allocator import KINDS, DeviceAllocator

__all__ = ["KINDS", "DeviceAllocator"]
