"""Tables of numbers in a few bits each: planes of bits, and a scale for each group of a row.

Four bits a number keep what a small encoder says of short texts; a word's vector needs three.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import SCALE, Array, Floats


def packed_planes(table: Floats, bits: int, group: int) -> tuple[NDArray[np.uint8], Array]:
    """A table (N, D) as planes (bits, N, D / 8) and scales (N, D / group), fp16.

    Numbers lie evenly between -limit and limit, limit = 2 ** (bits - 1) - 1, times their scale.
    D is a multiple of `group`, and that of 8.
    """
    limit = 2 ** (bits - 1) - 1
    parts = table.reshape(len(table), -1, group)
    scale = np.maximum(_best_scale(parts, limit), 1e-6).astype(np.float16)
    whole = np.round(parts / scale.astype(np.float32)[..., None]).clip(-limit, limit) + limit
    flat = whole.astype(np.uint8).reshape(table.shape)
    planes = [np.packbits((flat >> bit) & 1, axis=1) for bit in range(bits)]
    return np.stack(planes), scale


def _best_scale(parts: Floats, limit: int) -> Floats:
    """The scale of each group by which least is lost, of a few shares of the largest number."""
    largest = np.abs(parts).max(axis=2)
    best, least = largest / limit, np.full(largest.shape, np.inf)
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        scale = np.maximum(largest * share / limit, 1e-6)
        near = np.round(parts / scale[..., None]).clip(-limit, limit) * scale[..., None]
        lost = ((parts - near) ** 2).sum(axis=2)
        best, least = np.where(lost < least, scale, best), np.minimum(lost, least)
    return np.asarray(best)


def unpacked_planes(planes: Array, scale: Array) -> Floats:
    """Rows (N, D) of what `packed_planes` gave; raises ValueError for planes that do not fit."""
    bits, rows = planes.shape[:2]
    limit = 2 ** (bits - 1) - 1
    each = np.unpackbits(planes.astype(np.uint8), axis=2)
    whole = np.zeros(each.shape[1:], np.float32)
    for bit in range(bits):
        whole += each[bit] * np.float32(2**bit)
    parts = (whole - limit).reshape(rows, scale.shape[1], -1)
    return np.asarray((parts * scale.astype(np.float32)[..., None]).reshape(rows, -1))


def opened(state: Mapping[str, Array]) -> dict[str, Floats]:
    """All arrays of a state in fp32, packed ones unpacked under their own names."""
    found = {}
    for name, array in state.items():
        if name.endswith(SCALE):
            continue
        scale = state.get(name + SCALE)
        found[name] = array.astype(np.float32) if scale is None else unpacked_planes(array, scale)
    return found
