"""The volumes of a job: claims that every container of every task mounts (reference: controllers
2.12).

Names that Volcano draws at random are derived from the job here, so that a second attempt finds
what the first one made.
"""

from __future__ import annotations

import hashlib
from typing import Any

from hekla.api import batch
from hekla.controllers.job.plugins.plugin import add_mount, add_volume, main_containers, object_meta

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"


def claim_name(job: batch.Job, position: int) -> str:
    """The claim of the volume at a position of `spec.volumes`: the user's name, or the one that is
    made for it."""
    given = job.spec.volumes[position].volume_claim_name
    return given or f"{job.metadata.name}-pvc-{_word(job.metadata.uid, str(position))}"


def claim_body(job: batch.Job, position: int) -> dict[str, Any]:
    """The claim to create for a volume that describes one."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": object_meta(job, claim_name(job, position)),
        "spec": job.spec.volumes[position].volume_claim,
    }


def unnamed(job: batch.Job) -> list[int]:
    """Positions of volumes whose claim has no name yet."""
    return [
        position for position, volume in enumerate(job.spec.volumes) if not volume.volume_claim_name
    ]


def mount_volumes(job: batch.Job, pod: dict[str, Any]) -> None:
    """Mount each claim once in every main container; a claim that is named twice counts the first
    time only."""
    seen: set[str] = set()
    for position, volume in enumerate(job.spec.volumes):
        claim = claim_name(job, position)
        if claim in seen:
            continue
        seen.add(claim)
        name = f"{job.metadata.name}-{_word(job.metadata.uid, claim)}"
        add_volume(pod, {"name": name, "persistentVolumeClaim": {"claimName": claim}})
        for container in main_containers(pod):
            add_mount(container, {"name": name, "mountPath": volume.mount_path})


def _word(*parts: str) -> str:
    """Twelve characters of [0-9a-z] derived from the parts."""
    number = int.from_bytes(hashlib.sha256("/".join(parts).encode()).digest()[:12])
    letters = []
    for _ in range(12):
        number, digit = divmod(number, 36)
        letters.append(_ALPHABET[digit])
    return "".join(letters)
