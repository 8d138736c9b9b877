"""The compiled kernel gives the numbers of numpy."""

from __future__ import annotations

import random
import re
from contextlib import nullcontext
from itertools import product
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.features.difficulty import Difficulty
from calibrator.features.ngrams import grams_of
from calibrator.features.small_encoder import packed_planes, tile_in_fours, whole_numbers
from calibrator.features.tower import Bags
from calibrator.features.traits import word_counts
from calibrator.features.trees import Trees
from calibrator.kernel import load_kernel
from calibrator.readers.inspection.relevance import (
    COSINES,
    END,
    OF_MEANS,
    ROUNDING,
    Pieces,
    _beginnings,
    relevance,
)
from calibrator.scorer import Item
from calibrator.text.looking_for import CharacterShape, PreparedText, SoughtPattern
from tests.calibrator.kernel.kernels import CLOSE, numpy_alone, texts


def test_one_has_the_kernel_and_one_has_not(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
) -> None:
    """Of the two calibrators one has the kernel and the other has not."""
    pieces = [each.parts.inspector.pieces for each in both if each.parts.inspector is not None]
    assert [each.kernel is not None for each in pieces] == [True, False]


def test_scores_are_those_of_numpy(both: tuple[EmbeddedCalibrator, EmbeddedCalibrator]) -> None:
    """Confidences equal numpy's to 1e-6, with the same reasons, also for odd texts."""
    items = [Item(*each) for each in [*texts(40), ("a", "a"), ("Who wrote Faust?", "Goethe.")]]
    found = both[0].score_batch(items)
    with numpy_alone():
        wanted = both[1].score_batch(items)
    for one, other in zip(found, wanted, strict=True):
        assert one.confidence == pytest.approx(other.confidence, abs=CLOSE)
        assert (one.because, one.is_truncated) == (other.because, other.is_truncated)


def test_neighbours_change_nothing(both: tuple[EmbeddedCalibrator, EmbeddedCalibrator]) -> None:
    """A confidence is the same alone and in a batch to 1e-12."""
    items = [Item(*each) for each in texts(12)]
    together = [each.confidence for each in both[0].score_batch(items)]
    alone = [both[0].score_batch([item])[0].confidence for item in items]
    assert together == pytest.approx(alone, abs=1e-12)


def test_n_grams_are_the_same_numbers(kernel: ModuleType) -> None:
    """N-grams have the same numbers in the same order."""
    rng = random.Random(7)
    for question, answer in texts(60):
        question_ids, answer_ids = (
            [rng.randrange(40_000) for _ in text.split()] for text in (question, answer)
        )
        found = grams_of(question, answer, question_ids, answer_ids, 2**18)
        with numpy_alone():
            wanted = grams_of(question, answer, question_ids, answer_ids, 2**18)
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_what_trees_read_has_the_same_bits(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
) -> None:
    """Topics that trees read have the same bits, so that no tree ends at another leaf."""
    with_kernel, plain = (each.parts.forest for each in both)
    assert with_kernel is not None
    assert plain is not None
    rng = np.random.default_rng(3)
    for size in (0, 1, 7, 8, 129, 900):
        grams = tuple(np.unique(rng.integers(0, 2**18, size)).astype(np.int32) for _ in range(5))
        assert np.array_equal(with_kernel.topics.topics_of(grams), plain.topics.topics_of(grams))


