"""What a benchmark yields: a figure under the name, unit and aim that the table of figures gives
it."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """One measured value."""

    name: str
    value: float
    unit: str
    conditions: str


class Aim(NamedTuple):
    """What the table of figures says of a name: for example `>= 3000` in `1/s`, due in step 1."""

    name: str
    aim: str
    unit: str
    step: int
    what: str

    def met_by(self, value: float) -> bool:
        """Whether a value is on the right side of the aim."""
        relation, bound = self.aim.split()
        return value >= float(bound) if relation == ">=" else value <= float(bound)
