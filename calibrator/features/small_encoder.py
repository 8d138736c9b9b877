"""Run a small BERT in numpy, without torch or ONNX Runtime.

All texts of a batch pass through the linear layers as one list of pieces, and attention stays
within each text: nothing is padded, and no state depends on its neighbours. The weights are layers
of all-MiniLM-L6-v2, a few bits each (`packed_planes`). Pieces of other scripts have no vector.

States are rounded to 8 bits before each linear layer, so that the kernel adds whole numbers. This
takes a third of the time of floats, and changes the third digit of the states. Kernel and numpy
give the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import SCALE, Array, Floats
from calibrator.kernel import load_kernel
from calibrator.text.word_pieces import CLS, SEP

WORDS, ROWS = "words", "rows"  # the vocabulary's vectors, and the row of each piece
EPSILON = 1e-12  # of BERT's layer norms
HEADS = 12
WORD_BITS, LAYER_BITS, GROUP = 3, 4, 64
LINEAR = ("query", "key", "value", "output", "wide", "narrow")  # a layer's parts, in order
_SOURCES = {  # their names in BERT
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
}
_NORMS = {"first": "attention.output.LayerNorm", "second": "output.LayerNorm"}

Layer = dict[str, Floats]  # norms

# Tables of numbers are packed into a few bits each: planes of bits, and a scale for each group of a
# row. Four bits suffice for a weight, three for a number of a word's vector.
LANES = 16  # rows of a table that the kernel reads side by side
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of a group's largest number, tried for its scale


class _Linear:
    """A linear layer on states that are rounded to 127 steps of each row's largest."""

    def __init__(self, state: Mapping[str, Array], name: str) -> None:
        """Read the packed weights `name`, their scales and the bias from a state."""
        self.bias = state[f"{name}.bias"].astype(np.float32)
        scale = state[name + SCALE]
        arranged = tile_in_fours(state[name], scale)
        self._kernel = load_kernel() if arranged is not None else None
        if self._kernel is not None and arranged is not None:
            self._held = self._kernel.quantized_layer(*arranged, self.bias)
            return
        self._scale = scale.astype(np.float32)
        self._numbers = whole_numbers(state[name]).T.copy()  # (inputs, outputs)

    def __call__(self, states: Floats) -> Floats:
        """Return states (T, outputs) for states (T, inputs), rounded to whole steps first."""
        if self._kernel is not None:
            found: Floats = np.empty((len(states), len(self.bias)), np.float32)
            self._kernel.quantized_linear(self._held, np.ascontiguousarray(states), found)
            return found
        largest = np.abs(states).max(axis=1, keepdims=True)
        steps = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 0)
        whole = np.rint(states * steps)
        found = np.zeros((len(states), len(self.bias)), np.float32)
        width = len(self._numbers) // self._scale.shape[1]
        for group, scale in enumerate(self._scale.T):
            part = slice(group * width, (group + 1) * width)
            found += (whole[:, part] @ self._numbers[part]) * scale
        found *= largest / np.float32(127)
        found += self.bias
        return found


