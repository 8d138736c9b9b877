"""The functions of the C files in `source/`.

Each function checks kinds and sizes, and raises TypeError, ValueError or IndexError for arguments
that do not fit. Functions on tables and layers let other threads run meanwhile. Those that take
microseconds, such as a search of a text, do not.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]
Halves = NDArray[np.float16]
Ids = NDArray[np.int32]
Held = object
"""Tables that the kernel holds; they must not change any more."""

ARITHMETIC: str  # `avx2` or `plain`, as this processor supports
SOURCES: str  # a digest of the files that it was built from

def bag_tables(table: Bytes, scales: Halves) -> Held:
    """Hold the tables of n-grams.

    `table` is (rows, members, width), `scales` (rows, members): a row is table * scale.
    """

def topic_tables(*parts: tuple[NDArray[np.uint16], Floats, Floats, Bytes]) -> Held:
    """Hold the tables of topics.

    Each of five parts has `places` (buckets,), `rarity` (K,), `scale` (K,), `table` (K, D).
    """

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
    """Hold the questions whose difficulty is known.

    `table` (V, D) and `scale` (V,) are for word pieces. The questions are laid out by
    `difficulty._tile_questions`, with their `share` of right replies and `weight`, (Q,) each.
    `factors` (3, tiles * TILE) are 1 / length, weight, and weight * share, 0 beyond the last
    question.
    """

def tower_weights(arrays: tuple[Floats, ...], limit: float, epsilon: float) -> Held:
    """Hold the arrays of all members in the order of `_Members._arrays`."""

def together(jobs: list[tuple[str, tuple[object, ...]]]) -> None:
    """Run jobs, each a name and its arguments, in their order, while other threads run.

    No job runs where one does not fit. The last arguments are the arrays that are written.

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
    """Compute squared distances of whitened rows (B, D) to the nearest centroid, (B,)."""

def tree_tables(nodes: NDArray[np.uint8], width: int) -> Held:
    """Hold trees of nodes (T, N, 8), packed as `trees._NODE`, on rows of `width` numbers."""

def trees(tables: Held, rows: Floats, found: NDArray[np.float64]) -> None:
    """Compute the sums of the leaves in which rows (B, width) end, (B,)."""

def piece_tables(
    table: Bytes,
    scale: Floats,
    rarity: Floats,
    thresholds: NDArray[np.float64],
    rounding: float,
) -> Held:
    """Hold the arrays of `relevance.Pieces`.

    The `thresholds` (10, T) of each cosine ascend, padded with infinity.
    """

def relevance(tables: Held, asked: Sequence[int], said: Sequence[int]) -> tuple[list[float], int]:
    """Return what two lists of word pieces share, 27 numbers, and a bit for each cosine.

    A bit, the lowest for the first cosine, is set where a threshold is within the rounding error.
    """

def rarest(tables: Held, ids: Sequence[int]) -> tuple[bytearray, bytearray]:
    """Return the rarest distinct pieces as int32, the rarest first, and their float32 vectors."""

def compared(tables: Held, asked: Sequence[int], said: Sequence[int], alike: Floats) -> list[float]:
    """Return `relevance._compared` of such pieces from their cosines (n, m)."""

def quantized_layer(tiles: Bytes, scales: Floats, offsets: Ids, bias: Floats) -> Held:
    """Hold a linear layer of whole weights, -7 to 7."""

def quantized_linear(layer: Held, x: Floats, found: Floats) -> None:
    """Compute a layer on states that are rounded to 8 bits, into `found`."""

def gelu(x: Floats) -> None:
    """Replace each number by its GELU, by tanh."""

def vocabulary(pieces: dict[str, int], unknown: int) -> Held:
    """Hold the vocabulary of a tokenizer like BERT's; `##` marks a piece that continues a word."""

def cut(vocabulary: Held, text: str, others: Mapping[str, Sequence[int]]) -> bytes:
    """Return the pieces of a text's words in order, as int32.

    Words other than short ones of ASCII letters and digits are looked up in `others`. Raises
    UnicodeEncodeError for half a surrogate pair.
    """

def grams(
    question: str,
    answer: str,
    question_ids: Sequence[int],
    answer_ids: Sequence[int],
    buckets: int,
    sizes: tuple[int, int, int, int],
    ends: tuple[int, int],
) -> tuple[bytearray, tuple[int, ...]]:
    """Return the distinct n-grams of five parts as int32, and the bounds of the parts.

    The bounds are where each part begins and where the last one ends.
    """

def distinct(pieces: Sequence[int]) -> bytearray:
    """Return the distinct numbers, ascending, as int32."""

def word_counts(question: str, answer: str, as_written: str, last: int) -> tuple[int, ...]:
    """Return `traits.WordCounts` of ASCII texts, the first two in lower case."""

def beginnings(question: str, answer: str) -> tuple[int, int, int]:
    """Return how many beginnings of words each of two ASCII texts has, and how many both have.

    The texts are in lower case; `PreparedText.beginnings` defines them.
    """

def index(text: str) -> Held:
    """Return an index of an ASCII text for `hold_any`."""

def needles(words: tuple[str, ...], parts: tuple[str, ...]) -> Held:
    r"""Hold search terms: words as `\w+` cuts them, and parts that may be anywhere."""

def hold_any(index: Held, several: tuple[Held, ...]) -> list[bool]:
    """Return for each of several needles whether the text has one of its terms."""

def shape(kinds: bytes, rows: tuple[bytes, ...]) -> Held:
    """Hold rows of kinds, one byte each; `kinds` maps each of 256 characters to its kind.

    Raises ValueError for no row, an empty one, or more than 64 kinds together.
    """

def has_shape(text: str, shape: Held) -> bool:
    """Return whether a text has consecutive characters of the kinds of a row."""

def numbers(text: str) -> list[str]:
    """Return `PreparedText.numbers` of an ASCII text."""

def digits(text: str) -> list[int]:
    """Return `PreparedText.digits` of an ASCII text."""
