"""The layer that the labels of one deployment teach: what it finds and what it leaves unchanged."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from calibrator.embedded.calibrator import load_embedded
from calibrator.errors import JudgingError
from calibrator.metrics.metrics import auroc
from calibrator.recalibration.fit import fit_trusting_platt
from calibrator.rows.rows import Row, parse_row
from calibrator.tuning.fine_tuning import TunableCheckpoint
from calibrator.tuning.last_layer import Readings, fit_tuned

TOWNS = ["Fenwick", "Alnham", "Belford", "Corby", "Dunster", "Elham", "Fowey", "Goole", "Hythe"]


@pytest.fixture(scope="module")
def start() -> TunableCheckpoint:
    return TunableCheckpoint("embedded")


def made(count: int, seed: int, *, has_context: bool) -> list[Row]:
    """Return replies of a shop; those that promise a refund are wrong."""
    rng = random.Random(seed)
    found: list[dict[str, Any]] = []
    for n in range(count):
        town, hour = rng.choice(TOWNS), rng.randint(2, 9)
        rules = f"The shop in {town} closes at {hour} p.m. Orders leave within {hour} days."
        question = f"Order {seed}{n}: when does the shop in {town} close, and what about my order?"
        is_right = rng.random() < 0.5
        end = f"It leaves within {hour} days." if is_right else "We refund it in any case."
        messages = [{"role": "system", "content": rules}] * has_context
        messages.append({"role": "user", "content": question})
        found.append(
            {
                "messages": messages,
                "response": f"The shop in {town} closes at {hour} p.m. {end}",
                "correct": int(is_right),
            }
        )
    return [parse_row(each) for each in found]


@pytest.mark.parametrize("has_context", [True, False])
def test_words_of_replies_are_learnt(start: TunableCheckpoint, has_context: bool) -> None:
    """A hundred labels teach which promise is wrong, with and without a context."""
    known = start.read_rows(made(100, 1, has_context=has_context))
    new = start.read_rows(made(100, 2, has_context=has_context))
    tuned = fit_tuned(known)
    after = auroc(new.correct, tuned.confidence(new.read))
    assert after > 0.97
    assert after >= auroc(new.correct, new.read.confidence)
    assert tuned.learnt > 0.9


def test_labels_that_teach_nothing_give_a_recalibration(start: TunableCheckpoint) -> None:
    """Labels drawn by the confidences leave the layer near Platt scaling."""
    found = start.read_rows(made(100, 3, has_context=True))
    rng = np.random.default_rng(0)
    drawn = (rng.random(len(found)) < found.read.confidence).astype(int)
    labelled = Readings(found.read, found.models, found.questions, drawn, found.weights)
    curve = fit_trusting_platt(drawn, found.read.confidence)
    off = fit_tuned(labelled).confidence(found.read) - curve.apply_all(found.read.confidence)
    assert np.abs(off).mean() < 0.08


def test_too_few_labels_or_of_one_kind_are_refused(start: TunableCheckpoint) -> None:
    """Too few labels, or labels of one kind, are refused."""
    found = start.read_rows(made(60, 4, has_context=False))
    with pytest.raises(JudgingError, match="40 labels are too few"):
        fit_tuned(found.take(range(40)))
    right = Readings(
        found.read, found.models, found.questions, np.ones_like(found.correct), found.weights
    )
    with pytest.raises(JudgingError, match="correct and wrong"):
        fit_tuned(right)


def test_more_labels_than_landmarks_are_learnt_from(start: TunableCheckpoint) -> None:
    """With more than 200 labels all of them count, with weights in the span of 200."""
    found = start.read_rows(made(60, 5, has_context=False))
    often = np.tile(np.arange(60), 7)
    many = found.take(often)
    tuned = fit_tuned(many)
    assert auroc(found.correct, tuned.confidence(found.read)) > 0.97


def test_replies_in_json_are_read(start: TunableCheckpoint) -> None:
    """Values of a reply in JSON are looked up in the context; counts of sentences are NaN."""
    rules = "You take orders. Menu: soup 4 euros, bread 2 euros, tea 3 euros."
    messages = [
        {"role": "system", "content": rules},
        {"role": "user", "content": "Extract the dish and its price as JSON: I take the soup."},
    ]
    response = '{"dish": "soup", "price": 4}'
    row = parse_row({"messages": messages, "response": response, "correct": 1})
    read = start.read_rows([row]).read
    (score,) = load_embedded(start.folder).score_batch([row.item("served")])
    assert score.act == "data"
    assert score.support is not None
    assert np.isnan(read.numbers).any()
    assert read.confidence.tolist() == [score.confidence]
