"""Pack tables of numbers into a few bits each: planes of bits, and a scale for each group of a row.

Four bits a number suffice for a small encoder's weights, three for a word's vector.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import SCALE, Array, Floats

LANES = 16  # rows of a table that the kernel reads side by side
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a group's largest number, tried for its scale


def packed_planes(table: Floats, bits: int, group: int) -> tuple[NDArray[np.uint8], Array]:
    """Pack a table (N, D) into planes (bits, N, D / 8) and fp16 scales (N, D / group).

    Numbers are whole between -limit and limit, limit = 2 ** (bits - 1) - 1, times their scale. D is
    a multiple of `group`, which is a multiple of 8.
    """
    limit = 2 ** (bits - 1) - 1
    parts = table.reshape(len(table), -1, group)
    scale = np.maximum(_best_scale(parts, limit), 1e-6).astype(np.float16)
    whole = np.round(parts / scale.astype(np.float32)[..., None]).clip(-limit, limit) + limit
    flat = whole.astype(np.uint8).reshape(table.shape)
    planes = [np.packbits((flat >> bit) & 1, axis=1) for bit in range(bits)]
    return np.stack(planes), scale


def _best_scale(parts: Floats, limit: int) -> Floats:
    """Return for each group the scale with the smallest squared error, among a few shares."""
    largest = np.abs(parts).max(axis=2)
    best, least = largest / limit, np.full(largest.shape, np.inf)
    for share in SHARES:
        scale = np.maximum(largest * share / limit, 1e-6)
        near = np.round(parts / scale[..., None]).clip(-limit, limit) * scale[..., None]
        lost = ((parts - near) ** 2).sum(axis=2)
        best, least = np.where(lost < least, scale, best), np.minimum(lost, least)
    return np.asarray(best)


def unpacked_planes(planes: Array, scale: Array) -> Floats:
    """Unpack the output of `packed_planes` to rows (N, D); raises ValueError for other shapes."""
    parts = whole_numbers(planes).reshape(planes.shape[1], scale.shape[1], -1)
    found = parts * scale.astype(np.float32)[..., None]
    return np.asarray(found.reshape(planes.shape[1], -1))


def whole_numbers(planes: Array) -> Floats:
    """Return the whole numbers (N, D) in planes, before scaling."""
    bits = len(planes)
    each = np.unpackbits(planes.astype(np.uint8), axis=2)
    whole = np.zeros(each.shape[1:], np.float32)
    for bit in range(bits):
        whole += each[bit] * np.float32(2**bit)
    return np.asarray(whole - (2 ** (bits - 1) - 1))


def tile_in_fours(
    planes: Array, scale: Array
) -> tuple[NDArray[np.int8], Floats, NDArray[np.int32]] | None:
    """Arrange a table (N, D) of four bits for the kernel's sums of whole numbers.

    Returns the numbers (N / LANES, D / 4, LANES * 4), the scales (N / LANES, D / group, LANES) and
    the offsets of the same shape: 128 times the sum of a group's numbers, since states are kept as
    unsigned bytes around 128. Returns None for a table that cannot be tiled so.
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


def unpack_state(state: Mapping[str, Array]) -> dict[str, Floats]:
    """Return all arrays of a state in fp32, with packed ones unpacked under their own names."""
    found = {}
    for name, array in state.items():
        if name.endswith(SCALE):
            continue
        scale = state.get(name + SCALE)
        found[name] = array.astype(np.float32) if scale is None else unpacked_planes(array, scale)
    return found
