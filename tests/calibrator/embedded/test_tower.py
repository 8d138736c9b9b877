"""The side tower: the same function when training in torch and when serving in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.features.ngrams import PARTS, grams_of
from calibrator.features.tower import BUCKETS, PREFIX, Tower, TowerRow, tower_row
from calibrator.lab.training.stages.tower import (
    TowerConfig,
    TowerData,
    TowerModel,
    export,
    fit_tower,
    tower_logits,
)

CONFIG = TowerConfig(members=1, folds=2, batch=16)


def rows(count: int) -> TowerData:
    """Return right answers with word piece 7 and wrong ones with 8; model 2 is always wrong."""
    made, names, targets = [], [], []
    for n in range(count):
        is_right = n % 2 == 0
        pieces = [7 if is_right else 8, 100 + n % 13]
        made.append(tower_row(f"What is {n}?", "yes" * (n % 5), [1, 2, 50 + n % 7], pieces))
        names.append(1 if is_right else 2)
        targets.append(float(is_right))
    return TowerData(
        made, np.array(names), np.array(targets, dtype=np.float32), np.arange(count) // 2 % 2
    )


@pytest.fixture(scope="module")
def data() -> TowerData:
    return rows(400)


@pytest.fixture(scope="module")
def model(data: TowerData) -> TowerModel:
    return fit_tower(data, np.arange(len(data.rows)), 3, CONFIG, seed=1)


def served(model: TowerModel, rare: tuple[bool, ...] = (False, False, False)) -> Tower:
    state = {f"{PREFIX}0.{k}": v for k, v in export(model, np.array(rare)).items()}
    tower = Tower.from_state(state)
    assert tower is not None
    return tower


@pytest.fixture(scope="module")
def tower(model: TowerModel) -> Tower:
    return served(model)


def test_other_names_are_read_with_the_first(tower: Tower, data: TowerData) -> None:
    """Reading under several names gives each name's own odds, and the first's hidden layer."""
    some, names = data.rows[:9], [[1, 2, 0] * 3, [2] * 9, [0, 1, 2] * 3]
    together, hidden = tower.read_as(some, names)
    for odds, each in zip(together, names, strict=True):
        assert odds == pytest.approx(tower.read(some, each)[0], abs=1e-5)
    assert hidden == pytest.approx(tower.read(some, names[0])[1], abs=1e-6)
    assert abs(together[0] - together[1]).max() > 0.1


def test_numpy_serves_what_torch_trained(data: TowerData, model: TowerModel) -> None:
    """The served tower differs from the trained one only by rounding to 8 and 16 bits."""
    at = np.arange(40)
    for is_named, names in ((True, data.names[at]), (False, np.zeros(40, dtype=np.int64))):
        trained = tower_logits(model, data, at, is_named)
        found = served(model).logits(data.rows[:40], list(names))
        assert found == pytest.approx(trained, abs=0.02)


def test_it_learns_from_words_and_names(data: TowerData, model: TowerModel) -> None:
    """Right and wrong rows differ by their words, and more so with the model's name."""
    at = np.arange(len(data.rows))
    plain, named = (tower_logits(model, data, at, is_named) for is_named in (False, True))
    gaps = [found[::2].mean() - found[1::2].mean() for found in (plain, named)]
    assert 1 < gaps[0] < gaps[1]


def test_a_rare_name_is_no_name(data: TowerData, model: TowerModel) -> None:
    """A model with few rows gets the weights of an unknown one."""
    tower = served(model, rare=(False, False, True))
    one = data.rows[:1]
    assert tower.logits(one, [2]) == tower.logits(one, [0])
    assert tower.logits(one, [1]) != tower.logits(one, [0])


def test_the_same_seed_gives_the_same_tower(data: TowerData, model: TowerModel) -> None:
    """The same seed gives the same tower, another seed another one."""
    at = np.arange(len(data.rows))
    again, other = (fit_tower(data, at, 3, CONFIG, seed) for seed in (1, 2))
    assert torch.equal(again.table.weight, model.table.weight)
    assert not torch.equal(other.table.weight, model.table.weight)


def test_a_tower_of_another_shape_is_refused(model: TowerModel) -> None:
    """Weights of another table size are refused at load."""
    arrays = export(model, np.zeros(3, dtype=bool))
    with pytest.raises(ValueError, match="a tower of another shape"):
        Tower([arrays | {"table": arrays["table"][:100]}])


@settings(max_examples=40)
@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.lists(st.integers(0, 30_521), max_size=700),
    st.lists(st.integers(0, 30_521), max_size=700),
)
def test_any_text_has_a_finite_logit(
    tower: Tower, question: str, answer: str, question_pieces: list[int], answer_pieces: list[int]
) -> None:
    """Any text has a finite logit."""
    row = tower_row(question, answer, question_pieces, answer_pieces)
    assert np.isfinite(tower.logits([row], [0])).all()


def test_grams_of_question_and_answer_differ() -> None:
    """The same words have different buckets in question, answer and ends, all within bounds."""
    grams = grams_of("ab12cd", "ab12cd", [5, 6], [5, 6], BUCKETS)
    question, answer, ends, question_letters, answer_letters = (
        set(part.tolist()) for part in grams
    )
    assert len(question) == len(answer) == 3  # two words and their pair
    assert len(ends) == 6  # the first and the last pieces
    assert len(question_letters) == len(answer_letters) == 4 + 2  # runs of 3 and of 5 characters
    assert len(question | answer | ends | question_letters | answer_letters) == 24
    assert max(question | answer | ends | question_letters | answer_letters) < BUCKETS


def test_characters_are_those_of_the_two_ends_whatever_their_case() -> None:
    """Characters are read at both ends of a text only, without regard to case."""
    edges = "begin" * 40, "at the end" * 25
    one, other = (
        grams_of("", f"{edges[0]}{middle}{edges[1]}", [], [], BUCKETS)[4]
        for middle in ("X" * 500, "y" * 900)
    )
    assert one.tolist() == other.tolist()
    assert grams_of("ABC", "", [], [], BUCKETS)[3].tolist() == (
        grams_of("abc", "", [], [], BUCKETS)[3].tolist()
    )


def test_a_batch_scores_as_its_rows_do(data: TowerData, model: TowerModel) -> None:
    """A row's logit is the same alone and in a batch."""
    tower, some = served(model), list(data.rows[:5])
    together = tower.logits(some, [1, 2, 0, 1, 2])
    alone = [tower.logits([row], [n])[0] for row, n in zip(some, (1, 2, 0, 1, 2), strict=True)]
    assert together == pytest.approx(alone, abs=1e-5)


def test_rows_hold_what_the_tower_reads() -> None:
    """A row is five bags of buckets and the traits."""
    row = tower_row("", "", [], [])
    assert isinstance(row, TowerRow)
    assert [len(part) for part in row.grams] == [0] * PARTS
