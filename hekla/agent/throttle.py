"""How much processor time all best-effort pods of a node may have together, so that the others stay
below a threshold.  It shrinks at once and grows slowly.  Reference: agent 8.5."""

from __future__ import annotations

from dataclasses import dataclass

THRESHOLD, JITTER, RECOVER = 80, 1, 10
"""Percent: of what is allocatable, of the last quota, of the last quota."""
LEAST_STEP = 1
"""Millicores by which a quota grows: a tenth of a small one is none."""
UNSENT = -1


@dataclass(frozen=True, slots=True)
class Parameters:
    """What was configured, with the defaults that the configuration leaves out."""

    threshold: int = 0
    """0: the probe does nothing."""
    jitter: int = JITTER
    recover: int = RECOVER

    @classmethod
    def of(
        cls, enable: bool, threshold: int | None, jitter: int | None, recover: int | None
    ) -> Parameters:
        """Without a threshold the other two count for nothing, as for the original."""
        if not enable:
            return cls()
        if threshold is None:
            return cls(THRESHOLD)
        return cls(
            threshold,
            jitter if jitter is not None and jitter >= 1 else JITTER,
            recover if recover is not None and recover >= 1 else RECOVER,
        )


def quota(parameters: Parameters, allocatable: int, used: int, last: int) -> int | None:
    """Millicores for best-effort pods; None where nothing is to be sent.

    `used`: by all other pods; `last`: what was sent last, or UNSENT.
    """
    if not parameters.threshold:
        return None
    available = max(allocatable * parameters.threshold // 100 - used, 0)
    if last > 0 and available > last:
        available = min(available, last + max(last * parameters.recover // 100, LEAST_STEP))
    if last < 0:
        return available
    if last == 0:
        return available or None
    return available if abs(available - last) >= last * parameters.jitter // 100 else None