class SmallEncoder:
    """An encoder from word pieces of short texts to states of the pieces, (T, hidden) each.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        """Read the arrays that `small_state` makes."""
        self._words, self._scale = state[WORDS], state[WORDS + SCALE]
        self._rows = state[ROWS].astype(np.int64)
        linear = tuple(f".{name}{end}" for name in LINEAR for end in ("", SCALE, ".bias"))
        small = {k: a for k, a in state.items() if not k.startswith((WORDS, ROWS))}
        own = unpack_state({k: a for k, a in small.items() if not k.endswith(linear)})
        self._places, self._norm = own["places"], own["norm"]
        count = sum(name.endswith(".query") for name in state)
        self._second = own.get("second_text")  # (hidden,), added to the pieces of a second text
        self._linear = [
            {name: _Linear(state, f"{at}.{name}") for name in LINEAR} for at in range(count)
        ]
        self._layers: list[Layer] = [
            {k.removeprefix(f"{at}."): a for k, a in own.items() if k.startswith(f"{at}.")}
            for at in range(count)
        ]
        if not count or self._rows.max() >= self._words.shape[1]:
            raise ValueError("a small encoder of another shape")

    @property
    def hidden_size(self) -> int:
        """The number of numbers of a state."""
        return int(self._places.shape[1])

    @property
    def places(self) -> int:
        """The largest number of pieces of a text, marks included."""
        return len(self._places)

    def __call__(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        """Return the states (T, hidden) of each text, given as its word pieces.

        The marks [CLS] and [SEP] are added at its beginning and end, and are part of T.
        """
        return self.states([[CLS, *ids, SEP] for ids in texts])

    def states(
        self, rows: Sequence[Sequence[int]], seconds: Sequence[int] | None = None
    ) -> list[Floats]:
        """Return the states (T, hidden) of each row of pieces that already has its marks.

        `seconds` are the positions where the second text of each row begins; None for single texts.
        """
        ends = np.cumsum([0, *map(len, rows)]).tolist()
        states = self._embed(rows)
        if seconds is not None and self._second is not None:
            for start, end, second in zip(ends, ends[1:], seconds, strict=False):
                states[start + second : end] += self._second
        states = _layer_norm(states, self._norm)
        for layer, linear in zip(self._layers, self._linear, strict=True):
            states = _apply_layer(states, layer, linear, ends)
        return [states[a:b] for a, b in pairwise(ends)]

    def _embed(self, rows: Sequence[Sequence[int]]) -> Floats:
        """Return the sums of word and position vectors of all rows' pieces, (total, hidden)."""
        at = self._rows[np.concatenate([np.array(row, np.int64) for row in rows])]
        words = unpacked_planes(self._words[:, at], self._scale[at])
        places = np.concatenate([self._places[: len(row)] for row in rows])
        return np.asarray(words + places)


def _apply_layer(
    states: Floats,
    layer: Layer,
    linear: Mapping[str, _Linear],
    ends: Sequence[int],
) -> Floats:
    """Return states (total, hidden) after one layer of BERT.

    `ends` are the places where texts begin and end, between which alone attention works.
    """
    queries, keys, values = (linear[name](states) for name in LINEAR[:3])
    attended = np.empty_like(values)
    for a, b in pairwise(ends):
        attended[a:b] = _attention(queries[a:b], keys[a:b], values[a:b])
    attended = linear["output"](attended)
    attended += states
    states = _layer_norm(attended, layer["first"])
    inner = linear["narrow"](_gelu(linear["wide"](states)))
    inner += states
    return _layer_norm(inner, layer["second"])


