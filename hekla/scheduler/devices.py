"""What device plugins of nodes and the scheduler agree upon: the map of cards' models, and the lock of a node.

Reference: plugins-placement 7.1, 7.7.
"""

from __future__ import annotations

from hekla.engine.policy import Policy

DEFAULT_MAP = ("kube-system", "volcano-vgpu-device-config")


def device_map(policy: Policy) -> tuple[str, str]:
    """Namespace and name of the ConfigMap that says how cards are shared and cut."""
    for tier in policy.tiers:
        for option in tier:
            if option.name == "deviceshare":
                return option.arguments.map_namespace, option.arguments.map_name
    return DEFAULT_MAP
