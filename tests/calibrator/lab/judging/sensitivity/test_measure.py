"""Sensitivity figures of scorers that see everything, nothing, or one kind."""

from __future__ import annotations

import math

import pytest

from calibrator.lab.judging.sensitivity import items_to_score, measure, pairs_of, sensitivity_of
from calibrator.lab.judging.sensitivity.figures import MIN_PAIRS
from calibrator.rows.results import MEAN
from calibrator.rows.rows import Row
from calibrator.scorer import FakeScorer, Item
from tests.calibrator.lab.judging.sensitivity.scorers import FunctionScorer, all_seeing, blind
from tests.calibrator.lab.judging.sensitivity.test_pairs import long_row

ROWS: list[Row] = [
    *(long_row(n) for n in range(25)),
    *(long_row(n, "trivia") for n in range(30)),
    *(long_row(n, "small") for n in range(5)),
]


def test_a_scorer_that_sees_everything() -> None:
    """A perfect scorer has an AUROC of 1 and all pairs in order, and its confidence falls."""
    found = sensitivity_of(all_seeing(ROWS), ROWS)
    assert found.means
    for one in found.means:
        assert (one.auroc, one.in_order) == (1, 1)
        assert (one.right, one.corrupted) == pytest.approx((0.9, 0.2))
        assert one.fall == pytest.approx(0.7)
    assert found.score() == 1
    assert all((one.auroc, one.in_order) == (1, 1) for one in found.everyday)


@pytest.mark.parametrize("scorer", [blind(), FakeScorer(0.73)])
def test_a_scorer_that_does_not_look_at_the_answer(scorer: FunctionScorer | FakeScorer) -> None:
    """For a scorer that ignores the answer both figures are 0.5, since ties count half."""
    found = sensitivity_of(scorer, ROWS)
    for one in found.figures:
        assert one.auroc == pytest.approx(0.5)
        assert one.in_order == 0.5
        assert one.fall == pytest.approx(0)
    assert found.score() == pytest.approx(0.5)
    assert all(one.in_order == 0.5 for one in found.everyday)


def test_a_scorer_that_sees_one_kind() -> None:
    """A scorer that sees one kind has an AUROC of 1 on that kind alone."""
    found = sensitivity_of(
        FunctionScorer(lambda item: 0.8 - 0.5 * (item.answer == item.question)), ROWS
    )
    auroc = {one.kind: one.auroc for one in found.means}
    assert auroc.pop("echo") == 1
    assert set(auroc.values()) == {0.5}


def test_means_are_over_benchmarks_with_enough_replies() -> None:
    """The mean counts each benchmark with enough replies once."""
    knows = {(row.question, row.answer) for row in ROWS if row.benchmark == "trivia"}

    def confidence(item: Item) -> float:
        return 0.9 if (item.question, item.answer) in knows else 0.4

    found = sensitivity_of(FunctionScorer(confidence), ROWS)
    mean, small = found.find("last number"), found.find("last number", "small")
    assert mean is not None
    assert small is not None
    assert (mean.benchmarks, mean.pairs, mean.auroc) == (2, 55, pytest.approx(0.75))
    assert small.pairs == 5 < MIN_PAIRS
    assert found.benchmarks == ["riddles", "trivia"]
    assert (found.score("riddles"), math.isnan(found.score("small"))) == (pytest.approx(0.5), True)
    assert found.find("last number", MEAN) is mean


def test_right_replies_are_scored_once_with_names_as_served() -> None:
    """Each right reply is scored once, under its model's name and without the benchmark's."""
    seen: list[Item] = []

    def confidence(item: Item) -> float:
        seen.append(item)
        return 0.5

    pairs = pairs_of(ROWS, max_pairs=20)
    progress: list[int] = []
    measure(FunctionScorer(confidence), pairs, progress.append)
    assert sum(progress) == len(seen) == items_to_score(pairs)
    assert {item.benchmark for item in seen} == {None}
    assert len(seen) == len({id(pair.right) for pair in pairs}) + len(pairs) + 4 * 2 * 60 * 2


def test_without_rows_the_everyday_questions_remain() -> None:
    """Without rows only the everyday questions are measured."""
    found = sensitivity_of(all_seeing([]), [])
    assert found.figures == []
    assert len(found.everyday) == 12
    assert math.isnan(found.score())


def test_the_same_rows_give_the_same_figures() -> None:
    """The same rows give the same figures."""
    scorer = FunctionScorer(lambda item: (hash(item.answer) % 1000) / 1000)
    assert sensitivity_of(scorer, ROWS, max_pairs=8) == sensitivity_of(scorer, ROWS, max_pairs=8)
    assert all(one.pairs <= 8 for one in sensitivity_of(scorer, ROWS, max_pairs=8).figures)
