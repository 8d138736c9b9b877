"""The compiled kernel, which computes scores in C where it could be built, else in numpy.

`load_kernel()` returns the module of compiled functions (`_compiled.pyi`) or None; then its callers
compute the same in numpy. `hatch_hook.py` builds it from the C files in `source/` when the package
is installed. With `PINOCCHIO_KERNEL=numpy` it is neither built nor used.
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

__all__ = ["Job", "Work", "kernel_name", "load_kernel", "result_of", "run_together"]

Job = tuple[str, tuple[object, ...]]
"""The name and arguments of a kernel computation without Python's lock, for `run_together`.

`_compiled.pyi` describes them.
"""

_Result = TypeVar("_Result")
Work = Generator[list[Job], None, _Result]
"""A generator that yields its list of jobs for the kernel once, and returns its result from them.

The list is empty where it needs no jobs.
"""

SETTING, NUMPY = "PINOCCHIO_KERNEL", "numpy"
MODULE = "calibrator.kernel._compiled"


@cache
def load_kernel() -> ModuleType | None:
    """Return the module of compiled functions, or None; the answer never changes.

    None means that they are switched off by `PINOCCHIO_KERNEL=numpy`, were not built, or were built
    from other C files.
    """
    if os.environ.get(SETTING) == NUMPY:
        return None
    try:
        found = import_module(MODULE)
    except ImportError:
        return None
    is_of_these = _sources_digest() == found.SOURCES
    return found if is_of_these else None


def run_together(*works: Work[Any]) -> list[Any]:
    """Run the kernel jobs of all works in one call, and return the works' results in order.

    Other threads of Python run meanwhile, and are waited for only once.
    """
    jobs = [job for work in works for job in next(work)]
    if jobs:  # these were made for the kernel, even if the setting has changed since
        import_module(MODULE).together(jobs)
    return [result_of(work) for work in works]


def result_of(work: Work[_Result]) -> _Result:
    """Resume a work whose jobs are done, and return its result.

    Raises RuntimeError for further jobs.
    """
    try:
        next(work)
    except StopIteration as end:
        found: _Result = end.value
        return found
    raise RuntimeError("a work has jobs for a second time")


def kernel_name() -> str:
    """Return what computes scores here: `numpy`, or such as `compiled, avx2`."""
    found = load_kernel()
    return NUMPY if found is None else f"compiled, {found.ARITHMETIC}"


def _sources_digest() -> str:
    """Return a CRC-32 of all C files in hexadecimal digits, as `hatch_hook` computes it."""
    folder = Path(__file__).parent / "source"
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    return f"{zlib.crc32(b''.join(path.read_bytes() for path in files)):08x}"