@pytest.mark.parametrize(("width", "count"), [(1, 5), (7, 32), (48, 900), (600, 100)])
def test_difficulties_are_those_of_numpy_where_it_matters(
    kernel: ModuleType, width: int, count: int
) -> None:
    """Difficulties are on the same side of each threshold as numpy's.

    Those near a threshold are numpy's to the bit.
    """
    rng = np.random.default_rng(width)
    table, questions = (
        np.clip(rng.normal(20, 40, (size, width)), -127, 127).astype(np.int8)
        for size in (300, count)
    )
    share, weight = rng.random((2, count), np.float32)
    arrays = (table, rng.random(300), questions, share, weight, np.array([0.4]))
    with numpy_alone():
        plain = Difficulty(*arrays)
    pieces = [np.unique(rng.integers(0, 300, size)).astype(np.int32) for size in [0, 1, *[30] * 15]]
    wanted = plain.odds_of(pieces)
    meanings = plain.meanings(pieces)
    assert Difficulty(*arrays).odds_of(pieces) == pytest.approx(wanted, abs=2e-6)
    for shift in (0, 1e-6, -6e-6, 2e-5, -2e-5, 1e-4, -1e-3, 1):
        thresholds = np.sort(wanted + shift)
        found = Difficulty(*arrays, thresholds=thresholds.tolist())
        with pytest.MonkeyPatch.context() as patch:
            # The last bits of numpy's sums depend on the alignment of its arrays.
            patch.setattr(found, "odds_near", lambda of: wanted[(meanings == of).all(axis=1)][:1])
            compared = found.odds_of(pieces)[:, None] <= thresholds
        assert np.array_equal(compared, wanted[:, None] <= thresholds)
    assert found.odds_of(pieces) == pytest.approx(wanted, abs=1e-3)


@pytest.mark.parametrize("shape", [(1, 5), (2, 8), (3, 33), (4, 33), (1, 70)])
def test_bags_of_any_shape_are_those_of_numpy(kernel: ModuleType, shape: tuple[int, int]) -> None:
    """Bags of any shape have numpy's sums, for parts of none, one and many n-grams."""
    rng = np.random.default_rng(8)
    members, width = shape
    tables = list(rng.integers(-128, 128, (members, 500, width)).astype(np.int8))
    scales = list(rng.random((members, 500)).astype(np.float16))
    sizes = (0, 1, 15, 16, 17), (33, 400, 2, 48, 7)
    rows = [
        tuple(np.sort(rng.choice(500, size, replace=False)).astype(np.int32) for size in each)
        for each in sizes
    ]
    found = Bags(tables, scales).sum_rows(rows)
    with numpy_alone():
        wanted = Bags(tables, scales).sum_rows(rows)
    assert found.shape == (2, 5, members, width)
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("width", [1, 7, 8, 24, 31, 32, 40, 96, 101])
def test_layers_of_any_width_are_products(kernel: ModuleType, width: int) -> None:
    """Distances of any width and number of rows equal the definition's."""
    rng = np.random.default_rng(width)
    whitening, centroids = (rng.random((rows, width), np.float32) for rows in (width, 4))
    for rows in (1, 2, 3, 8):
        features, found = rng.random((rows, width), np.float32), np.empty(rows, np.float32)
        kernel.distances(features, whitening, centroids, found)
        apart = (features.astype(np.float64) @ whitening)[:, None] - centroids
        assert found == pytest.approx((apart**2).sum(axis=2).min(axis=1), rel=1e-4)


def test_trees_end_at_the_same_leaves(kernel: ModuleType) -> None:
    """Trees end at the same leaves, also for NaN and on a threshold."""
    state = {
        "feature": np.array([[0, 1, 0, 0, 0]], np.int16),
        "threshold": np.array([[0.5, -1, 0, 0, 0]], np.float32),
        "left": np.array([[1, 3, 2, 3, 4]], np.int16),
        "right": np.array([[2, 4, 2, 3, 4]], np.int16),
        "value": np.array([[0, 0, 1, 2, 4]], np.float32),
        "base": np.array([0.25], np.float32),
        "depth": np.array([2], np.int16),
    }
    rows = np.array([[0.5, -1], [0.5, 0], [0.6, -1], [np.nan, 0], [-np.inf, np.nan]], np.float32)
    found = Trees(state, 2)
    assert found.read(rows).tolist() == [2.25, 4.25, 1.25, 1.25, 4.25]
    assert found.read(rows).tolist() == (0.25 + found.walk(rows).sum(axis=1)).tolist()


