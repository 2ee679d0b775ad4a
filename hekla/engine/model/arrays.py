"""Names of the array types of the tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]
Rows = NDArray[np.intp]
