"""Read the shipped calibrator once per process: it takes 0.4 s of CPU, and 200 tests need it.

Each worker reads it for its own tests; the server of commands reads it for all commands that it
forks. Every test builds its own scorer from it, and nothing changes what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from unittest import mock

from calibrator.checkpoints.checkpoint import resolve_checkpoint
from calibrator.embedded import calibrator
from calibrator.embedded.parts import Checkpoint, read_checkpoint


@lru_cache(maxsize=1)
def shipped() -> tuple[Path, Checkpoint]:
    """Return the folder and the parts of the shipped calibrator."""
    folder = resolve_checkpoint("embedded")
    return folder, read_checkpoint(folder)


@contextmanager
def read_once() -> Iterator[None]:
    """Let everything that loads the shipped calibrator share one copy, within this context."""

    def read(folder: Path) -> Checkpoint:
        return shipped()[1] if folder == resolve_checkpoint("embedded") else read_checkpoint(folder)

    with mock.patch.object(calibrator, "read_checkpoint", read):
        yield
