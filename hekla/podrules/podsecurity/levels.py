"""Levels and versions of the standards, and the policy of a namespace's labels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from hekla.api.text.fielderrors import FieldError
from hekla.api.text.fieldrules import Errors

PREFIX = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
"""From what allows all to what allows least."""
MODES = ("enforce", "audit", "warn")
LATEST = "latest"
WRONG_LEVEL = f"must be one of {', '.join(LEVELS)}"
WRONG_VERSION = 'must be "latest" or "v1.x"'
_version = re.compile(r"v1\.(0|[1-9][0-9]{0,8})").fullmatch


class LevelVersion(NamedTuple):
    """A level as of one version of the standards."""

    level: str = PRIVILEGED
    version: str = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def minor(self) -> int | None:
        """The minor version of Kubernetes; None for the latest."""
        return None if self.version == LATEST else int(self.version.removeprefix("v1."))

    def is_equivalent(self, other: LevelVersion) -> bool:
        """Whether both allow the same: privileged is the same in all versions."""
        return self == other or self.level == other.level == PRIVILEGED

    def is_stricter(self, other: LevelVersion) -> bool:
        """Whether this level is stricter, whatever the versions."""
        return LEVELS.index(self.level) > LEVELS.index(other.level)


class Policy(NamedTuple):
    """The level for each mode, for the pods of a namespace."""

    enforce: LevelVersion = LevelVersion()
    audit: LevelVersion = LevelVersion()
    warn: LevelVersion = LevelVersion()

    def is_privileged(self) -> bool:
        return all(mode.level == PRIVILEGED for mode in self)

    def is_equivalent(self, other: Policy) -> bool:
        return all(mine.is_equivalent(theirs) for mine, theirs in zip(self, other, strict=True))


def is_level(text: str) -> bool:
    return text in LEVELS


def is_version(text: str) -> bool:
    return text == LATEST or _version(text) is not None


def policy_of(labels: Mapping[str, str], defaults: Policy) -> tuple[Policy, tuple[FieldError, ...]]:
    """The policy that the labels say, and what is wrong with them.

    A wrong level enforces the strictest and neither audits nor warns; a wrong version is the
    latest.  What is enforced by a label is also warned of, where nothing else is said: so the
    makers of workloads hear of it, whose pods alone are refused.
    """
    if not any(label.startswith(PREFIX) for label in labels):
        return defaults, ()
    found = Errors()
    said = dict(zip(MODES, defaults, strict=True))
    explicit = False
    for mode in MODES:
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        if level is not None:
            good = is_level(level)
            explicit = explicit or (mode == "enforce" and good)
            if not good:
                found.invalid(f"metadata.labels[{PREFIX}{mode}]", level, WRONG_LEVEL)
                level = RESTRICTED if mode == "enforce" else PRIVILEGED
            said[mode] = said[mode]._replace(level=level)
        if version is not None:
            if not is_version(version):
                found.invalid(f"metadata.labels[{PREFIX}{mode}-version]", version, WRONG_VERSION)
                version = LATEST
            said[mode] = said[mode]._replace(version=version)
    if explicit and PREFIX + "warn" not in labels and said["enforce"].is_stricter(said["warn"]):
        version = (
            said["warn"].version if PREFIX + "warn-version" in labels else said["enforce"].version
        )
        said["warn"] = LevelVersion(said["enforce"].level, version)
    return Policy(**said), tuple(found)
