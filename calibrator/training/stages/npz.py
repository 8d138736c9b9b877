"""Arrays in npz files: each is there whole or not at all, also after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes all of them or nothing."""
    partial = path.with_suffix(".tmp.npz")
    np.savez(partial, allow_pickle=False, **arrays)
    partial.replace(path)


def load_arrays(path: Path) -> Arrays:
    """All arrays of a file, in memory."""
    with np.load(path) as arrays:
        return dict(arrays)
