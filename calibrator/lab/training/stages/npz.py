"""Store arrays in npz files; each is complete or absent, also after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write all arrays or nothing."""
    partial = path.with_suffix(".tmp.npz")
    np.savez(partial, allow_pickle=False, **arrays)
    partial.replace(path)


def load_arrays(path: Path) -> Arrays:
    """Load all arrays of a file into memory."""
    with np.load(path) as arrays:
        return dict(arrays)