def _attention(queries: Floats, keys: Floats, values: Floats) -> Floats:
    """Return attention within one text, (T, hidden).

    `queries`, `keys` and `values` are (T, hidden) each.
    """
    q, k, v = (x.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for x in (queries, keys, values))
    weights = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(q.shape[2]))  # (heads, T, T)
    weights = np.exp(weights - weights.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray((weights @ v).transpose(1, 0, 2).reshape(queries.shape))


def _gelu(x: Floats) -> Floats:
    """Return GELU of x by tanh, within a thousandth of BERT's own.

    The kernel overwrites `x`, and numpy does not.
    """
    if (kernel := load_kernel()) is not None:
        kernel.gelu(x)
        return x
    inner = np.float32(0.044715) * x  # then in place, because new arrays cost more than the sums
    inner *= x
    inner *= x
    inner += x
    inner *= np.float32(0.79788456)
    np.tanh(inner, out=inner)
    inner += 1
    x = np.float32(0.5) * x
    x *= inner
    return x


def _layer_norm(x: Floats, norm: Floats) -> Floats:
    """Return layer norms of x (T, hidden); `norm` (2, hidden) are weight and bias."""
    apart = x - x.mean(axis=1, keepdims=True)
    apart /= np.sqrt((apart * apart).mean(axis=1, keepdims=True) + EPSILON)
    apart *= norm[0]
    apart += norm[1]
    return np.asarray(apart)


def small_state(
    base: Mapping[str, Floats],
    pieces: Mapping[str, int],
    layers: int,
    places: int,
    word_bits: int = WORD_BITS,
) -> dict[str, Array]:
    """Return the arrays of a `SmallEncoder` by name, made from BERT's first `layers` layers.

    `base` are BERT's arrays and `pieces` is the vocabulary. Pieces of Latin letters, digits and
    signs keep their rows; all others share the row of the unknown piece. `places` is the number of
    positions, and `word_bits` the bits for a number of a word's vector. Raises KeyError for missing
    arrays.
    """
    kept = sorted(at for piece, at in pieces.items() if _is_kept(piece))
    words = base["embeddings.word_embeddings.weight"]
    rows = np.full(len(words), kept.index(pieces["[UNK]"]), np.int16)
    rows[kept] = np.arange(len(kept))
    state: dict[str, Array] = {ROWS: rows, "norm": _norm_of(base, "embeddings.LayerNorm")}
    state[WORDS], state[WORDS + SCALE] = packed_planes(words[kept], word_bits, words.shape[1])
    positions = base["embeddings.position_embeddings.weight"][:places]
    types = base["embeddings.token_type_embeddings.weight"]
    state["places"] = (positions + types[0]).astype(np.float16)
    state["second_text"] = (types[1] - types[0]).astype(np.float16)
    for at in range(layers):
        layer = f"encoder.layer.{at}"
        for name, source in _SOURCES.items():
            weight = base[f"{layer}.{source}.weight"]
            key = f"{at}.{name}"
            state[key], state[key + SCALE] = packed_planes(weight, LAYER_BITS, GROUP)
            state[f"{key}.bias"] = base[f"{layer}.{source}.bias"].astype(np.float16)
        state |= {f"{at}.{k}": _norm_of(base, f"{layer}.{v}") for k, v in _NORMS.items()}
    return state


def _is_kept(piece: str) -> bool:
    """Return whether a piece keeps a vector of its own: [CLS], [SEP], [UNK] or one in ASCII."""
    return piece in ("[CLS]", "[SEP]", "[UNK]") or (piece.isascii() and piece[:1] != "[")


def _norm_of(base: Mapping[str, Floats], name: str) -> NDArray[np.float16]:
    """Return weight and bias of one of BERT's layer norms, (2, hidden) in fp16."""
    return np.stack([base[f"{name}.weight"], base[f"{name}.bias"]]).astype(np.float16)


def packed_planes(table: Floats, bits: int, group: int) -> tuple[NDArray[np.uint8], Array]:
    """Pack a table (N, D) into planes (bits, N, D / 8) and fp16 scales (N, D / group).

    Returns planes and scales. Numbers are whole between -limit and limit, limit = 2 ** (bits - 1) -
    1, times their scale. D is a multiple of `group`, which is a multiple of 8.
    """
    limit = 2 ** (bits - 1) - 1
    parts = table.reshape(len(table), -1, group)
    scale = np.maximum(_best_scale(parts, limit), 1e-6).astype(np.float16)
    whole = np.round(parts / scale.astype(np.float32)[..., None]).clip(-limit, limit) + limit
    flat = whole.astype(np.uint8).reshape(table.shape)
    planes = [np.packbits((flat >> bit) & 1, axis=1) for bit in range(bits)]
    return np.stack(planes), scale


def _best_scale(parts: Floats, limit: int) -> Floats:
    """Return for each group (N, G, size) the scale (N, G) of the smallest squared error.

    The shares `SHARES` of the group's largest number are tried.
    """
    largest = np.abs(parts).max(axis=2)
    best, least = largest / limit, np.full(largest.shape, np.inf)
    for share in SHARES:
        scale = np.maximum(largest * share / limit, 1e-6)
        near = np.round(parts / scale[..., None]).clip(-limit, limit) * scale[..., None]
        lost = ((parts - near) ** 2).sum(axis=2)
        best, least = np.where(lost < least, scale, best), np.minimum(lost, least)
    return np.asarray(best)


def unpacked_planes(planes: Array, scale: Array) -> Floats:
    """Return the rows (N, D) in fp32 of a table that `packed_planes` packed.

    Raises ValueError for other shapes.
    """
    parts = whole_numbers(planes).reshape(planes.shape[1], scale.shape[1], -1)
    found = parts * scale.astype(np.float32)[..., None]
    return np.asarray(found.reshape(planes.shape[1], -1))


def whole_numbers(planes: Array) -> Floats:
    """Return the whole numbers (N, D), as floats, that planes (bits, N, D / 8) hold; no scales."""
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
    """Return the arrays of a state in fp32, packed ones unpacked; scales are left out."""
    found = {}
    for name, array in state.items():
        if name.endswith(SCALE):
            continue
        scale = state.get(name + SCALE)
        found[name] = array.astype(np.float32) if scale is None else unpacked_planes(array, scale)
    return found
