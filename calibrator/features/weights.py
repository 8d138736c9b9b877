"""Read the weights of a checkpoint as numpy arrays without torch, and check them.

`model.safetensors` holds the encoder and its head in bf16, tables of many rows in int8 with a scale
for each row, and the arrays of the other parts under prefixes of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
from numpy.typing import NDArray

from calibrator.checkpoints.checkpoint import EncoderConfig
from calibrator.errors import CheckpointError

Array = NDArray[np.generic]
Floats = NDArray[np.float32]

WORDS = "encoder.embeddings.word_embeddings.weight"
OTHER_PARTS = (
    "abilities.",
    "calls.",
    "familiarity.",
    "forest.",
    "inspector.",
    "knowledge.",
    "opinion.",
    "tower.",
)  # prefixes of arrays that are not the encoder's
SCALE = ".scale"  # the suffix for the scales of a packed table
_DTYPES = {
    "F32": np.float32, "F16": np.float16, "I8": np.int8, "I16": np.int16, "I32": np.int32,
    "U8": np.uint8,
}  # fmt: skip
_BF16 = "BF16"  # numpy has no bf16, which is the upper half of fp32


def read_weights(path: Path, sha256: str) -> dict[str, Array]:
    """Read all arrays of a safetensors file, bf16 as fp32.

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
    """Return the array in `data`, flat; raises ValueError for an unknown kind of number."""
    if kind == _BF16:
        return (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    if kind not in _DTYPES:
        raise ValueError(f"numbers of kind {kind} are not read, only bf16, {', '.join(_DTYPES)}")
    return np.frombuffer(data, _DTYPES[kind])


def under(state: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """Return the arrays whose names begin with a prefix, by their names without it."""
    return {k.removeprefix(prefix): array for k, array in state.items() if k.startswith(prefix)}


def packed(table: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Pack a table (N, D) as int8 with an fp16 scale for each row: half the size of bf16."""
    scale = np.maximum(np.abs(table).max(axis=1) / 127, 1e-6).astype(np.float16)
    return np.round(table / scale.astype(np.float32)[:, None]).astype(np.int8), scale


def unpacked(table: Array, scale: Array) -> Floats:
    """Return a packed table in fp32."""
    return np.asarray(table.astype(np.float32) * scale.astype(np.float32)[:, None])


def encoder_weights(state: Mapping[str, Array], config: EncoderConfig | None) -> dict[str, Array]:
    """Return the weights of encoder and head among a checkpoint's arrays.

    They are in fp32, packed words in int8. Raises ValueError unless they are exactly those of a
    model of this geometry; without an encoder there must be none.
    """
    if config and config.hidden % config.heads:
        raise ValueError(f"a hidden size of {config.hidden} is no multiple of {config.heads} heads")
    found = {name: array for name, array in state.items() if not name.startswith(OTHER_PARTS)}
    wanted = _shapes(config) if config else {}
    has_packed_words = found.get(WORDS, np.empty(0)).dtype == np.int8
    if config and has_packed_words:
        wanted[WORDS + SCALE] = (config.vocabulary,)
    wrong = [f"{name} is missing" for name in sorted(wanted.keys() - found.keys())]
    wrong += [f"{name} is not known" for name in sorted(found.keys() - wanted.keys())]
    wrong += [
        f"{name} is {found[name].shape}, not {wanted[name]}"
        for name in sorted(wanted.keys() & found.keys())
        if found[name].shape != wanted[name]
    ]
    if wrong:
        raise ValueError(", ".join(wrong[:5]))
    return {
        name: array if has_packed_words and name == WORDS else array.astype(np.float32, copy=False)
        for name, array in found.items()
    }


def all_in_fp32(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the output of `encoder_weights` with its words unpacked."""
    found = dict(weights)
    if (scale := found.pop(WORDS + SCALE, None)) is not None:
        found[WORDS] = unpacked(found[WORDS], scale)
    return found


def _shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every weight of the encoder and its head, named as in BERT."""
    size, wide = config.hidden, config.intermediate
    tables = {"word": config.vocabulary, "position": config.positions, "token_type": 2}
    shapes: dict[str, tuple[int, ...]] = {
        f"encoder.embeddings.{name}_embeddings.weight": (rows, size)
        for name, rows in tables.items()
    }
    linear = {"head.0": (size, 2 * size), "head.3": (2, size)}
    norms = ["encoder.embeddings.LayerNorm"]
    for number in range(config.layers):
        layer = f"encoder.encoder.layer.{number}"
        square = [f"attention.self.{name}" for name in ("query", "key", "value")]
        linear |= {f"{layer}.{name}": (size, size) for name in [*square, "attention.output.dense"]}
        linear[f"{layer}.intermediate.dense"] = (wide, size)
        linear[f"{layer}.output.dense"] = (size, wide)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    return shapes
