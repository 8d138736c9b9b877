"""The weight files of a checkpoint and their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from calibrator.errors import CheckpointError


def weight_files(folder: Path) -> list[Path]:
    """Return all safetensors files of a checkpoint, sorted by name.

    Raises CheckpointError where there are none. Pickled weights are never read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pkl")])
        found = f" ({pickles[0].name} is a pickle, which could run code)" if pickles else ""
        raise CheckpointError(f"{folder} has no weights in safetensors files{found}")
    return files


def digest_of(folder: Path) -> str:
    """Return the sha256 of a folder's weights: of its one file, or of the names and digests of all.

    Raises CheckpointError where there are no weights.
    """
    found = [(path.name, sha256_of(path)) for path in weight_files(folder)]
    if len(found) == 1:
        return found[0][1]
    lines = "".join(f"{digest}  {name}\n" for name, digest in found)
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits. Raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
