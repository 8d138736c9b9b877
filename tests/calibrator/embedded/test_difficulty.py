"""The difficulty of questions, estimated from similar ones, also in unknown words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrator.features.difficulty import BOUNDS, PREFIX, Difficulty
from calibrator.features.ngrams import Ids
from calibrator.lab.training.stages.forest import WIDTH, fit_difficulty
from calibrator.recalibration.curves import sigmoid

PIECES = 120  # two halves with different meanings
UNHELD = 50  # of each half, the first piece that no question of training has


def meaning() -> NDArray[np.float32]:
    """Return a vector for each piece, near the centre of its half."""
    rng = np.random.default_rng(1)
    halves = np.repeat(rng.normal(size=(2, 96)), PIECES // 2, axis=0)
    return (halves + 0.4 * rng.normal(size=(PIECES, 96))).astype(np.float32)


def question_pieces(half: int, first: int, count: int = 8) -> Ids:
    """Return the ids of a question of `count` pieces of one half, from `first` on."""
    return (half * PIECES // 2 + first + np.arange(count)).astype(np.int32)


def questions(count: int) -> tuple[list[Ids], NDArray[np.int64], NDArray[np.float32]]:
    """Return three replies to each question; questions of the first half are hard, others easy."""
    rng = np.random.default_rng(2)
    rows, numbers, targets = [], [], []
    for n in range(count):
        pieces = question_pieces(n % 2, int(rng.integers(0, UNHELD - 8)))
        for _ in range(3):
            rows.append(pieces)
            numbers.append(n)
            targets.append(rng.random() < (0.2, 0.8)[n % 2])
    return rows, np.array(numbers), np.array(targets, dtype=np.float32)


def fitted(data: tuple[Any, Any, Any]) -> tuple[Difficulty, NDArray[np.float32]]:
    state, odds = fit_difficulty(*data, meaning())
    return Difficulty.from_state(state), odds


@pytest.mark.parametrize("first", [3, UNHELD])
def test_a_question_is_as_hard_as_those_like_it(first: int) -> None:
    """A question is as hard as those of its meaning, even if training had none of its pieces."""
    difficulty, _ = fitted(questions(200))
    hard, easy = sigmoid(difficulty.odds_of([question_pieces(0, first), question_pieces(1, first)]))
    assert hard == pytest.approx(0.2, abs=0.1)
    assert easy == pytest.approx(0.8, abs=0.1)


def test_far_from_all_questions_it_is_the_base_rate() -> None:
    """A question without a word, or unlike all others, has the base rate."""
    rows, numbers, targets = questions(200)
    only_hard = numbers % 2 == 0
    hard = [r for r, is_hard in zip(rows, only_hard, strict=True) if is_hard]
    difficulty, _ = fitted((hard, numbers[only_hard], targets[only_hard]))
    none, other = sigmoid(difficulty.odds_of([np.zeros(0, np.int32), question_pieces(1, UNHELD)]))
    assert none == pytest.approx(difficulty.base, abs=0.02)
    assert other == pytest.approx(difficulty.base, abs=0.02)


def test_training_odds_exclude_their_own_question() -> None:
    """Difficulties for training rows do not use their own question's labels.

    With random labels the difficulty that serves agrees with them, since it has seen them.
    """
    rng = np.random.default_rng(3)
    rows = [np.unique(rng.integers(0, PIECES, 6)).astype(np.int32) for _ in range(300)]
    targets = rng.integers(0, 2, 300).astype(np.float32)
    difficulty, odds = fitted((rows, np.arange(300), targets))
    agreement = [
        np.mean((each > 0) == (targets > 0.5)) for each in (difficulty.odds_of(rows), odds)
    ]
    assert agreement[0] > 0.8
    assert agreement[1] < 0.6


def test_replies_to_a_question_share_its_difficulty() -> None:
    """All replies to a question have its difficulty, in training and in any batch."""
    rows, numbers, targets = questions(200)
    difficulty, odds = fitted((rows, numbers, targets))
    assert all(len(set(odds[numbers == n])) == 1 for n in range(200))
    alone = [difficulty.odds_near(difficulty.meanings([each]))[0] for each in rows]
    assert difficulty.odds_of(rows) == pytest.approx(alone, abs=1e-5)


def test_what_is_remembered_of_questions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of questions is bounded in number and length, and forgetting changes nothing."""
    monkeypatch.setattr("calibrator.features.difficulty.MOST_REMEMBERED", 3)
    monkeypatch.setattr("calibrator.features.difficulty.LONGEST_REMEMBERED", 32)
    difficulty, _ = fitted(questions(20))
    others = [question_pieces(half, first) for first in range(4) for half in (0, 1)]
    long = question_pieces(0, 0, count=9)
    alone = difficulty.odds_near(difficulty.meanings([*others, long])).tolist()
    for _ in range(2):
        assert difficulty.odds_of([*others, long]) == pytest.approx(alone)
        assert [difficulty.odds_of([each])[0] for each in (*others, long)] == pytest.approx(alone)
        assert long.tobytes() not in difficulty._remembered
        assert len(difficulty._remembered) <= 3


@pytest.mark.parametrize("label", [0, 1])
def test_all_right_or_all_wrong_is_no_certainty(label: int) -> None:
    """If all replies are right or wrong, the log-odds stay within bounds."""
    rows, numbers, targets = questions(20)
    difficulty, odds = fitted((rows, numbers, np.full_like(targets, label)))
    assert sigmoid(difficulty.odds_of(rows[:1]))[0] == pytest.approx(BOUNDS[label])
    assert np.isfinite(odds).all()


def test_vectors_of_few_numbers_are_filled_with_zeros() -> None:
    """Vectors with fewer numbers than the table are filled with zeros."""
    state, _ = fit_difficulty(*questions(20), meaning()[:, :5])
    assert state[f"{PREFIX}table"].shape == (PIECES, WIDTH)
    assert not state[f"{PREFIX}table"][:, 5:].any()


@pytest.mark.parametrize(
    ("name", "message"), [("scale", "of another shape"), ("share", "of another shape")]
)
def test_a_difficulty_of_another_shape_is_refused(name: str, message: str) -> None:
    """Arrays of another shape are refused."""
    state, _ = fit_difficulty(*questions(20), meaning())
    with pytest.raises(ValueError, match=message):
        Difficulty.from_state(state | {PREFIX + name: state[PREFIX + name][:3]})


def test_a_question_without_weight_says_nothing() -> None:
    """Without weights of questions the base rate is left."""
    state, _ = fit_difficulty(*questions(20), meaning())
    name = f"{PREFIX}weight"
    difficulty = Difficulty.from_state(state | {name: np.zeros_like(state[name])})
    assert sigmoid(difficulty.odds_of([question_pieces(0, 3)]))[0] == pytest.approx(difficulty.base)
    assert (
        Difficulty.from_state(state).odds_of([question_pieces(0, 3)])[0]
        != difficulty.odds_of([question_pieces(0, 3)])[0]
    )
