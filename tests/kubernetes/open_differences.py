"""How many differences each script still has.  Each is a debt: no number may grow, and a script without one has none.

Watches and the conditions of definitions see a moment more or less, so those have some to spare.
"""

from __future__ import annotations

OPEN: dict[str, int] = {
    "made-up": 66,
    "made-up statuses": 3,
    "bodies": 5,
    "creating": 3,
    "definition-mistakes": 10,
    "definitions": 24,
    "deleting": 1,
    "http": 9,
    "life of daemonsets": 1,
    "life of deployments": 1,
    "life of endpoints": 1,
    "listing": 5,
    "namespaces": 35,
    "patching": 13,
    "pod-updates": 1,
    "pods": 4,
    "quotas": 1,
    "rbac": 3,
    "reading": 5,
    "reviews": 1,
    "services": 9,
    "watching": 6,
    "webhooks": 2,
    "workloads": 14,
}
