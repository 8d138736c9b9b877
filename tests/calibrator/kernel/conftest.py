"""Fixtures: the kernel, and the shipped calibrator with it and in numpy."""

from __future__ import annotations

from types import ModuleType

import pytest

from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.kernel import load_kernel
from tests.calibrator.kernel.kernels import fresh_calibrator, numpy_alone


@pytest.fixture(scope="package")
def kernel() -> ModuleType:
    if (found := load_kernel()) is None:
        pytest.skip("no kernel was built here: there is no C compiler, or the C files have changed")
    return found


@pytest.fixture(scope="package")
def both(kernel: ModuleType) -> tuple[EmbeddedCalibrator, EmbeddedCalibrator]:
    """Return the shipped calibrator with the kernel and in numpy."""
    with numpy_alone():
        plain = fresh_calibrator()
    return fresh_calibrator(), plain
