"""The files that hold a checkpoint's weights, and their digest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from calibrator.errors import CheckpointError


def weight_files(folder: Path) -> list[Path]:
    """All safetensors files of a checkpoint, sorted by name.

    Raises CheckpointError where there are none: weights as pickles are never read.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted([*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pkl")])
        found = f" ({pickles[0].name} is a pickle, which could run code)" if pickles else ""
        raise CheckpointError(f"{folder} has no weights in safetensors files{found}")
    return files


def digest_of(folder: Path) -> str:
    """The sha256 of a folder's weights: that of its one file, or of the names and digests of all.

    Raises CheckpointError where there are none.
    """
    found = [(path.name, sha256_of(path)) for path in weight_files(folder)]
    if len(found) == 1:
        return found[0][1]
    lines = "".join(f"{digest}  {name}\n" for name, digest in found)
    return hashlib.sha256(lines.encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """The sha256 of a file, as hexadecimal digits; raises OSError."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
