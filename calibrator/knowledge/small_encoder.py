"""A small BERT in numpy: what the pieces of short texts mean, without torch or ONNX Runtime.

All texts of a batch go through the linear layers as one list of pieces, and each attends to itself
alone: nothing is padded, and no vector depends on its neighbours. The weights are the first layers
of all-MiniLM-L6-v2, a few bits each (`packing`); pieces of other scripts have no vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from calibrator.features.weights import SCALE, Array, Floats
from calibrator.kernel import compiled
from calibrator.knowledge.packing import opened, packed_planes, tiled, unpacked_planes
from calibrator.text.layout import CLS, SEP

WORDS, ROWS = "words", "rows"  # of the vocabulary, and where each piece's row is
EPSILON = 1e-12  # BERT's, of its layer norms
HEADS = 12
WORD_BITS, LAYER_BITS, GROUP = 3, 4, 64
LINEAR = ("query", "key", "value", "output", "wide", "narrow")  # of a layer, in this order
_SOURCES = {  # what these are called in BERT
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "wide": "intermediate.dense",
    "narrow": "output.dense",
}
_NORMS = {"first": "attention.output.LayerNorm", "second": "output.LayerNorm"}

Layer = dict[str, Floats]  # norms


class _Linear:
    """A linear layer, whose weights stay packed where the kernel reads them so."""

    def __init__(self, state: Mapping[str, Array], name: str) -> None:
        self.bias = state[f"{name}.bias"].astype(np.float32)
        self._kernel, scale = compiled(), state.get(name + SCALE)
        packed = tiled(state[name], scale) if self._kernel and scale is not None else None
        if self._kernel is not None and packed is not None:
            self._held = self._kernel.packed_layer(*packed, self.bias)
            return
        self._kernel = None
        self._weight = opened({k: state[k] for k in (name, name + SCALE) if k in state})[name].T

    def __call__(self, states: Floats) -> Floats:
        """States (T, inputs) -> (T, outputs)."""
        if self._kernel is not None:
            found: Floats = np.empty((len(states), len(self.bias)), np.float32)
            self._kernel.packed_linear(self._held, states, found)
            return found
        found = states @ self._weight
        found += self.bias
        return found


class SmallEncoder:
    """Word pieces of short texts -> states of the pieces, (T, hidden) each.

    Raises KeyError or ValueError for arrays that do not fit.
    """

    def __init__(self, state: Mapping[str, Array]) -> None:
        self._words, self._scale = state[WORDS], state[WORDS + SCALE]
        self._rows = state[ROWS].astype(np.int64)
        linear = tuple(f".{name}{end}" for name in LINEAR for end in ("", SCALE, ".bias"))
        small = {k: a for k, a in state.items() if not k.startswith((WORDS, ROWS))}
        own = opened({k: a for k, a in small.items() if not k.endswith(linear)})
        self._places, self._norm = own["places"], own["norm"]
        count = sum(name.endswith(".query") for name in state)
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
    def hidden(self) -> int:
        return int(self._places.shape[1])

    def __call__(self, texts: Sequence[Sequence[int]]) -> list[Floats]:
        rows = [[CLS, *ids, SEP] for ids in texts]
        ends = np.cumsum([0, *map(len, rows)]).tolist()
        states = self._embedded(rows)
        for layer, linear in zip(self._layers, self._linear, strict=True):
            states = _read(states, layer, linear, ends)
        return [states[a:b] for a, b in pairwise(ends)]

    def _embedded(self, rows: Sequence[Sequence[int]]) -> Floats:
        at = self._rows[np.concatenate([np.array(row, np.int64) for row in rows])]
        words = unpacked_planes(self._words[:, at], self._scale[at])
        places = np.concatenate([self._places[: len(row)] for row in rows])
        return _normed(words + places, self._norm)


def _read(
    states: Floats, layer: Layer, linear: Mapping[str, _Linear], ends: Sequence[int]
) -> Floats:
    """One layer of BERT."""
    asked, known, told = (linear[name](states) for name in LINEAR[:3])
    attended = np.empty_like(told)
    for a, b in pairwise(ends):
        attended[a:b] = _attention(asked[a:b], known[a:b], told[a:b])
    attended = linear["output"](attended)
    attended += states
    states = _normed(attended, layer["first"])
    inner = linear["narrow"](_gelu(linear["wide"](states)))
    inner += states
    return _normed(inner, layer["second"])


def _attention(asked: Floats, known: Floats, told: Floats) -> Floats:
    """Of one text, (T, hidden)."""
    q, k, v = (x.reshape(len(x), HEADS, -1).transpose(1, 0, 2) for x in (asked, known, told))
    weights = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(q.shape[2]))  # (heads, T, T)
    weights = np.exp(weights - weights.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return np.asarray((weights @ v).transpose(1, 0, 2).reshape(asked.shape))


def _gelu(x: Floats) -> Floats:
    """GELU by tanh, which is within a thousandth of BERT's own."""
    if (kernel := compiled()) is not None:
        kernel.gelu(x)
        return x
    inner = np.float32(0.044715) * x  # then in place, for new arrays cost more than the sums
    inner *= x
    inner *= x
    inner += x
    inner *= np.float32(0.79788456)
    np.tanh(inner, out=inner)
    inner += 1
    x = np.float32(0.5) * x
    x *= inner
    return x


def _normed(x: Floats, norm: Floats) -> Floats:
    """Layer norm by a weight and a bias, (2, hidden)."""
    apart = x - x.mean(axis=1, keepdims=True)
    apart /= np.sqrt((apart * apart).mean(axis=1, keepdims=True) + EPSILON)
    apart *= norm[0]
    apart += norm[1]
    return np.asarray(apart)


def small_state(
    base: Mapping[str, Floats], pieces: Mapping[str, int], layers: int, places: int
) -> dict[str, Array]:
    """The arrays of a `SmallEncoder` from BERT's, the first `layers` of it.

    `pieces` is the vocabulary; rows are kept for pieces of Latin letters, digits and signs, all
    others share that of the unknown piece. `places` are positions.
    """
    kept = sorted(at for piece, at in pieces.items() if _is_kept(piece))
    words = base["embeddings.word_embeddings.weight"]
    rows = np.full(len(words), kept.index(pieces["[UNK]"]), np.int16)
    rows[kept] = np.arange(len(kept))
    state: dict[str, Array] = {ROWS: rows, "norm": _norm_of(base, "embeddings.LayerNorm")}
    state[WORDS], state[WORDS + SCALE] = packed_planes(words[kept], WORD_BITS, words.shape[1])
    positions = base["embeddings.position_embeddings.weight"][:places]
    types = base["embeddings.token_type_embeddings.weight"][0]
    state["places"] = (positions + types).astype(np.float16)
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
    """Whether a piece has a vector of its own: a mark of BERT's or readable ASCII."""
    return piece in ("[CLS]", "[SEP]", "[UNK]") or (piece.isascii() and piece[:1] != "[")


def _norm_of(base: Mapping[str, Floats], name: str) -> NDArray[np.float16]:
    return np.stack([base[f"{name}.weight"], base[f"{name}.bias"]]).astype(np.float16)
