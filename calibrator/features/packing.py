"""Tables of numbers in a few bits each: planes of bits, and a scale for each group of a row.

Four bits a number keep what a small encoder says of short texts; a word's vector needs three.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import SCALE, Array, Floats

LANES = 16  # rows of a table that the kernel reads side by side
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a group's largest number that are tried as its scale


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
    for share in SHARES:
        scale = np.maximum(largest * share / limit, 1e-6)
        near = np.round(parts / scale[..., None]).clip(-limit, limit) * scale[..., None]
        lost = ((parts - near) ** 2).sum(axis=2)
        best, least = np.where(lost < least, scale, best), np.minimum(lost, least)
    return np.asarray(best)


def unpacked_planes(planes: Array, scale: Array) -> Floats:
    """Rows (N, D) of what `packed_planes` gave; raises ValueError for planes that do not fit."""
    parts = whole_numbers(planes).reshape(planes.shape[1], scale.shape[1], -1)
    found = parts * scale.astype(np.float32)[..., None]
    return np.asarray(found.reshape(planes.shape[1], -1))


def whole_numbers(planes: Array) -> Floats:
    """The numbers (N, D) that planes hold, before they are scaled."""
    bits = len(planes)
    each = np.unpackbits(planes.astype(np.uint8), axis=2)
    whole = np.zeros(each.shape[1:], np.float32)
    for bit in range(bits):
        whole += each[bit] * np.float32(2**bit)
    return np.asarray(whole - (2 ** (bits - 1) - 1))


def tiled(planes: Array, scale: Array) -> tuple[NDArray[np.int8], Floats] | None:
    """A table (N, D) and its scales as the kernel reads them, `LANES` rows side by side.

    (N / LANES, D, LANES) and (N / LANES, D / group, LANES); None for tables without such tiles.
    """
    rows, groups = scale.shape
    numbers = whole_numbers(planes)
    if rows % LANES or numbers.shape[1] % groups or len(planes) > 8:
        return None
    tiles = numbers.astype(np.int8).reshape(rows // LANES, LANES, -1).swapaxes(1, 2)
    scales = scale.astype(np.float32).reshape(rows // LANES, LANES, groups).swapaxes(1, 2)
    return np.ascontiguousarray(tiles), np.ascontiguousarray(scales)


def quartered(
    planes: Array, scale: Array
) -> tuple[NDArray[np.int8], Floats, NDArray[np.int32]] | None:
    """Arrange a table (N, D) of four bits for the kernel's sums of whole numbers.

    Returns the numbers (N / LANES, D / 4, LANES * 4), the scales (N / LANES, D / group, LANES) and
    the offsets of the same shape: 128 times the sum of a group's numbers, since states are kept as
    unsigned bytes around 128. Returns None for a table that has no such tiles.
    """
    rows, groups = scale.shape
    numbers = whole_numbers(planes)
    group = numbers.shape[1] // groups
    if rows % LANES or numbers.shape[1] % groups or group % 4 or len(planes) > 4:
        return None
    whole = numbers.astype(np.int8).reshape(rows // LANES, LANES, -1, 4).transpose(0, 2, 1, 3)
    sums = numbers.reshape(rows // LANES, LANES, groups, group).sum(axis=3).swapaxes(1, 2)
    scales = scale.astype(np.float32).reshape(rows // LANES, LANES, groups).swapaxes(1, 2)
    return (
        np.ascontiguousarray(whole).reshape(rows // LANES, -1, LANES * 4),
        np.ascontiguousarray(scales),
        np.ascontiguousarray((128 * sums).astype(np.int32)),
    )


def opened(state: Mapping[str, Array]) -> dict[str, Floats]:
    """All arrays of a state in fp32, packed ones unpacked under their own names."""
    found = {}
    for name, array in state.items():
        if name.endswith(SCALE):
            continue
        scale = state.get(name + SCALE)
        found[name] = array.astype(np.float32) if scale is None else unpacked_planes(array, scale)
    return found
