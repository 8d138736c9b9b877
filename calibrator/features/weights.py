"""Read the weights of a checkpoint as numpy arrays without torch, and check them.

`model.safetensors` holds the arrays of each part under a prefix of its own; tables of many rows are
in int8 with a scale for each row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
from numpy.typing import NDArray

from calibrator.errors import CheckpointError

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

PARTS = (
    "abilities.",
    "calls.",
    "familiarity.",
    "forest.",
    "inspector.",
    "knowledge.",
    "opinion.",
    "tower.",
)  # prefixes of their arrays
SCALE = ".scale"  # the suffix for the scales of a packed table
_DTYPES = {
    "F32": np.float32, "F16": np.float16, "I8": np.int8, "I16": np.int16, "I32": np.int32,
    "U8": np.uint8,
}  # fmt: skip
_BF16 = "BF16"  # numpy has no bf16, which is the upper half of fp32


def read_weights(path: Path, sha256: str) -> dict[str, Array]:
    """Return all arrays of a safetensors file by name, bf16 as fp32.

    Raises CheckpointError if its hash differs from `sha256`, and OSError, SafetensorError or
    ValueError if it cannot be read.
    """
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(f"{path} is not the file that calibrator.json names (sha256 differs)")
    return {
        name: _array(found["dtype"], found["data"]).reshape(found["shape"])
        for name, found in safetensors.deserialize(data)  # type: ignore[no-untyped-call]  # it has no stubs
    }


def _array(kind: str, data: bytearray) -> Array:
    """Return the numbers in `data` as a flat array; `kind` is safetensors' name, such as `F16`.

    Raises ValueError for an unknown kind.
    """
    if kind == _BF16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind not in _DTYPES:
        raise ValueError(f"numbers of kind {kind} are not read, only bf16, {', '.join(_DTYPES)}")
    return np.frombuffer(data, _DTYPES[kind])


def arrays_under(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin with `prefix`, by their names without it."""
    return {k.removeprefix(prefix): array for k, array in state.items() if k.startswith(prefix)}


def pack_table(table: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Pack a table (N, D) as int8 with an fp16 scale for each row, (N,), and return both.

    A row is its int8 numbers times its scale. This is half the size of bf16.
    """
    scale = np.maximum(np.abs(table).max(axis=1) / 127, 1e-6).astype(np.float16)
    return np.round(table / scale.astype(np.float32)[:, None]).astype(np.int8), scale


def check_names(state: Mapping[str, Array]) -> None:
    """Raise ValueError, naming up to five, for arrays whose names begin with none of `PARTS`."""
    if unknown := sorted(name for name in state if not name.startswith(PARTS)):
        raise ValueError(", ".join(f"{name} is not known" for name in unknown[:5]))
