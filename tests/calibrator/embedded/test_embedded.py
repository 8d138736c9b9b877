"""The embedded calibrator's model: one pass, two logits, a score that depends on its row alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from calibrator import Item, ToolUse
from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator, load_embedded
from calibrator.recalibration.curves import Platt
from tests.builders.tiny_checkpoint import CONFIG, save_tiny

TEXTS = ["", "4", "Four, because 2 + 2 = 4.", "größer ✓ 🙂", "word " * 300, "x" * 5_000]
ITEMS = [Item(f"What is {i} + {i}? " * (i % 5 + 1), TEXTS[i % len(TEXTS)]) for i in range(24)]


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedCalibrator:
    return load_embedded(save_tiny(tmp_path_factory.mktemp("tiny")), "cpu")


def test_a_score_does_not_depend_on_its_batch(scorer: EmbeddedCalibrator) -> None:
    """Alone, among others or in another order: padding and neighbours change nothing (fp32)."""
    together = scorer.score_batch(ITEMS)
    alone = [scorer.score_batch([item])[0] for item in ITEMS]
    backwards = scorer.score_batch(ITEMS[::-1])[::-1]
    for a, b, c in zip(together, alone, backwards, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-5)
        assert a.score == pytest.approx(c.score, abs=1e-5)
        assert a.is_truncated == b.is_truncated == c.is_truncated


def test_different_texts_have_different_scores(scorer: EmbeddedCalibrator) -> None:
    """Question and answer both matter, so the equalities here are not those of a constant."""
    scores = {
        scorer.score_batch([Item(question, answer)])[0].score
        for question in ("2 + 2?", "capital of France?")
        for answer in ("4", "Paris")
    }
    assert len(scores) == 4
    assert max(scores) - min(scores) > 1e-3


def test_the_score_is_the_sigmoid_of_the_difference(scorer: EmbeddedCalibrator) -> None:
    """B09: softmax over the logits of `i` and `ii` is sigmoid(z_ii - z_i)."""
    _, logits = scorer.encoder(scorer.token_rows(ITEMS))
    assert logits.shape == (len(ITEMS), 2)
    exponentials = np.exp(logits)
    expected = (exponentials[:, 1] / exponentials.sum(axis=1)).tolist()
    found = [score.score for score in scorer.score_batch(ITEMS)]
    assert found == pytest.approx(expected, abs=1e-6)
    assert all(0 < score < 1 for score in found)


def test_the_confidence_is_the_recalibrated_score(scorer: EmbeddedCalibrator) -> None:
    """What policies see went through the checkpoint's own curve."""
    for found in scorer.score_batch(ITEMS):
        assert found.confidence == pytest.approx(Platt(0.8, 0.1).apply(found.score), abs=1e-12)


def test_without_recalibration_the_confidence_is_the_score(tmp_path: Path) -> None:
    """A checkpoint without a curve gives its raw score."""
    raw = load_embedded(save_tiny(tmp_path, recalibration=None), "cpu")
    assert all(found.confidence == found.score for found in raw.score_batch(ITEMS))


@pytest.mark.parametrize(
    ("model", "benchmark"),
    [("unheard-of", None), (None, "unheard-of"), ("unheard-of", "unheard-of"), ("", "")],
)
def test_unknown_tags_are_no_tags(
    scorer: EmbeddedCalibrator, model: str | None, benchmark: str | None
) -> None:
    """B03: a model or benchmark that the checkpoint was not trained on is simply omitted."""
    plain = Item("2 + 2?", "4")
    tagged = Item("2 + 2?", "4", model, benchmark)
    assert scorer.token_rows([tagged]) == scorer.token_rows([plain])
    assert scorer.score_batch([tagged]) == scorer.score_batch([plain])


@pytest.mark.parametrize(
    ("model", "benchmark"), [("known-model", None), ("Known-Model", None), (None, "gpqa")]
)
def test_known_tags_are_read(
    scorer: EmbeddedCalibrator, model: str | None, benchmark: str | None
) -> None:
    """B07: tags of the training list stand in the prompt; models in any case of letters."""
    plain, tagged = Item("2 + 2?", "4"), Item("2 + 2?", "4", model, benchmark)
    assert scorer.score_batch([tagged]) != scorer.score_batch([plain])
    named = Item("2 + 2?", "4", model.lower() if model else None, benchmark)
    assert scorer.score_batch([tagged]) == scorer.score_batch([named])


def test_rows_fit_the_model(scorer: EmbeddedCalibrator) -> None:
    """No text is too long: rows are cut to the budget and say so."""
    long = Item("question " * 2_000, "answer " * 2_000, "known-model", "gpqa")
    (row,) = scorer.token_rows([long])
    assert len(row.ids) == CONFIG.layout.max_tokens
    assert scorer.score_batch([long])[0].is_truncated
    assert not scorer.score_batch([Item("2 + 2?", "4")])[0].is_truncated


@pytest.mark.parametrize("padding", [" ", "\n", "x"])
def test_text_that_was_never_read_is_told(scorer: EmbeddedCalibrator, padding: str) -> None:
    """A text whose middle the tokenizer never saw is truncated, however few tokens it has."""
    hidden = padding * 5_000 + " the real answer " + padding * 5_000
    for item in (Item("q", hidden), Item(hidden, "a")):
        assert scorer.score_batch([item])[0].is_truncated


def test_half_a_surrogate_pair_is_scored(scorer: EmbeddedCalibrator) -> None:
    """JSON may carry what UTF-8 cannot; it costs no confidence."""
    (found,) = scorer.score_batch([Item("\ud83d?", "\udc00")])
    assert 0 < found.score < 1


def test_a_score_is_the_same_each_time(scorer: EmbeddedCalibrator) -> None:
    """The same item has the same score, to the last bit."""
    assert scorer.score_batch(ITEMS[:4]) == scorer.score_batch(ITEMS[:4])


CALL = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "kinds",
    [("text", "text", "call"), ("call",), ("known", "text"), ("known",), ()],
    ids=lambda kinds: "-".join(kinds) or "nothing",
)
def test_others_are_let_run_once_a_batch(kinds: tuple[str, ...]) -> None:
    """`meanwhile` is called once, of whatever a batch is made up, and changes no score."""
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
