"""Abilities of models: fitted on unlike benchmarks, added to a score, kept in checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import EMBEDDED, resolve_checkpoint
from calibrator.embedded.calibrator import OFTEN_WRONG, EmbeddedCalibrator
from calibrator.embedded.familiarity import shifted
from calibrator.features.abilities import PREFIX, Abilities
from calibrator.recalibration.curves import sigmoid
from calibrator.rows.rows import Row, parse_row
from calibrator.training.extending import write_extended
from calibrator.training.stages.abilities import AbilityConfig, fit_abilities

ODDS = PREFIX + "odds"
WHOLE = AbilityConfig(share=1.0, ridge=1.0)
ABILITY = {"Able": 1.0, "weak": -1.0, "common": 0.0}
DIFFICULTY = {"easy": -1.5, "hard": 1.5}


def replies(count: int, of: dict[str, tuple[str, ...]]) -> Iterator[Row]:
    """So many of each model to each of its benchmarks, right as a Rasch model has it."""
    rng = np.random.default_rng(3)
    for model, benchmarks in of.items():
        for benchmark in benchmarks:
            right = rng.random(count) < sigmoid(ABILITY[model] - DIFFICULTY[benchmark])
            for n, is_right in enumerate(right.tolist()):
                yield parse_row(
                    {
                        "question_id": f"{benchmark} {n}",
                        "benchmark": benchmark,
                        "question": "How many?",
                        "response": "Some.",
                        "model": model,
                        "correct": int(is_right),
                    }
                )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The able model answered what is hard, the weak one what is easy, a third one both."""
    of = {"Able": ("hard",), "weak": ("easy",), "common": ("easy", "hard")}
    return list(replies(2_000, of))


@pytest.fixture(scope="module")
def shipped() -> EmbeddedCalibrator:
    found = load_scorer(EMBEDDED, "cpu")
    assert isinstance(found, EmbeddedCalibrator)
    return found


def test_a_model_is_judged_by_what_it_was_asked(rows: list[Row]) -> None:
    """Right less often than the weak one, since it was asked what is hard, it is the able one."""
    shares = {name: np.mean([row.correct for row in rows if row.model == name]) for name in ABILITY}
    assert shares["Able"] < shares["weak"]
    odds = fit_abilities(rows, ["able", "common", "weak"], WHOLE)[ODDS][1:]
    middle = 0.0  # of all rows: a quarter each able and weak, half of them common
    np.testing.assert_allclose(odds, np.array([1.0, 0.0, -1.0]) - middle, atol=0.2)


def test_nothing_is_told_of_no_name_and_little_of_a_rare_one(rows: list[Row]) -> None:
    """No name and a name without rows get 0; a few right replies do not make a model able."""
    few = [replace(row, model="rare", correct=1) for row in rows[:3]]
    names = ["able", "common", "nobody", "rare", "weak"]
    odds = dict(
        zip(["", *names], fit_abilities([*rows, *few], names, AbilityConfig())[ODDS], strict=True)
    )
    assert odds[""] == odds["nobody"] == 0
    assert abs(odds["rare"]) < 0.25 * abs(odds["able"])


def test_the_order_of_rows_and_fractions_of_labels(rows: list[Row]) -> None:
    """The same rows in another order teach the same, and two halves of a label as much as one."""
    names = ["able", "common", "weak"]
    found = fit_abilities(rows, names, WHOLE)[ODDS]
    assert fit_abilities(rows[::-1], names, WHOLE)[ODDS] == pytest.approx(found, abs=1e-3)
    halves = [replace(row, correct=0.5) for row in rows]
    assert fit_abilities(halves, names, WHOLE)[ODDS] == pytest.approx(np.zeros(4), abs=1e-3)


def with_odds(shipped: EmbeddedCalibrator, odds: Sequence[float] | None) -> EmbeddedCalibrator:
    """The shipped calibrator with these abilities in place of its own."""
    abilities = Abilities(np.array(odds)) if odds is not None else None
    parts = replace(shipped.parts, abilities=abilities)
    return EmbeddedCalibrator(shipped.config, shipped.tokenizer, shipped.encoder, parts)


def test_a_name_moves_a_number_by_its_odds(shipped: EmbeddedCalibrator) -> None:
    """On top of all other parts, and without a known name nothing, bit for bit."""
    names = shipped.config.source_models
    without = with_odds(shipped, None)
    knowing = with_odds(shipped, [0.0] * len(names) + [0.5])
    item = Item("What is the sum of 12 and 30?", "12 + 30 = 42. The answer is 42.")
    items = [replace(item, source_model=name) for name in (None, "never-heard-of", names[-1])]
    read = without.read_texts(items)
    before, after = (
        each.confidence(each.read_texts(items)).tolist() for each in (without, knowing)
    )
    assert after[:2] == before[:2]
    right = np.array(before[2]) / read.in_order[2]
    assert after[2] == pytest.approx(shifted(right, np.array(0.5)) * read.in_order[2])


def test_a_name_that_is_often_wrong_is_told(shipped: EmbeddedCalibrator) -> None:
    """What a middling model would get for the same reply is reckoned with its own ability."""
    assert shipped.parts.forest is not None
    middling = shipped.parts.forest.middling()
    odds = [0.0] * (len(shipped.config.source_models) + 1)
    odds[middling] = -3.0
    name = shipped.config.source_models[middling - 1]
    item = Item(
        "A train travels 60 miles in 1.5 hours. How fast is it in miles per hour?",
        "60 / 1.5 = 40. It travels 40 miles per hour.",
        source_model=name,
    )
    (as_unsure,) = with_odds(shipped, odds).score_batch([item])
    assert (as_unsure.confidence < 0.5, as_unsure.because) == (True, ())
    odds = [-3.0] * len(odds)
    odds[middling] = 0.0
    other = next(each for each in shipped.config.source_models if each != name)
    (less_sure,) = with_odds(shipped, odds).score_batch([replace(item, source_model=other)])
    assert (less_sure.confidence < 0.5, less_sure.because) == (True, (OFTEN_WRONG,))


def test_a_checkpoint_carries_them(
    rows: list[Row], shipped: EmbeddedCalibrator, tmp_path: Path
) -> None:
    """Written into a checkpoint in place of its own, they are read again, under another name."""
    names = shipped.config.source_models
    arrays = fit_abilities(
        [replace(row, model=names[row.model == "weak"]) for row in rows], names, WHOLE
    )
    facts = {"has_abilities": True}
    folder = write_extended(resolve_checkpoint(EMBEDDED), tmp_path / "made", "made", arrays, facts)
    made = load_scorer(str(folder), "cpu")
    assert isinstance(made, EmbeddedCalibrator)
    assert made.parts.abilities is not None
    assert made.parts.abilities.odds.tolist() == arrays[ODDS].tolist()
    assert made.parts.abilities.odds[1] > made.parts.abilities.odds[2]
    assert made.name != shipped.name
