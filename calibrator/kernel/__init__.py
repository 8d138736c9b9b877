"""The compiled kernel: what a score computes, in C where that could be built, else in numpy.

`compiled()` gives the module of compiled functions (`_compiled.pyi`) or None, and then its callers
compute the same in numpy. `hatch_hook.py` builds it of the C files in `source/` when the package is
installed; with `PINOCCHIO_KERNEL=numpy` it is neither built nor used.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["Job", "Work", "compiled", "kernel_name", "result_of", "together"]

Job = tuple[str, tuple[object, ...]]
"""The name of what the kernel computes without Python's lock, and its arguments, as `together` in
`_compiled.pyi` has them."""

_Result = TypeVar("_Result")
Work = Generator[list[Job], None, _Result]
"""Yields once the jobs that it has for the kernel, none where it needs none, and returns what it
makes of what they found."""

SETTING, NUMPY = "PINOCCHIO_KERNEL", "numpy"
MODULE = "calibrator.kernel._compiled"


@cache
def compiled() -> ModuleType | None:
    """The compiled functions; None where they are not wanted, were not built, or were built of
    other files than those here."""
    if os.environ.get(SETTING) == NUMPY:
        return None
    try:
        found = import_module(MODULE)
    except ImportError:
        return None
    is_of_these = _sources_digest() == found.SOURCES
    return found if is_of_these else None


def together(*works: Work[Any]) -> list[Any]:
    """The results of works, whose jobs are done in one go: other threads run meanwhile, and are
    waited for once."""
    jobs = [job for work in works for job in next(work)]
    if jobs:  # made for the kernel by what was loaded with it, whatever is set by now
        import_module(MODULE).together(jobs)
    return [result_of(work) for work in works]


def result_of(work: Work[_Result]) -> _Result:
    """What a work makes of its jobs, which are done."""
    try:
        next(work)
    except StopIteration as end:
        found: _Result = end.value
        return found
    raise RuntimeError("a work has jobs for a second time")


def kernel_name() -> str:
    """What computes scores here: `numpy`, or `compiled` and the kind of its arithmetic."""
    found = compiled()
    return NUMPY if found is None else f"compiled, {found.ARITHMETIC}"


def _sources_digest() -> str:
    """Changes with every C file, as the hook that builds them has it."""
    folder = Path(__file__).parent / "source"
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"
