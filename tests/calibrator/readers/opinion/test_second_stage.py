"""The second stage: other replies move a number only if they are comparable and trusted."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrator.errors import TrainingError
from calibrator.features.difficulty import meanings
from calibrator.features.forest import NO_NAME
from calibrator.lab.training.fits.opinion import (
    OpinionConfig,
    UnseenReplies,
    chosen_rows,
    fit_second_stage,
)
from calibrator.readers.opinion import SecondStage, compare, final_answer
from calibrator.readers.opinion.evidence import (
    EVIDENCE,
    PLAIN,
    Opinion,
    Opinions,
    evidence,
    plain_evidence,
)
from calibrator.readers.opinion.second_stage import LINEAR, PREFIX, Linear, Trust
from calibrator.rows.rows import Row, parse_row

QUESTIONS, MODELS = 120, ("ann", "bob", "cleo", "dan")


def rows(seed: int = 0) -> list[Row]:
    """Return sums and riddles with the answers of four models.

    Each model gets two of three sums right, the others wrong in its own way. All get the riddles
    wrong in the same way, except one.
    """
    rng, found = random.Random(seed), []
    for number in range(QUESTIONS):
        for at, model in enumerate(MODELS):
            is_right = rng.random() < 0.66
            answer = 7 * number if is_right else 7 * number + rng.randint(1, 99)
            found.append(
                row(f"sum {number}: how many are 7 times {number}?", answer, model, is_right)
            )
            is_lucky = number % 4 == at
            answer = 1_000 + number if is_lucky else 3
            riddle = f"riddle {number}: how many heads has the hydra of Lerna now?"
            found.append(row(riddle, answer, model, is_lucky))
    return found


def row(question: str, answer: int, model: str, is_right: bool) -> Row:
    raw = {"question": question, "response": f"The answer is {answer}.", "model": model}
    return parse_row(raw | {"correct": int(is_right), "benchmark": question.split()[0]})


def unseen(replies: list[Row]) -> UnseenReplies:
    """Return unseen replies with odds of 0; riddles and sums differ in their meaning."""
    means = np.zeros((len(replies), 2), np.float32)
    for at, each in enumerate(replies):
        means[at, int(each.question.startswith("riddle"))] = 1
    return UnseenReplies(replies, np.zeros((2, len(replies))), means)


SMALL = OpinionConfig(trees=40, leaves=8, leaf_rows=10)


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return fit_second_stage(unseen(rows()), dict.fromkeys(MODELS, 0.0), SMALL, 1)


@pytest.fixture(scope="module")
def stage(arrays: dict[str, Any]) -> SecondStage:
    found = SecondStage.from_state(arrays)
    assert found is not None
    return found


def reply(question: str, answer: str, *others: str, odds: float = 0.0) -> Opinions:
    def told(text: str) -> Opinion:
        return Opinion(final_answer(question, text), 0.0, len(text), is_same_model=False)

    opinions = [told(other) for other in others]
    return Opinions(odds, 0.0, final_answer(question, answer), len(answer), opinions)


SUM, RIDDLE = np.array([[1.0, 0.0]], np.float32), np.array([[0.0, 1.0]], np.float32)
HOW_MANY = "How many are 7 times 9?"


def test_agreement_raises_and_difference_lowers(stage: SecondStage) -> None:
    """Agreement raises the number and difference lowers it, more of them more."""
    agree = reply(HOW_MANY, "The answer is 63.", "The answer is 63.")
    both = reply(HOW_MANY, "The answer is 63.", "The answer is 63.", "63")
    differ = reply(HOW_MANY, "The answer is 63.", "The answer is 64.")
    odds = [float(stage.odds([each], SUM)[0]) for each in (agree, both, differ)]
    assert odds[0] > 0.5
    assert odds[1] >= odds[0] - 0.2
    assert odds[2] < -0.2


@pytest.mark.parametrize("odds", [-9.0, -2.0, 0.0, 2.0, 9.0])
def test_no_difference_raises_and_no_agreement_lowers(stage: SecondStage, odds: float) -> None:
    """Difference never raises the number and agreement never lowers it, at any odds."""
    for answer, others in (("63", ("63",)), ("63", ("63", "63")), ("It is 63.", ("is 63",))):
        found = stage.odds([reply(HOW_MANY, answer, *others, odds=odds)], SUM)
        assert found[0] >= odds
    for others in (("64",), ("64", "65"), ("64", "no idea")):
        assert stage.odds([reply(HOW_MANY, "63", *others, odds=odds)], SUM)[0] <= odds


def test_others_may_come_in_any_order(stage: SecondStage) -> None:
    """The order of the others changes nothing."""
    one = reply(HOW_MANY, "63", "The answer is 63.", "The answer is 64.", "65", "no idea at all")
    other = replace(one, others=one.others[::-1])
    assert stage.odds([one], SUM) == stage.odds([other], SUM)


def test_where_agreement_misled_others_change_nothing(stage: SecondStage) -> None:
    """Near questions where agreement misled, as for riddles, others change nothing."""
    agree = reply(HOW_MANY, "The answer is 63.", "The answer is 63.")
    assert stage.odds([agree], RIDDLE)[0] == 0.0
    assert stage.odds([agree], SUM)[0] > 0.5


@pytest.mark.parametrize(("own", "other"), [("", "63"), ("63", ""), ("63", "word " * 200)])
def test_what_cannot_be_compared_changes_nothing(stage: SecondStage, own: str, other: str) -> None:
    """An empty reply or an essay has no final answer and changes nothing."""
    assert stage.odds([reply(HOW_MANY, own, other, odds=1.25)], SUM)[0] == 1.25


def test_a_surer_reply_stays_surer(stage: SecondStage) -> None:
    """With the same others the new log-odds never fall as the own ones rise."""
    ladder = [reply(HOW_MANY, "63", "64", odds=odds) for odds in np.linspace(-4, 4, 33)]
    found = stage.odds(ladder, np.repeat(SUM, len(ladder), axis=0))
    assert (np.diff(found) >= -1e-9).all()


def test_the_same_rows_give_the_same_arrays(arrays: dict[str, Any]) -> None:
    """The same rows give the same arrays and version."""
    again = fit_second_stage(unseen(rows()), dict.fromkeys(MODELS, 0.0), SMALL, 1)
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    other = fit_second_stage(unseen(rows(1)), dict.fromkeys(MODELS, 0.0), SMALL, 1)
    versions = [SecondStage.from_state(each) for each in (arrays, again, other)]
    assert len({each.version for each in versions if each is not None}) == 2


def test_trees_and_a_linear_model_are_believed_alike(arrays: dict[str, Any]) -> None:
    """The new log-odds are the mean of trees and linear model; trees alone still work."""
    before = {name: array for name, array in arrays.items() if LINEAR not in name}
    whole, trees = SecondStage.from_state(arrays), SecondStage.from_state(before)
    assert whole is not None
    assert trees is not None
    assert trees.version != whole.version
    assert trees.linear is None
    assert whole.linear is not None
    opinions = reply(HOW_MANY, "63", "63", "64")  # neither bound applies
    linear = whole.linear.read(np.array([plain_evidence(opinions)]))[0]
    assert linear != 0.0
    both = trees.odds([opinions], SUM)[0], whole.trust.trust_in(SUM)[0] * linear
    assert whole.odds([opinions], SUM)[0] == pytest.approx(sum(both) / 2)
    with pytest.raises(ValueError, match="shape"):
        Linear(np.zeros(PLAIN + 1), np.zeros(1))


def test_the_linear_model_never_falls_with_the_own_number() -> None:
    """The linear model never falls with the own number, even if the surer replies are wrong."""
    replies = unseen(rows())
    wrong = np.array([2.0 - 4.0 * (each.correct or 0) for each in replies.rows])
    perverse = replace(replies, odds=np.stack([wrong, wrong]))
    found = fit_second_stage(perverse, dict.fromkeys(MODELS, 0.0), SMALL, 1)
    assert found[f"{PREFIX}{LINEAR}weights"][0] == 0.0


def test_rows_of_one_model_teach_nothing() -> None:
    """Rows of one model teach nothing."""
    alone = [each for each in rows() if each.model == "ann"]
    with pytest.raises(TrainingError, match="two models"):
        fit_second_stage(unseen(alone), {}, SMALL, 1)
    assert chosen_rows(alone, SMALL, 0) == []


def test_small_benchmarks_are_taken_whole() -> None:
    """Small benchmarks are taken whole: questions alternate until there are enough rows."""
    config = replace(SMALL, rows=100, rows_at_a_time=2)
    found = chosen_rows(rows(), config, 0)
    assert len(found) == 200
    assert len({each.question_id for each in found}) == 100


def test_evidence_is_finite_for_any_others() -> None:
    """Evidence is finite for other kinds, unknown models and too many others."""
    others = [
        Opinion(final_answer("q", text), NO_NAME, len(text), is_same_model=True)
        for text in ("", "yes", "12", "[f(a=1)]", "word " * 400) * 4
    ]
    for text in ("", "yes", "12", "\\boxed{x}", "[f(a=1)]"):
        found = evidence(Opinions(50.0, NO_NAME, final_answer("q", text), 10**7, others))
        assert len(found) == EVIDENCE
        assert np.isfinite(found).all()
        plain = plain_evidence(Opinions(50.0, NO_NAME, final_answer("q", text), 10**7, others))
        assert len(plain) == PLAIN
        assert np.isfinite(plain).all()
        assert compare(final_answer("q", text), others[0].answer).outcome == "untold"


def test_trust_far_from_all_questions_is_the_usual() -> None:
    """A question without a word gets the mean trust."""
    trust = Trust(np.array([[127, 0]], np.int8), np.array([0.1]), np.array([5.0]))
    nothing = meanings([np.array([], np.int32)], np.zeros((3, 2), np.int8), np.zeros(3))
    assert trust.trust_in(nothing)[0] == 1.0
    with pytest.raises(ValueError, match="shape"):
        Trust(np.zeros((2, 2), np.int8), np.zeros(3), np.zeros(3))
