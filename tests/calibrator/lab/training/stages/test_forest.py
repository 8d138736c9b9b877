"""The forest: numpy serves what scikit-learn grew, and unknown texts get finite numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrator.features.forest import NO_NAME, PREFIX, Forest, Topics
from calibrator.features.ngrams import PARTS
from calibrator.features.tower import TowerRow, tower_row
from calibrator.lab.training.stages.forest import (
    ForestConfig,
    ForestData,
    abilities,
    fit_forest,
    fit_topics,
)
from calibrator.recalibration.curves import sigmoid

VECTORS = np.random.default_rng(9).normal(size=(30_522, 8)).astype(np.float32)

CONFIG = ForestConfig(weight=1.0, trees=30, leaf_rows=5, topics=(6, 6, 4, 4, 4), grams=300)
SEED = 5


def rows(count: int) -> ForestData:
    """Return rows of two subjects; right answers are mostly long.

    Model 2 is right half as often as model 1, and model 3 is rare.
    """
    rng = np.random.default_rng(1)
    made, names, targets = [], [], []
    for n in range(count):
        name = 3 if n % 50 == 0 else 1 + n % 2
        is_right = rng.random() < (0.8, 0.4, 0.4)[name - 1]
        subject = list(range(100, 110)) if n % 3 else list(range(200, 210))
        is_long = is_right == (rng.random() < 0.8)
        made.append(tower_row(f"What is {n}?", "so " * (30 if is_long else 3), subject, [7, n]))
        names.append(name)
        targets.append(float(is_right))
    at = np.arange(count)
    return ForestData(made, np.array(names), at % 3, at // 2, np.array(targets, dtype=np.float32))


@pytest.fixture(scope="module")
def data() -> ForestData:
    return rows(600)


@pytest.fixture(scope="module")
def state(data: ForestData) -> dict[str, Any]:
    return fit_forest(data, 4, VECTORS, CONFIG, SEED)


@pytest.fixture(scope="module")
def forest(state: dict[str, Any]) -> Forest:
    found = Forest.from_state({f"{PREFIX}{name}": array for name, array in state.items()})
    assert found is not None
    return found


def test_half_the_weight_is_half_the_log_odds(data: ForestData, forest: Forest) -> None:
    """Half the weight gives half the log-odds."""
    half = Forest(fit_forest(data, 4, VECTORS, replace(CONFIG, weight=0.5), SEED))
    read_whole, read_half = (each.read(data.rows, data.names) for each in (forest, half))
    assert read_whole.std() > 0.5, "the trees tell rows apart"
    assert read_half == pytest.approx(read_whole / 2, abs=1e-4)


def test_it_learns_from_traits_and_names(data: ForestData, forest: Forest) -> None:
    """Long answers and the better model get more, an unknown model a number between."""
    right, wrong = ([tower_row("What is 7?", "so " * n, [100, 101], [7, 7])] for n in (30, 3))
    assert forest.read(right, [0])[0] > forest.read(wrong, [0])[0] + 1
    good, poor, unknown = (forest.read(data.rows, [name] * 600).mean() for name in (1, 2, 0))
    assert good > unknown > poor


def test_an_ability_is_against_the_same_benchmarks_and_drawn_to_zero(data: ForestData) -> None:
    """An ability is the mean above the model's benchmarks, drawn to zero for few rows."""
    found = abilities(data, 5)
    usual = np.array([data.targets[data.benchmarks == b].mean() for b in data.benchmarks])
    own = (data.targets - usual)[data.names == 1]
    assert found[1] == pytest.approx(own.sum() / (len(own) + 20), abs=1e-3)
    assert found[1] > 0.1 > 0 > found[2]
    rare = (data.targets - usual)[data.names == 3].mean()
    assert abs(found[3]) < 0.5 * abs(rare)
    assert (found[0], found[4]) == (NO_NAME, 0)


