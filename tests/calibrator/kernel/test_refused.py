"""The compiled kernel refuses wrong arguments, and does its jobs all or not at all."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.kernel import Work, run_together
from calibrator.scorer import Item
from tests.calibrator.kernel.kernels import CLOSE, numpy_alone, texts


def zeros(*shape: int, kind: type = np.float32) -> Any:
    return np.zeros(shape, kind)


def quantized(
    weight: int = 1, groups: int = 1, bias: int = 16, offsets: int = 1
) -> tuple[Any, ...]:
    """Return the arrays of a layer of eight inputs and sixteen outputs."""
    tiles = np.full((1, 2, 64), weight, np.int8)
    return tiles, zeros(1, groups, 16), zeros(1, offsets, 16, kind=np.int32), zeros(bias)


NODES = np.zeros((1, 2, 8), np.uint8)  # the first one leads to itself
REFUSED: list[Callable[[Any], object]] = [
    lambda k: k.quantized_layer(*quantized(weight=8)),
    lambda k: k.quantized_layer(*quantized(groups=3)),
    lambda k: k.quantized_layer(*quantized(bias=8)),
    lambda k: k.quantized_layer(*quantized(offsets=2)),
    lambda k: k.quantized_linear(k.quantized_layer(*quantized()), zeros(2, 4), zeros(2, 16)),
    lambda k: k.quantized_linear(k.quantized_layer(*quantized()), zeros(2, 8), zeros(3, 16)),
    lambda k: k.quantized_linear(
        k.tree_tables(np.zeros((1, 1, 8), np.uint8), 1), zeros(1, 8), zeros(1, 16)
    ),
    lambda k: k.bag_tables(zeros(4, 2, 3), zeros(4, 2, kind=np.float16)),
    lambda k: k.bag_tables(zeros(4, 2, 3, kind=np.int8), zeros(3, 2, kind=np.float16)),
    lambda k: k.bag_tables(zeros(0, 2, 3, kind=np.int8), zeros(0, 2, kind=np.float16)),
    lambda k: k.together([("bags", (object(), [], zeros(0, 5, 2, 3)))]),
    lambda k: k.tree_tables(NODES, 1),
    lambda k: k.tree_tables(np.zeros((1, 2, 7), np.uint8), 1),
    lambda k: k.piece_tables(zeros(4, 3, kind=np.int8), zeros(3), zeros(4), thresholds(10), 0.1),
    lambda k: k.piece_tables(zeros(4, 3, kind=np.int8), zeros(4), zeros(4), thresholds(9), 0.1),
    lambda k: k.piece_tables(zeros(4, 3, kind=np.int8), zeros(4), zeros(4), zeros(10, 1), 0.1),
    lambda k: k.distances(zeros(2, 3), zeros(3, 3), zeros(1, 4), zeros(2)),
    lambda k: k.distances(zeros(2, 3), zeros(3, 3), zeros(1, 3), zeros(1)),
    lambda k: k.distances(zeros(2, 6)[:, ::2], zeros(3, 3), zeros(1, 3), zeros(2)),
    lambda k: k.index("é"),
    lambda k: k.index(5),
    lambda k: k.index("a " * 70_000),
    lambda k: k.needles(["a"], ()),
    lambda k: k.needles(("a",), (5,)),
    lambda k: k.needles(("a", "\ud800"), ()),
    lambda k: k.hold_any(k.index("a"), (k.needles((), ()), k.index("a"))),
    lambda k: k.hold_any(k.index("a"), k.needles((), ())),
    lambda k: k.hold_any(k.index("a")),
    lambda k: k.hold_any("a", (k.needles((), ()),)),
    lambda k: k.shape(bytes(255), (b"a",)),
    lambda k: k.shape(bytes(256), ()),
    lambda k: k.shape(bytes(256), (b"a", b"")),
    lambda k: k.shape(bytes(256), (b"a" * 60, b"a" * 5)),
    lambda k: k.shape(bytes(256), ("a",)),
    lambda k: k.has_shape("a", k.index("a")),
    lambda k: k.has_shape(b"a", k.shape(bytes(256), (b"a",))),
    lambda k: k.has_shape("\ud800", k.shape(bytes(256), (b"a",))),
    lambda k: k.numbers("5 é"),
    lambda k: k.digits(b"5"),
    lambda k: k.distinct([-1]),
    lambda k: k.distinct(5),
    lambda k: k.grams("", "", [-1], [], 16, (9, 9, 9, 9), (2, 2)),
    lambda k: k.grams("", "", [2**40], [], 16, (9, 9, 9, 9), (2, 2)),
    lambda k: k.grams("", "", ["1"], [], 16, (9, 9, 9, 9), (2, 2)),
    lambda k: k.grams("", "", [], [], 17, (9, 9, 9, 9), (2, 2)),
    lambda k: k.grams("", "", [], [], 16, (10**6, 9, 9, 9), (2, 2)),
    lambda k: k.grams("x" * 10**5, "", [], [], 16, (9, 9, 9, 9), (2, 2)),
    lambda k: k.relevance(pieces(k), [4], []),
    lambda k: k.relevance(pieces(k), [-1], []),
    lambda k: k.relevance(pieces(k), array("i", [4]), []),
    lambda k: k.relevance(pieces(k), array("i", [-1]), []),
    lambda k: k.relevance(pieces(k), array("q", [1]), []),
    lambda k: k.relevance(pieces(k), np.zeros((1, 1), np.int32), []),
    lambda k: k.relevance(pieces(k), np.zeros(6, np.int32)[::2], []),
    lambda k: k.relevance(pieces(k), b"1234", []),
    lambda k: k.relevance(pieces(k), range(2), []),
    lambda k: k.rarest(pieces(k), [4]),
    lambda k: k.rarest(pieces(k), 4),
    lambda k: k.compared(pieces(k), [1], [2, 3], zeros(1, 1)),
    lambda k: k.compared(pieces(k), [1], [2, 3], zeros(2, 2)),
    lambda k: k.compared(pieces(k), [1], [2, 4], zeros(1, 2)),
    lambda k: k.compared(pieces(k), [], [], zeros(0, 0)),
    lambda k: k.compared(pieces(k), [1] * 25, [2], zeros(25, 1)),
    lambda k: k.compared(pieces(k), [1], [2], zeros(1, 1, kind=np.float64)),
    lambda k: k.together(
        [("bags", (bags(k), [(np.array([4], np.int32),) * 5], zeros(1, 5, 2, 3)))]
    ),
    lambda k: k.together(
        [("bags", (bags(k), [(np.array([-1], np.int32),) * 5], zeros(1, 5, 2, 3)))]
    ),
    lambda k: k.together(
        [("bags", (bags(k), [(np.array([1], np.int32),) * 4], zeros(1, 5, 2, 3)))]
    ),
    lambda k: k.together(
        [("bags", (bags(k), [(np.array([1], np.int32),) * 5], zeros(1, 5, 2, 2)))]
    ),
    lambda k: k.together(
        [("bags", (bags(k), ((np.array([1], np.int32),) * 5,), zeros(1, 5, 2, 3)))]
    ),
    lambda k: k.together([("bags", bag_arguments(k, 2))]),
    lambda k: k.together([("trees", bag_arguments(k, 3))]),
    lambda k: k.together([("bags", [*bag_arguments(k, 3)])]),
    lambda k: k.together([("bags", (), ())]),
    lambda k: k.together(["bags"]),
    lambda k: k.together([5]),
    lambda k: k.together((("bags", bag_arguments(k, 3)),)),
    lambda k: k.together([("bags", bag_arguments(k, 3))] * 9),
    lambda k: layer(k, lanes=15),
    lambda k: layer(k, groups=3),
    lambda k: layer(k, weight=8),
    lambda k: k.quantized_linear(layer(k), zeros(2, 9), zeros(2, 16)),
    lambda k: k.quantized_linear(layer(k), zeros(2, 8), zeros(3, 16)),
    lambda k: k.gelu(zeros(3)),
    lambda k: k.vocabulary({"a": -1}, 0),
    lambda k: k.vocabulary({1: 1}, 0),
    lambda k: k.vocabulary({"\ud800": 1}, 0),
    lambda k: k.cut(k.vocabulary({"a": 1}, 0), "\ud800", {}),
    lambda k: k.cut(k.vocabulary({"a": 1}, 0), "é", {}),
    lambda k: k.cut(k.vocabulary({"a": 1}, 0), "é", []),
    lambda k: k.trees(bags(k), zeros(1, 2), zeros(1, kind=np.float64)),
    lambda k: k.word_counts("é", "", "", 3),
    lambda k: k.word_counts("", "a" * 2**20, "", 3),
    lambda k: k.word_counts("", "", "\ud800", 3),
    lambda k: k.beginnings("", b""),
    lambda k: k.beginnings("\x80", ""),
]


def bags(kernel: Any) -> object:
    return kernel.bag_tables(zeros(4, 2, 3, kind=np.int8), zeros(4, 2, kind=np.float16))


def bag_arguments(kernel: Any, width: int) -> tuple[object, ...]:
    return bags(kernel), [(np.array([1], np.int32),) * 5], zeros(1, 5, 2, width)


def layer(kernel: Any, lanes: int = 16, groups: int = 2, weight: int = 7) -> object:
    tiles = np.full((1, 2, 4 * lanes), weight, np.int8)
    offsets = zeros(1, groups, lanes, kind=np.int32)
    return kernel.quantized_layer(tiles, zeros(1, groups, lanes), offsets, zeros(lanes))


def pieces(kernel: Any) -> object:
    return kernel.piece_tables(zeros(4, 3, kind=np.int8), zeros(4), zeros(4), thresholds(10), 0.1)


def thresholds(cosines: int) -> Any:
    return np.full((cosines, 1), np.inf)


@pytest.mark.parametrize("call", REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_is_refused(kernel: ModuleType, call: Callable[[Any], object]) -> None:
    """Arguments that do not fit are refused with an exception before any array is read."""
    assert bags(kernel)
    assert pieces(kernel)
    assert layer(kernel)
    with pytest.raises((TypeError, ValueError, LookupError, OverflowError, BufferError)):
        call(kernel)


def test_jobs_are_done_together_or_not_at_all(kernel: ModuleType) -> None:
    """Jobs run in order with the same results as alone; if one is unknown, none runs."""
    table, scales = np.ones((4, 2, 3), np.int8), np.ones((4, 2), np.float16)
    held, rows = kernel.bag_tables(table, scales), [(np.array([1, 2], np.int32),) * 5]
    alone, first, last = (zeros(1, 5, 2, 3) for _ in range(3))
    kernel.together([("bags", (held, rows, alone))])
    with pytest.raises(ValueError, match="no job is called beg"):
        kernel.together([("bags", (held, rows, first)), ("beg", (held, rows, last))])
    assert not first.any()
    kernel.together([("bags", (held, rows, first)), ("bags", (held, rows, last))])
    kernel.together([])
    assert np.array_equal(first, alone)
    assert np.array_equal(last, alone)


def test_what_was_loaded_with_the_kernel_goes_on_with_it(
    both: tuple[EmbeddedCalibrator, EmbeddedCalibrator],
) -> None:
    """A calibrator loaded with the kernel keeps using it if the setting changes later."""
    items = [Item(*each) for each in texts(4)]
    found = both[0].score_batch(items)
    with numpy_alone():
        later = both[0].score_batch(items)
    assert [each.confidence for each in later] == pytest.approx(
        [each.confidence for each in found], abs=CLOSE
    )


def test_a_work_has_jobs_once() -> None:
    """A work that yields jobs twice is refused."""

    def twice() -> Work[int]:
        yield []
        yield []
        return 5

    with pytest.raises(RuntimeError, match="for a second time"):
        run_together(twice())
