"""Limits and counters in files, where the original has eBPF maps: the `network-qos` command and the
agent meet there.  Reference: agent 9.5.

The files are in memory (/run), as the maps are: they do not outlive the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from hekla.agent.network.limits import Limits

PLACE_VARIABLE = "NETWORK_QOS_STATE"
DEFAULT_PLACE = "/run/hekla-agent"


class Status(msgspec.Struct):
    """What the agent has measured and done.  Times in nanoseconds since 1970, bandwidths in bytes
    per second, all traffic since the agent began to look."""

    latest_offline_packet_send_time: int = 0
    offline_bandwidth_limit: int = 0
    offline_tx_bytes: int = 0
    online_tx_bytes: int = 0
    latest_check_time: int = 0
    check_times: int = 0
    high_times: int = 0
    low_times: int = 0
    online_tx_packages: int = 0
    offline_tx_packages: int = 0
    offline_prio: int = 0
    latest_online_bandwidth: int = 0
    latest_offline_bandwidth: int = 0


class StateFiles:
    """The two files, under the names of the maps."""

    def __init__(self, place: Path | None = None) -> None:
        self.place = place or Path(os.environ.get(PLACE_VARIABLE) or DEFAULT_PLACE)
        self.limits_file = self.place / "throttle_cfg"
        self.status_file = self.place / "throttle_map"
        self._read: tuple[tuple[int, int], Limits] | None = None
        """The limits as they were read last, and of which file."""

    def limits(self) -> Limits | None:
        """The limits that are set; None where nobody has set any.  Raises OSError, and ValueError
        for a file that holds something else."""
        try:
            found = self.limits_file.stat()
            which = (found.st_ino, found.st_mtime_ns)
            if self._read is None or self._read[0] != which:
                text = self.limits_file.read_bytes()
                self._read = which, msgspec.json.decode(text, type=Limits)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.limits_file}: {error}") from None
        return self._read[1]

    def set_limits(self, limits: Limits) -> None:
        self._write(self.limits_file, msgspec.json.encode(limits))

    def reset(self) -> Limits | None:
        """Take the limits of offline pods back; None where nobody has set any.  Raises as
        `limits` does."""
        limits = self.limits()
        if limits is not None:
            limits = limits.unlimited()
            self.set_limits(limits)
        return limits

    def status(self) -> Status:
        """Raises OSError, and ValueError for a file that holds something else."""
        try:
            return msgspec.json.decode(self.status_file.read_bytes(), type=Status)
        except msgspec.DecodeError as error:
            raise ValueError(f"{self.status_file}: {error}") from None

    def set_status(self, status: Status) -> None:
        self._write(self.status_file, msgspec.json.encode(status))

    def _write(self, path: Path, content: bytes) -> None:
        """Replace a file in one step: the other side reads at any moment."""
        self.place.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_bytes(content)
        temporary.replace(path)