def test_topics_separate_subjects_without_labels(data: ForestData) -> None:
    """Topics of questions on one subject are close, without labels."""
    topics = Topics.from_state(fit_topics(data.rows, CONFIG, np.random.default_rng(1)))
    found = np.stack([topics.topics_of(row.grams)[:6] for row in data.rows])
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    is_other = np.arange(600) % 3 == 0
    alike = found @ found.T
    assert alike[is_other][:, is_other].min() > 0.9 > 0.1 > alike[is_other][:, ~is_other].max()


def test_a_row_of_unknown_words_has_no_topic(data: ForestData, forest: Forest) -> None:
    """A row of unknown words has no topic and finite log-odds."""
    none = np.zeros(0, np.int32)
    strange = TowerRow((none,) * PARTS, data.rows[0].traits, none)
    assert not forest.topics.topics_of(strange.grams).any()
    assert np.isfinite(forest.read([strange], [0])).all()


def test_the_same_seed_gives_the_same_forest(data: ForestData, state: dict[str, Any]) -> None:
    """The same seed gives the same forest, another seed another one."""
    again, other = (fit_forest(data, 4, VECTORS, CONFIG, seed) for seed in (SEED, SEED + 1))
    assert all(np.array_equal(again[name], state[name]) for name in state)
    assert not np.array_equal(other["threshold"], state["threshold"])


def test_a_target_between_the_labels_counts_as_both(data: ForestData) -> None:
    """Rows with a target of 0.3 give a forest that says 0.3."""
    targets = np.full(600, 0.3, dtype=np.float32)
    found = Forest(fit_forest(replace(data, targets=targets), 4, VECTORS, CONFIG, SEED))
    odds = found.read(data.rows, [0] * 600)
    assert sigmoid(odds) == pytest.approx(0.3, abs=0.01)


def test_few_rows_make_a_small_forest() -> None:
    """Four rows make a forest whose missing directions are zeros."""
    few = rows(4)
    found = Forest(fit_forest(few, 4, VECTORS, CONFIG, SEED))
    assert found.topics.width == sum(CONFIG.topics)
    assert np.isfinite(found.read(few.rows, few.names)).all()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("feature", lambda a: a + 10_000, "trees of another shape"),
        ("threshold", lambda a: a[:5], "trees of another shape"),
        ("topics.1.rarity", lambda a: a[:5], "topics whose arrays have"),
    ],
)
def test_a_forest_of_another_shape_is_refused(
    state: dict[str, Any], name: str, change: Any, message: str
) -> None:
    """Arrays of another shape are refused at load."""
    with pytest.raises(ValueError, match=message):
        Forest(state | {name: change(state[name])})


def test_a_forest_with_the_difficulty_beside_it_is_refused(state: dict[str, Any]) -> None:
    """A forest of version 4 with the difficulty beside it is refused."""
    with pytest.raises(ValueError, match="train anew"):
        Forest(state | {"beside": np.array([0.75], np.float32)})


def test_topics_of_some_parts_alone_are_refused(state: dict[str, Any]) -> None:
    """Topics without all parts are refused."""
    kept = {name: array for name, array in state.items() if not name.startswith("topics.4")}
    with pytest.raises(ValueError, match="topics of 4 parts, not of 5"):
        Forest(kept)


@settings(max_examples=40)
@given(
    st.text(max_size=80),
    st.text(max_size=80),
    st.lists(st.integers(0, 30_521), max_size=700),
    st.integers(0, 3),
)
def test_any_text_has_finite_log_odds(
    forest: Forest, question: str, answer: str, pieces: list[int], name: int
) -> None:
    """Any text has finite log-odds, the same alone and in a batch."""
    row = tower_row(question, answer, pieces[:9], pieces)
    alone, together = forest.read([row], [name]), forest.read([row, row], [name, 0])
    assert np.isfinite(together).all()
    assert alone[0] == pytest.approx(together[0], abs=1e-5)
