"""What the C files in `source/` offer: each function checks kinds and sizes, and raises TypeError,
ValueError or IndexError for what does not fit. Those that compute on tables and layers let other
threads run meanwhile; what takes microseconds, such as a look through a text, does not."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Halves = NDArray[np.float16]
Ids = NDArray[np.int32]
Held = object
"""Tables that were handed over once; they must not change any more."""

ARITHMETIC: str  # `avx2` or `plain`: what this processor runs
SOURCES: str  # a digest of the files that it was built of

def bag_tables(table: Bytes, scales: Halves) -> Held:
    """`table` is (rows, members, width), `scales` (rows, members): a row is table * scale."""

def topic_tables(*parts: tuple[NDArray[np.uint16], Floats, Floats, Bytes]) -> Held:
    """Of five parts `places` (buckets,), `rarity` (K,), `scale` (K,), `table` (K, D)."""

def difficulty_tables(
    table: Bytes,
    scale: Floats,
    tiles: Bytes,
    lengths: Floats,
    share: Floats,
    weight: Floats,
    factors: Floats,
    nearness: float,
    prior: float,
    base: float,
) -> Held:
    """`table` (V, D) and `scale` (V,) of word pieces; the questions as `difficulty._tiled` lays
    them out, with their `share` of right replies and `weight`, (Q,) each; `factors` (3, tiles *
    TILE) are 1 / length, weight, and weight * share, nought beyond the last question."""

def tower_weights(arrays: tuple[Floats, ...], limit: float, epsilon: float) -> Held:
    """The arrays of all members in the order of `_Members._arrays`."""

def together(jobs: list[tuple[str, tuple[object, ...]]]) -> None:
    """Does jobs, each told by its name and its arguments, in their order, while other threads run;
    none of them where one does not fit. The last arguments are what is written.

    `bags` (tables, rows, found): sums of the rows of n-grams over the root of their number,
    (B, 5, members, width); `rows` are a list of tuples of arrays of int32.
    `topics` (tables, rows, found, start): into the columns of `found` (B, ..) from `start` on.
    `difficulty` (tables, asked, beside, found): the shares (B,) of right replies around questions
    of these distinct word pieces, a list of arrays of int32; exact where one of `beside` (T,) is
    near, rough elsewhere, and with None for `beside` exact for all.
    `tower` (weights, bags, traits, names, logits, hidden): logits (W, K, B) under W ways to name B
    rows, `names` (W, B) int64, and the first member's hidden layer (B, HIDDEN[0]) in the first way.
    """

def distances(features: Floats, whitening: Floats, centroids: Floats, found: Floats) -> None:
    """Squared distances of whitened rows (B, D) to the nearest centroid, (B,)."""

def tree_tables(nodes: NDArray[np.uint8], width: int) -> Held:
    """Trees of nodes (T, N, 8), as `trees._NODE` packs them, on rows of `width` numbers."""

def trees(tables: Held, rows: Floats, found: NDArray[np.float64]) -> None:
    """Sums of the leaves in which rows (B, width) end, (B,)."""

def piece_tables(
    table: Bytes,
    scale: Floats,
    rarity: Floats,
    thresholds: NDArray[np.float64],
    rounding: float,
) -> Held:
    """As `relevance.Pieces` has them; the `thresholds` (10, T) of each cosine ascend, infinite
    where there are fewer."""

def relevance(tables: Held, asked: Sequence[int], said: Sequence[int]) -> tuple[list[float], int]:
    """What two lists of word pieces have in common, 27 numbers, and a bit for each of the cosines,
    the lowest for the first: whether a threshold is as near to it as it may be rounded."""

def rarest(tables: Held, ids: Sequence[int]) -> tuple[bytearray, bytearray]:
    """The rarest of the pieces, each once, the rarest first: as int32, and their vectors as
    float32."""

def compared(tables: Held, asked: Sequence[int], said: Sequence[int], alike: Floats) -> list[float]:
    """What the cosines (n, m) of such pieces say of both sides, as `relevance._compared`."""

def packed_layer(tiles: Bytes, scales: Floats, bias: Floats) -> Held:
    """A linear layer as `packing.tiled` lays it out, its `bias` (outputs,)."""

def packed_linear(layer: Held, x: Floats, found: Floats) -> None:
    """x (T, inputs) through the layer, (T, outputs)."""

def quantized_layer(tiles: Bytes, scales: Floats, offsets: Ids, bias: Floats) -> Held:
    """Hold a linear layer of whole weights, -7 to 7."""

def quantized_linear(layer: Held, x: Floats, found: Floats) -> None:
    """Compute a layer on states that are rounded to 8 bits, into `found`."""

def gelu(x: Floats) -> None:
    """GELU by tanh of each number, in place."""

def vocabulary(pieces: dict[str, int], unknown: int) -> Held:
    """Of a tokenizer like BERT's; `##` in front marks a piece that goes on with a word."""

def cut(vocabulary: Held, text: str, others: Mapping[str, Sequence[int]]) -> bytes:
    """The pieces of a text's words in a row, as int32. Those that are not ASCII letters and digits
    alone, or long, are asked of `others`. Raises UnicodeEncodeError for half a surrogate pair."""

def grams(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    buckets: int,
    sizes: tuple[int, int, int, int],
    ends: tuple[int, int],
) -> tuple[bytearray, tuple[int, ...]]:
    """The distinct n-grams of five parts as int32 in a row, and where each part begins and the
    last one ends."""

def distinct(pieces: Sequence[int]) -> bytearray:
    """Each of some numbers once, ascending, as int32."""

def word_counts(question: str, answer: str, as_written: str, last: int) -> tuple[int, ...]:
    """Of ASCII texts, the first two in lower case, as `traits.WordCounts` has them."""

def beginnings(question: str, answer: str) -> tuple[int, int, int]:
    """How many beginnings of words, as `Reading.beginnings` has them, ASCII texts in lower case
    have, and how many both have."""

def index(text: str) -> Held:
    """Of an ASCII text, what `hold_any` looks it through by."""

def needles(words: tuple[str, ...], parts: tuple[str, ...]) -> Held:
    """What a text may hold: words as `\\w+` cuts them, and parts anywhere."""

def hold_any(index: Held, several: tuple[Held, ...]) -> list[bool]:
    """Of several needles, whether a text holds one of them."""

def shape(kinds: bytes, rows: tuple[bytes, ...]) -> Held:
    """Rows of kinds, each told by a byte; `kinds` gives that of each of 256 signs. Raises
    ValueError for none, an empty one, or more than 64 kinds together."""

def has_shape(text: str, shape: Held) -> bool:
    """Whether signs of the kinds of a row stand in a text one after the other."""

def numbers(text: str) -> list[str]:
    """Of an ASCII text, as `Reading.numbers` has them."""

def digits(text: str) -> list[int]:
    """Of an ASCII text, as `Reading.digits` has them."""
