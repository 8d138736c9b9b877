"""The difficulty of questions: told out of fold in training, the same in numpy when it serves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calibrator.difficulty import PREFIX, Difficulty
from calibrator.difficulty_training import fit_difficulty
from calibrator.ngrams import Grams, grams_of
from calibrator.recalibration import sigmoid
from calibrator.tower import BUCKETS


def asked(pieces: list[int], answer: str = "yes") -> Grams:
    return grams_of("what", answer, pieces, [len(answer)], BUCKETS)


def questions(count: int) -> tuple[list[Grams], NDArray[np.int64], NDArray[np.float32]]:
    """Three replies to each; questions with the piece 7 are hard, those with 8 easy."""
    rng = np.random.default_rng(1)
    grams, numbers, targets = [], [], []
    for n in range(count):
        for reply in range(3):
            grams.append(asked([7 + n % 2, 50 + n % 9, 1000 + n], "so" * reply))
            numbers.append(n)
            targets.append(rng.random() < (0.2, 0.8)[n % 2])
    return grams, np.array(numbers), np.array(targets, dtype=np.float32)


def test_hard_and_easy_questions_are_told_apart_by_their_words() -> None:
    """A new question gets about the share of right replies that its words had."""
    state, _ = fit_difficulty(*questions(200), seed=1)
    difficulty = Difficulty.from_state(state)
    hard, easy = (float(sigmoid(difficulty.of(asked([piece, 51])))) for piece in (7, 8))
    assert hard == pytest.approx(0.2, abs=0.12)
    assert easy == pytest.approx(0.8, abs=0.12)


def test_the_answer_says_nothing_of_it() -> None:
    """Replies to one question have one difficulty, in training and at serving."""
    given = questions(60)
    state, told = fit_difficulty(*given, seed=1)
    difficulty = Difficulty.from_state(state)
    assert len({difficulty.of(grams) for grams in given[0][:3]}) == 1
    assert all(len(set(told[given[1] == n])) == 1 for n in range(60))


def test_what_is_told_of_training_rows_did_not_see_their_question() -> None:
    """Labels that are coin tosses are not known to the out-of-fold difficulty, though the one that
    serves has learned them."""
    rng = np.random.default_rng(3)
    pieces = rng.integers(0, 40, (300, 12))
    grams = [asked(each.tolist()) for each in pieces]
    targets = rng.integers(0, 2, 300).astype(np.float32)
    state, told = fit_difficulty(grams, np.arange(300), targets, seed=1)
    difficulty = Difficulty.from_state(state)
    inside = np.array([difficulty.of(each) for each in grams])
    agreement = [float(np.mean((found > 0) == (targets > 0.5))) for found in (inside, told)]
    assert agreement[0] > 0.75
    assert agreement[1] < 0.6


def test_words_of_one_question_do_not_count() -> None:
    """What fewer than three questions hold is left out, whatever its replies were."""
    state, _ = fit_difficulty(*questions(200), seed=1)
    rarity = state[f"{PREFIX}rarity"]
    own, shared = (grams_of("", "", [piece], [], BUCKETS)[0] for piece in (1004, 7))
    assert not rarity[0, own].any()
    assert rarity[0, shared].all()


@pytest.mark.parametrize("label", [0, 1])
def test_questions_of_one_kind_have_one_difficulty(label: int) -> None:
    """All right or all wrong: nothing can be told apart, and nothing breaks."""
    grams, numbers, targets = questions(20)
    state, told = fit_difficulty(grams, numbers, np.full_like(targets, label), seed=1)
    difficulty = Difficulty.from_state(state)
    assert len({difficulty.of(each) for each in grams}) == 1
    assert np.isfinite(told).all()
    assert (difficulty.of(grams[0]) > 0) == bool(label)


def test_a_difficulty_of_another_shape_is_refused() -> None:
    """Arrays that do not fit are an error at loading."""
    table = np.zeros((2, 8), np.float16)
    with pytest.raises(ValueError, match="a difficulty of another shape"):
        Difficulty(table[:1], table, np.zeros(1))