def test_the_small_encoder_has_the_same_states(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
) -> None:
    """The small encoder has the same states, except for the order of sums."""
    with_kernel, plain = (each.parts.knowledge for each in both)
    assert with_kernel is not None
    assert plain is not None
    rng = random.Random(4)
    pieces = [[rng.randrange(1_000, 28_000) for _ in range(count)] for count in (1, 2, 9, 46)]
    found = with_kernel.encoder(pieces)
    with numpy_alone():
        wanted = plain.encoder(pieces)
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, abs=2e-5)


@pytest.mark.parametrize("rows", [1, 3, 8, 9, 40])
def test_layers_on_whole_numbers_are_exact(kernel: ModuleType, rows: int) -> None:
    """Layers with rounded inputs give the exact sums of whole numbers."""
    rng = np.random.default_rng(rows)
    planes, scale = packed_planes(rng.normal(0, 0.1, (32, 128)).astype(np.float32), 4, 64)
    arranged, bias = tile_in_fours(planes, scale), rng.normal(size=32).astype(np.float32)
    assert arranged is not None
    x = rng.normal(size=(rows, 128)).astype(np.float32)
    x[0] = 0  # a row without a largest number
    found = np.empty((rows, 32), np.float32)
    kernel.quantized_linear(kernel.quantized_layer(*arranged, bias), x, found)
    largest = np.abs(x).max(axis=1, keepdims=True)
    whole = np.rint(x * np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0))
    wanted = np.zeros((rows, 32))
    for group in range(2):
        part = slice(64 * group, 64 * group + 64)
        products = whole[:, part] @ whole_numbers(planes)[:, part].T
        wanted += products * scale[:, group].astype(np.float64)
    assert found == pytest.approx(wanted * largest / 127 + bias, abs=1e-5)


SIGNS = st.sampled_from([*"aabBzZ09_ .,-\t\n\r\x0b\x1c\x1f\x00\x7f", "the ", "Capital", "é"])


@given(st.lists(SIGNS, max_size=60).map("".join), st.lists(SIGNS, max_size=60).map("".join))
def test_words_are_counted_alike(question: str, answer: str) -> None:
    """Words are counted alike, with any white space and signs."""
    first, second = PreparedText(question), PreparedText(answer)
    found = word_counts(first, second), _beginnings(first, second)
    with numpy_alone():
        assert found == (word_counts(first, second), _beginnings(first, second))


@given(st.lists(SIGNS, max_size=60).map("".join), st.lists(SIGNS, min_size=1, max_size=3))
def test_texts_are_looked_through_alike(text: str, parts: list[str]) -> None:
    """Words, parts and numbers are found alike; an empty part is everywhere."""

    def told() -> tuple[object, ...]:
        reading, pattern = PreparedText(text), re.compile("")
        words = (
            SoughtPattern(pattern, frozenset(parts)),
            SoughtPattern(pattern, parts=(*parts, text[3:7])),
        )
        shape = CharacterShape({"a": "abzB", "0": "09", " ": " \t"}, "a0", "0 a", "aaa")
        held = [*(each.may_be_in(reading) for each in words), shape.may_be_in(text)]
        return *held, reading.numbers, reading.digits

    found = told()
    with numpy_alone():
        assert found == told()


def test_distinct_pieces_are_those_of_a_set(kernel: ModuleType) -> None:
    """Distinct pieces are the members of a set, in order."""
    for pieces in ([], [0], [65_536, 5, 5, 0], [2**31 - 2, 63, 64], [*range(300), *range(200)]):
        assert np.frombuffer(kernel.distinct(pieces), np.int32).tolist() == sorted(set(pieces))


