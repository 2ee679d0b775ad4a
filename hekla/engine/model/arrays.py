"""Names of the array types of the tables."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
Rows = NDArray[np.intp]
Whole = NDArray[np.int64]
Scalar = TypeVar("Scalar", bound=np.generic)
"""For what does not care which of them it is."""
