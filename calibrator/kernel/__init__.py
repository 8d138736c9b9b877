"""The compiled kernel: what a score computes, in C where that could be built, else in numpy.

`compiled()` gives the module of compiled functions (`_compiled.pyi`) or None, and then its callers
compute the same in numpy. `hatch_hook.py` builds it of the C files in `source/` when the package is
installed; with `PINOCCHIO_KERNEL=numpy` it is neither built nor used.
"""

from __future__ import annotations

import os
import zlib
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

__all__ = ["compiled", "kernel_name"]

SETTING, NUMPY = "PINOCCHIO_KERNEL", "numpy"


@cache
def compiled() -> ModuleType | None:
    """The compiled functions; None where they are not wanted, were not built, or were built of
    other files than those here."""
    if os.environ.get(SETTING) == NUMPY:
        return None
    try:
        found = import_module("calibrator.kernel._compiled")
    except ImportError:
        return None
    is_of_these = _sources_digest() == found.SOURCES
    return found if is_of_these else None


def kernel_name() -> str:
    """What computes scores here: `numpy`, or `compiled` and the kind of its arithmetic."""
    found = compiled()
    return NUMPY if found is None else f"compiled, {found.ARITHMETIC}"


def _sources_digest() -> str:
    """Changes with every C file, as the hook that builds them has it."""
    folder = Path(__file__).parent / "source"
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"