@pytest.mark.parametrize("column", [0, OF_MEANS, 9])
def test_a_cosine_near_a_threshold_is_that_of_numpy(kernel: ModuleType, column: int) -> None:
    """A cosine near a threshold is numpy's to the last bit."""
    rng = np.random.default_rng(4)
    table, rarity = rng.integers(-90, 90, (400, 192), np.int8), rng.random(400, np.float32)
    scale = (1 / np.linalg.norm(table.astype(np.float32), axis=1)).astype(np.float32)
    question_ids, answer_ids = (rng.integers(0, 400, count).tolist() for count in (330, 60))
    with numpy_alone():
        wanted = relevance("", "", question_ids, answer_ids, Pieces(table, scale, rarity))
    thresholds: list[list[float]] = [[] for _ in range(10)]
    thresholds[column] = [wanted[COSINES][column]]
    found = relevance("", "", question_ids, answer_ids, Pieces(table, scale, rarity, thresholds))
    exact = range(10) if column < OF_MEANS else range(OF_MEANS, 10)
    assert [found[COSINES][at] for at in exact] == [wanted[COSINES][at] for at in exact]
    assert found == pytest.approx(wanted, abs=ROUNDING)


def test_many_words_are_counted_alike(kernel: ModuleType) -> None:
    """Hundreds of distinct words and thousands of equal ones are counted alike."""
    words = [f"{at:03}{'x' * (at % 7)}y" for at in range(900)]
    texts = [" ".join(words[start : start + 600]) for start in (0, 300)] + ["a " * 3_000, ""]
    for question, answer in product(texts, texts):
        first, second = PreparedText(question), PreparedText(answer)
        found = word_counts(first, second), _beginnings(first, second)
        with numpy_alone():
            assert found == (word_counts(first, second), _beginnings(first, second))


@pytest.mark.parametrize("has_kernel", [True, False])
def test_meanings_are_compared_by_their_angle(has_kernel: bool) -> None:
    """Meanings are compared by their cosines; an empty side gives 0."""
    if has_kernel and load_kernel() is None:
        pytest.skip("no kernel was built here")
    with nullcontext() if has_kernel else numpy_alone():
        ones = np.ones(3, np.float32)
        of_three = Pieces(np.array([[1, 0], [0, 1], [-1, 0]], np.int8), ones, ones)
        assert (of_three.kernel is not None) == has_kernel
        for question_ids, answer_ids, cosines in (
            ([0], [0], [1, 1, 1, 0]),
            ([0], [1], [0, 0, 0, 0]),
            ([0], [2], [-1, -1, -1, -1]),
            ([0], [0, 1], [0.5**0.5, 0.5**0.5, 0.5**0.5, 0]),
            ([0] + [1] * END, [1], [0.5**0.5, 1, 0.5**0.5, 0]),
            ([0], [], [0, 0, 0, 0]),
        ):
            found = relevance("", "", question_ids, answer_ids, of_three)[COSINES]
            assert found[:4] == pytest.approx(cosines, abs=1e-5), (question_ids, answer_ids)


def test_word_pieces_are_cut_alike(both: tuple[EmbeddedCalibrator, EmbeddedCalibrator]) -> None:
    """Word pieces are cut alike, for words of any length and special tokens."""
    rng = random.Random(9)
    letters = "aeiouxyz09AQ-_.#[]\x7f\x1f é中\ud83d\u2028 \t\n"
    made = ["".join(rng.choices(letters, k=rng.choice([1, 9, 150]))) for _ in range(400)]
    made += ["a" * 100, "a" * 101, "[MASK] x", "unaffable" * 11, "##ing", ""]
    cut = [each._word_pieces.encode(made, each.config.layout) for each in both]
    assert cut[0] == cut[1]


def test_many_questions_have_their_difficulties_one_by_one(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
) -> None:
    """The difficulties of many questions at once equal those computed one by one."""
    forest = both[0].parts.forest
    assert forest is not None
    rng = np.random.default_rng(8)
    questions = [np.unique(rng.integers(0, 30_000, 12)).astype(np.int32) for _ in range(41)]
    alone = [forest.difficulty.odds_of([each])[0] for each in questions]
    for count in (0, 1, 16, 17, 32, 41):
        forest.difficulty._remembered = {}
        assert forest.difficulty.odds_of(questions[:count]).tolist() == alone[:count]
        assert forest.difficulty.odds_of(questions[:count]).tolist() == alone[:count]
