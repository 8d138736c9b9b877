"""The embedded calibrator: a score depends on its row alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrator import Item, ToolUse
from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.recalibration.curves import Platt
from tests.builders.tiny_checkpoint import save_tiny

TEXTS = ["", "4", "Four, because 2 + 2 = 4.", "größer ✓ 🙂", "word " * 300, "x" * 5_000]
ITEMS = [Item(f"What is {i} + {i}? " * (i % 5 + 1), TEXTS[i % len(TEXTS)]) for i in range(24)]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedCalibrator:
    return load_embedded(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_a_score_does_not_depend_on_its_batch(scorer: EmbeddedCalibrator) -> None:
    """A score is the same alone, among others and in another order."""
    together = scorer.score_batch(ITEMS)
    alone = [scorer.score_batch([item])[0] for item in ITEMS]
    backwards = scorer.score_batch(ITEMS[::-1])[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-5)
        assert a.score == pytest.approx(c.score, abs=1e-5)
        assert a.is_truncated == b.is_truncated == c.is_truncated


def test_different_texts_have_different_scores(scorer: EmbeddedCalibrator) -> None:
    """Question and answer both change the score."""
    scores = {
        scorer.score_batch([Item(question, answer)])[0].score
        for question in ("2 + 2?", "capital of France?")
        for answer in ("4", "Paris")
    }
    assert len(scores) == 4
    assert max(scores) - min(scores) > 1e-3


def test_the_score_is_the_sigmoid_of_the_difference(scorer: EmbeddedCalibrator) -> None:
    """The score is sigmoid(z_ii - z_i), the softmax over both logits (B09)."""
    odds = scorer.read_texts(ITEMS).odds
    expected = (1 / (1 + np.exp(-odds))).tolist()
    found = [score.score for score in scorer.score_batch(ITEMS)]
    assert found == pytest.approx(expected, abs=1e-6)
    assert all(0 < score < 1 for score in found)


def test_the_confidence_is_the_recalibrated_score(scorer: EmbeddedCalibrator) -> None:
    """The confidence is the score after the checkpoint's curve."""
    for found in scorer.score_batch(ITEMS):
        assert found.confidence == pytest.approx(Platt(0.8, 0.1).apply(found.score), abs=1e-12)


def test_without_recalibration_the_confidence_is_the_score(tmp_path: Path) -> None:
    """Without a recalibration the confidence is the score."""
    raw = load_embedded(save_tiny(tmp_path, recalibration=None))
    assert all(found.confidence == found.score for found in raw.score_batch(ITEMS))


@pytest.mark.parametrize(
    ("model", "benchmark"),
    [("unheard-of", None), (None, "unheard-of"), ("unheard-of", "unheard-of"), ("", "")],
)
def test_unknown_tags_are_no_tags(
    scorer: EmbeddedCalibrator, model: str | None, benchmark: str | None
) -> None:
    """An unknown model or benchmark changes nothing (B03)."""
    plain = Item("2 + 2?", "4")
    tagged = Item("2 + 2?", "4", model, benchmark)
    assert scorer.score_batch([tagged]) == scorer.score_batch([plain])


def test_a_known_model_is_read(scorer: EmbeddedCalibrator) -> None:
    """A known model changes the score, in any case of letters (B07)."""
    plain, named, upper = (
        scorer.score_batch([Item("2 + 2?", "4", model)])
        for model in (None, "known-model", "Known-Model")
    )
    assert named != plain
    assert named == upper


def test_a_long_text_is_marked_as_truncated(scorer: EmbeddedCalibrator) -> None:
    """A text that is too long is read in part and marked as truncated."""
    long = Item("question " * 2_000, "answer " * 2_000, "known-model", "gpqa")
    assert scorer.score_batch([long])[0].is_truncated
    assert not scorer.score_batch([Item("2 + 2?", "4")])[0].is_truncated


@pytest.mark.parametrize("padding", [" ", "\n", "x"])
def test_text_that_was_never_read_is_reported(scorer: EmbeddedCalibrator, padding: str) -> None:
    """A text whose middle was never tokenized is marked as truncated."""
    hidden = padding * 5_000 + " the real answer " + padding * 5_000
    for item in (Item("q", hidden), Item(hidden, "a")):
        assert scorer.score_batch([item])[0].is_truncated


def test_half_a_surrogate_pair_is_scored(scorer: EmbeddedCalibrator) -> None:
    """Half a surrogate pair is scored."""
    (found,) = scorer.score_batch([Item("\ud83d?", "\udc00")])
    assert 0 < found.score < 1


def test_a_score_is_the_same_each_time(scorer: EmbeddedCalibrator) -> None:
    """The same item has the same score to the last bit."""
    assert scorer.score_batch(ITEMS[:4]) == scorer.score_batch(ITEMS[:4])


CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "kinds",
    [("text", "text", "call"), ("call",), ("known", "text"), ("known",), ()],
    ids=lambda kinds: "-".join(kinds) or "nothing",
)
def test_others_are_let_run_once_a_batch(kinds: tuple[str, ...]) -> None:
    """`meanwhile` is called once for any batch and changes no score."""
    shipped = load_embedded(CHECKPOINTS / EMBEDDED)
    made = {
        "text": Item("What is 2 + 2?", "4"),
        "call": Item("Look.", "look()", tool_use=ToolUse([], [], CALL)),
        "known": Item("What is 2 + 2?", "4", alone=0.5),
    }
    called: list[bool] = []
    found = shipped.score_batch([made[kind] for kind in kinds], lambda: called.append(True))
    assert called == [True]
    assert found == shipped.score_batch([made[kind] for kind in kinds])
