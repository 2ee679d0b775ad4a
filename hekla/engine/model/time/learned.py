"""What is known of a job from others like it."""

from __future__ import annotations

from typing import NamedTuple

from hekla.api.text.durations import duration_text


class Learned(NamedTuple):
    """How long a job will run, as others like it did."""

    seconds: float
    runs: int
    """From how many that is known."""
    name: str
    """What these are called."""

    @property
    def text(self) -> str:
        length = duration_text(float(round(self.seconds)))
        for whole, rest in (("m", "0s"), ("h", "0m")):
            length = length.removesuffix(rest) if length.endswith(whole + rest) else length
        runs = f"{self.runs} runs" if self.runs > 1 else "one run"
        return f"walltime {length}, learned from {runs} of {self.name}"
