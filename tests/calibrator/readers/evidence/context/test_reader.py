"""The reader gives the same probabilities with the kernel and in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from calibrator.features.small_encoder import small_state
from calibrator.features.weights import Array, Floats
from calibrator.readers.evidence.context.support import (
    CONTEXT_PIECES,
    REPLY_PIECES,
    REQUEST_PIECES,
    ContextReader,
    Passage,
    assemble,
)
from calibrator.text.word_pieces import CLS, SEP
from tests.calibrator.kernel.kernels import numpy_alone

HIDDEN, INNER, LAYERS, PIECES = 192, 384, 2, 300


def state() -> dict[str, Array]:
    """Return the arrays of a small random reader, the same each time."""
    rng = np.random.default_rng(5)

    def table(*shape: int) -> Floats:
        return rng.normal(0, 0.05, shape).astype(np.float32)

    base: dict[str, Floats] = {
        "embeddings.word_embeddings.weight": table(PIECES, HIDDEN),
        "embeddings.position_embeddings.weight": table(256, HIDDEN),
        "embeddings.token_type_embeddings.weight": table(2, HIDDEN),
        "embeddings.LayerNorm.weight": np.ones(HIDDEN, np.float32),
        "embeddings.LayerNorm.bias": np.zeros(HIDDEN, np.float32),
    }
    for at in range(LAYERS):
        layer = f"encoder.layer.{at}"
        for name, shape in (
            ("attention.self.query", (HIDDEN, HIDDEN)),
            ("attention.self.key", (HIDDEN, HIDDEN)),
            ("attention.self.value", (HIDDEN, HIDDEN)),
            ("attention.output.dense", (HIDDEN, HIDDEN)),
            ("intermediate.dense", (INNER, HIDDEN)),
            ("output.dense", (HIDDEN, INNER)),
        ):
            base[f"{layer}.{name}.weight"] = table(*shape)
            base[f"{layer}.{name}.bias"] = table(shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            base[f"{layer}.{name}.weight"] = np.ones(HIDDEN, np.float32)
            base[f"{layer}.{name}.bias"] = np.zeros(HIDDEN, np.float32)
    names = {"[CLS]": 101, "[SEP]": 102, "[UNK]": 100}
    pieces = {f"piece{at}": at for at in range(PIECES) if at not in names.values()} | names
    found = small_state(base, pieces, LAYERS, 256, 4)
    found["head"] = table(3, 2 * HIDDEN).astype(np.float16) * 20
    found["head.bias"] = np.zeros(3, np.float16)
    return found


def cut(texts: Sequence[str]) -> list[Sequence[int]]:
    """Cut texts into a piece for each word."""
    return [[103 + hash_of(word) for word in text.split()] for text in texts]


def hash_of(word: str) -> int:
    """Return a number below 190 that is the same in every process."""
    return sum(map(ord, word)) % 190


PASSAGES = [
    Passage("the shop opens at nine", "when does it open", "at nine"),
    Passage("returns within thirty days " * 20, "", "you can return it " * 30),
    Passage("", "", "yes"),
]


def test_kernel_and_numpy_agree() -> None:
    """Kernel and numpy agree within 2e-3: only sums of whole numbers are exact."""
    with_kernel = ContextReader(state(), cut).read(PASSAGES)
    with numpy_alone():
        plain = ContextReader(state(), cut).read(PASSAGES)
    assert with_kernel == pytest.approx(plain, abs=2e-3)
    assert with_kernel.sum(axis=1) == pytest.approx(1)


def test_neighbours_change_nothing() -> None:
    """A passage has the same probabilities alone and among others."""
    reader = ContextReader(state(), cut)
    together = reader.read(PASSAGES)
    alone = np.concatenate([reader.read([each]) for each in PASSAGES])
    assert together == pytest.approx(alone, abs=1e-5)


def test_nothing_to_read() -> None:
    """Without passages there are no rows."""
    assert ContextReader(state(), cut).read([]).shape == (0, 3)


def test_a_row_is_bounded_and_marked() -> None:
    """Context, request and reply are cut to their shares; a request keeps both ends."""
    row, second = assemble([7] * 500, range(1000, 1100), [9] * 500)
    assert row[0] == CLS
    assert row.count(SEP) == 3
    assert second == CONTEXT_PIECES + 2
    request = row[second : second + REQUEST_PIECES]
    assert request[0] == 1000
    assert request[-1] == 1099
    assert row[-REPLY_PIECES - 1 :] == [9] * REPLY_PIECES + [SEP]


def test_a_row_without_a_request_has_one_mark_less() -> None:
    """An empty request leaves no empty segment."""
    assert assemble([7], [], [9]) == ([CLS, 7, SEP, 9, SEP], 3)


def test_another_head_is_refused() -> None:
    """A head that does not fit the encoder is refused when the reader is made."""
    with pytest.raises(ValueError, match="another shape"):
        ContextReader(state() | {"head": np.zeros((2, 2 * HIDDEN), np.float16)}, cut)
