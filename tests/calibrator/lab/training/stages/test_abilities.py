"""Abilities of models: fitted on different benchmarks, added to a score, saved in checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import EMBEDDED, resolve_checkpoint
from calibrator.embedded.calibrator import OFTEN_WRONG, EmbeddedCalibrator
from calibrator.embedded.parts import (
    ABILITIES_PREFIX,
    NAME_LIMIT,
    STATED,
    Abilities,
    shift_confidence,
    stated_in,
)
from calibrator.lab.training.stages.abilities import AbilityConfig, fit_abilities
from calibrator.lab.training.write_checkpoint import write_extended
from calibrator.recalibration.curves import sigmoid
from calibrator.rows.rows import Row, parse_row

ODDS, STATED_ODDS = ABILITIES_PREFIX + "odds", ABILITIES_PREFIX + "stated"
WHOLE = AbilityConfig(share=1.0, ridge=1.0)
ABILITY = {"Able": 1.0, "weak": -1.0, "common": 0.0}
DIFFICULTY = {"easy": -1.5, "hard": 1.5}


def replies(count: int, of: dict[str, tuple[str, ...]]) -> Iterator[Row]:
    """Yield `count` replies of each model to each of its benchmarks, right by a Rasch model."""
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
    """Return rows: the able model answered hard questions, the weak one easy ones, a third both."""
    of = {"Able": ("hard",), "weak": ("easy",), "common": ("easy", "hard")}
    return list(replies(2_000, of))


@pytest.fixture(scope="module")
def shipped() -> EmbeddedCalibrator:
    found = load_scorer(EMBEDDED, "cpu")
    assert isinstance(found, EmbeddedCalibrator)
    return found


def test_harder_questions_raise_ability(rows: list[Row]) -> None:
    """A model that answers hard questions is abler, although it is right less often."""
    shares = {name: np.mean([row.correct for row in rows if row.model == name]) for name in ABILITY}
    assert shares["Able"] < shares["weak"]
    odds = fit_abilities(rows, ["able", "common", "weak"], WHOLE)[ODDS][1:]
    middle = 0.0  # the mean of all rows: a quarter each able and weak, half of them common
    np.testing.assert_allclose(odds, np.array([1.0, 0.0, -1.0]) - middle, atol=0.2)


def test_unknown_and_rare_names_have_little_ability(rows: list[Row]) -> None:
    """An unknown name has an ability of 0, and a rare one nearly so."""
    few = [replace(row, model="rare", correct=1) for row in rows[:3]]
    names = ["able", "common", "nobody", "rare", "weak"]
    odds = dict(
        zip(["", *names], fit_abilities([*rows, *few], names, AbilityConfig())[ODDS], strict=True)
    )
    assert odds[""] == odds["nobody"] == 0
    assert abs(odds["rare"]) < 0.25 * abs(odds["able"])


def test_the_order_of_rows_and_fractions_of_labels(rows: list[Row]) -> None:
    """The order of rows changes nothing, and two halves of a label count as one."""
    names = ["able", "common", "weak"]
    found = fit_abilities(rows, names, WHOLE)[ODDS]
    assert fit_abilities(rows[::-1], names, WHOLE)[ODDS] == pytest.approx(found, abs=1e-3)
    halves = [replace(row, correct=0.5) for row in rows]
    assert fit_abilities(halves, names, WHOLE)[ODDS] == pytest.approx(np.zeros(4), abs=1e-3)


def with_odds(shipped: EmbeddedCalibrator, odds: Sequence[float] | None) -> EmbeddedCalibrator:
    """Return the shipped calibrator with these abilities, or none, instead of its own."""
    abilities = Abilities(np.array(odds)) if odds is not None else None
    parts = replace(shipped.parts, abilities=abilities)
    return EmbeddedCalibrator(shipped.config, shipped.tokenizer, parts)


def test_a_name_moves_a_number_by_its_odds(shipped: EmbeddedCalibrator) -> None:
    """A known name moves a number by its odds, an unknown one by nothing."""
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
    right = before[2] / read.in_order[2]
    assert after[2] == pytest.approx(shift_confidence(right, 0.5) * read.in_order[2])


def test_a_name_that_is_often_wrong_is_a_reason(shipped: EmbeddedCalibrator) -> None:
    """A name that is often wrong is a reason, compared with a middling model."""
    assert shipped.parts.forest is not None
    middling = shipped.parts.forest.median_name
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
    """Abilities are written into a checkpoint and read, under another version."""
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


@pytest.mark.parametrize(
    ("name", "billions", "version"),
    [
        ("llama-3.1-8b-instruct", 8, 3.1),
        ("meta-llama/Llama-3.1-8B-Instruct", 8, 3.1),
        ("llama3:70b", 70, 3),
        ("Qwen2.5-0.5B-Instruct-fp8", 0.5, 2.5),
        ("qwen3-30b-a3b", 30, 3),
        ("mixtral-8x7b-instruct-v0.1", 56, 0.1),
        ("gemma-3n-e4b-it", 4, 3),
        ("smollm2-360m", 0.36, 2),
        ("kimi-k2-1t", 1_000, 2),
        ("yi-34b-200k", 34, None),
        ("some-7b-fp8", 7, None),
        ("some-7b-q4_k_m", 7, None),
        ("gpt-4o-mini-2024-07-18", None, 4),
        ("gpt-4.1", None, 4.1),
        ("o3", None, 3),
        ("claude-3-5-sonnet-20240620", None, 3),
        ("deepseek-v3", None, 3),
        ("phi-3-mini-128k-instruct", None, 3),
    ],
)
def test_what_a_name_states(name: str, billions: float | None, version: float | None) -> None:
    """Parameters and version are read from a name, but no contexts, dates or formats."""
    stated = stated_in(name)
    assert stated is not None
    assert stated[0] == (billions is None)
    assert stated[3] == (version is None)
    if billions is not None:
        assert stated[1] == pytest.approx(np.log2(billions) - 3.5)
    assert stated[2] == pytest.approx((version or 0) / 4)


@pytest.mark.parametrize(
    "name", ["", "demo", "my-model", "mistral-large-2407", "text-davinci-003", "8/", "0" * 9_999]
)
def test_an_operators_own_name_states_nothing(name: str) -> None:
    """A name without parameters or version adds nothing."""
    assert stated_in(name) is None
    assert Abilities(np.zeros(1), np.ones(STATED + 1)).of_unknown(name) == 0


def stating_rows(*, is_larger_better: bool = True) -> list[Row]:
    """Return replies of models whose names state their size.

    The size determines how often they are right.
    """
    rng, rows = np.random.default_rng(5), []
    for billions in (1, 2, 4, 8, 16, 32, 64, 128):
        share = sigmoid((np.log2(billions) - 3.5) * (0.5 if is_larger_better else -0.5))
        for n, is_right in enumerate((rng.random(300) < share).tolist()):
            fields = {"question_id": str(n), "benchmark": "sums", "question": "?", "response": "."}
            rows.append(
                parse_row({**fields, "model": f"own-{billions}b", "correct": int(is_right)})
            )
    return rows


@pytest.mark.parametrize("is_larger_better", [True, False])
def test_what_names_state_is_worth_what_known_models_show(is_larger_better: bool) -> None:
    """An unknown model is rated like known ones of its size."""
    arrays = fit_abilities(stating_rows(is_larger_better=is_larger_better), [], AbilityConfig())
    abilities = Abilities(arrays[ODDS], arrays[STATED_ODDS])
    small, large = (abilities.of_unknown(f"other/New-{size}") for size in ("3B", "70B-chat"))
    assert abs(large - small) > 1
    assert (large > small) == is_larger_better
    assert abilities.of_unknown("own") == 0
    assert abs(abilities.of_unknown("new-1000t")) <= NAME_LIMIT


def test_names_that_state_nothing_teach_nothing(rows: list[Row]) -> None:
    """Names that state nothing, or models of a few replies, teach nothing."""
    few = [row for row in stating_rows() if int(row.question_id) < 20]
    for replies in (rows, few):
        assert fit_abilities(replies, [], AbilityConfig())[STATED_ODDS].tolist() == [0] * (
            STATED + 1
        )


def test_a_name_that_is_not_known_moves_a_number_by_what_it_states(
    shipped: EmbeddedCalibrator,
) -> None:
    """An unknown name moves a number by its stated size and version."""
    assert shipped.parts.abilities is not None
    odds = shipped.parts.abilities.odds
    without, knowing = (
        EmbeddedCalibrator(
            shipped.config,
            shipped.tokenizer,
            replace(shipped.parts, abilities=Abilities(odds, stated), evidence=None),
        )
        for stated in (None, np.array([0.0, 0.1, 0.0, 0.0, 0.2]))
    )
    item = Item("What is the sum of 12 and 30?", "12 + 30 = 42. The answer is 42.")
    named = (None, "never-heard-of", shipped.config.source_models[0], "never-heard-of-64b")
    items = [replace(item, source_model=name) for name in named]
    before, after = ([x.confidence for x in each.score_batch(items)] for each in (without, knowing))
    assert after[:3] == before[:3]
    assert before[3] == before[1]
    in_order = knowing.read_texts(items).in_order[3]
    right = before[3] / in_order
    assert after[3] == pytest.approx(shift_confidence(right, 0.1 * 2.5 + 0.2) * in_order)


def test_the_shipped_one_judges_unknown_models_by_their_size(shipped: EmbeddedCalibrator) -> None:
    """The shipped checkpoint rates an unknown large model above a small one."""
    item = Item(
        "A train goes 60 miles in 1.5 hours. How fast is it?", "60 / 1.5 = 40 miles an hour."
    )
    names = ("nobodys-9-1b", "nobodys-9-300b", "nobodys")
    small, large, bare = (
        each.confidence
        for each in shipped.score_batch([replace(item, source_model=name) for name in names])
    )
    assert small < bare < large


def test_a_checkpoint_of_before_adds_nothing() -> None:
    """An old checkpoint has no odds for stated sizes, and arrays of another shape are refused."""
    before = Abilities.from_state({ODDS: np.zeros(3, np.float16)})
    assert before is not None
    assert before.of_unknown("llama-9-700b") == 0
    with pytest.raises(ValueError, match="another shape"):
        Abilities.from_state({ODDS: np.zeros(3), STATED_ODDS: np.zeros(2)})


def test_a_known_model_is_known_under_whoevers_name(shipped: EmbeddedCalibrator) -> None:
    """A known model is recognised behind a provider's name and in any case."""
    name = shipped.config.source_models[0]
    item = Item("What is the sum of 12 and 30?", "12 + 30 = 42. The answer is 42.")
    spelled = (name, f"Somebody/{name.upper()}", f"openrouter/somebody/{name}")
    items = [replace(item, source_model=each) for each in (*spelled, f"{name}/another")]
    plain, *others, another = (each.confidence for each in shipped.score_batch(items))
    assert others == [plain, plain]
    assert another != plain
    assert shipped.ability(spelled[1]) == shipped.ability(name) != shipped.ability("another")
