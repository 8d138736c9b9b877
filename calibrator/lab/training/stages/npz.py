"""Store arrays in npz files; each is complete or absent, also after an interruption."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays to an npz file, by name; the file is complete or unchanged.

    They are first written to `<name>.tmp.npz` beside it, which then replaces `path`.
    """
    partial = path.with_suffix(".tmp.npz")
    np.savez(partial, allow_pickle=False, **arrays)
    partial.replace(path)


def load_arrays(path: Path) -> Arrays:
    """Return all arrays of an npz file by name, in memory."""
    with np.load(path) as arrays:
        return dict(arrays)
