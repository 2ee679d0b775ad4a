"""The rule of network QoS: three limits, and which of them is in force.  Reference: agent 9.2."""

from __future__ import annotations

import msgspec

from hekla.agent.network.sizes import bytes_per_second, unsigned

DEFAULT_INTERVAL = "10000000"
"""Nanoseconds between two looks at the traffic, as text."""
UNLIMITED = "1024Tibps"
LEAST = 1000
"""Bytes per second with which connections stay open."""
FIELDS = (
    "online_bandwidth_watermark",
    "interval",
    "offline_low_bandwidth",
    "offline_high_bandwidth",
)


class Limits(msgspec.Struct, frozen=True):
    """Bandwidths in bytes per second, and the interval in nanoseconds."""

    online_bandwidth_watermark: int
    interval: int
    offline_low_bandwidth: int
    offline_high_bandwidth: int

    def offline(self, online: float) -> int:
        """What all offline pods together may send while online pods send so much (bytes/s); never
        nothing at all."""
        if online > self.online_bandwidth_watermark:
            return max(self.offline_low_bandwidth, LEAST)
        return max(self.offline_high_bandwidth, LEAST)

    def unlimited(self) -> Limits:
        """The same without a limit of offline pods that matters."""
        most = bytes_per_second(UNLIMITED)
        return msgspec.structs.replace(
            self, offline_low_bandwidth=most, offline_high_bandwidth=most
        )

    def shown(self) -> dict[str, str | int]:
        """What `show` prints: bandwidths in bits per second."""
        return {
            name: value if name == "interval" else f"{value * 8}bps"
            for name, value in msgspec.structs.asdict(self).items()
        }


def limits_of(texts: dict[str, str], base: Limits | None = None) -> Limits:
    """Limits from the texts of FIELDS; what is empty is taken from `base`, and must not be where
    there is none.  Raises ValueError."""
    values = {} if base is None else msgspec.structs.asdict(base)
    for name in FIELDS:
        text = texts.get(name, "")
        if text or base is None:
            values[name] = unsigned(text) if name == "interval" else bytes_per_second(text)
    return Limits(**values)
