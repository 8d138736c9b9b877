"""The shipped calibrator with and without the kernel, and texts to read with both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.embedded.parts import read_checkpoint
from calibrator.kernel import load_kernel

CLOSE = 1e-6  # of a probability
WORDS = (
    *("the", "of", "Paris", "1492", "n't", "naïve", "東京", "Ωμέγα", "🙂", "\ud800", "\0", "\x1c"),
    *("ß", "İ", "answer:", "(B)", "x=2", "```", "$5.00"),
)


@contextmanager
def numpy_alone() -> Iterator[None]:
    """Turn the kernel off for all calculations within the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PINOCCHIO_KERNEL", "numpy")
        with fresh_kernel():
            yield


@contextmanager
def fresh_kernel() -> Iterator[None]:
    """Forget which kernel was compiled, before the block and after it."""
    load_kernel.cache_clear()
    try:
        yield
    finally:
        load_kernel.cache_clear()


def fresh_calibrator() -> EmbeddedCalibrator:
    """Return the shipped calibrator, read from disk again.

    The shared instance may have been read with the kernel or without it.
    """
    found = read_checkpoint(CHECKPOINTS / EMBEDDED)
    return EmbeddedCalibrator(found.config, found.tokenizer, found.parts)


def texts(count: int) -> list[tuple[str, str]]:
    """Return pairs of random words, signs and half characters, always the same."""
    rng = random.Random(26)
    lengths = [0, 1, 2, 5, 30, 200, 1_500]
    made = [" ".join(rng.choices(WORDS, k=rng.choice(lengths))) for _ in range(2 * count)]
    return list(zip(made[::2], made[1::2], strict=True))
