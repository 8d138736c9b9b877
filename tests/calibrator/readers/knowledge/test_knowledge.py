"""Knowledge as a part of a calibrator: what it reads, what it adds, how it is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from calibrator import Item, load_scorer
from calibrator.checkpoints.checkpoint import EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.embedded.parts import shift_confidence
from calibrator.features.weights import Array, Floats
from calibrator.lab.training.fits.knowledge.lessons import KnowledgeConfig, pairs_of_rows
from calibrator.readers.knowledge import PREFIX, Knowledge
from calibrator.readers.knowledge.knowledge import LIMIT, asks_for_fact, is_short
from calibrator.rows.rows import Row
from calibrator.text.word_pieces import load_tokenizer

ROUNDING = 4e-6  # log-odds; a confidence changes by at most a quarter of it, 1e-6
SMALL = KnowledgeConfig(layers=1, members=1, width=8, steps=25, own_pairs=160, questions=20)


def row(number: int, question: str, response: str, correct: int) -> Row:
    """Return a labelled reply."""
    raw = {"id": str(number), "question": question, "response": response}
    return Row(question, response, None, "towns", None, question, correct, None, raw)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Return right and wrong replies to twenty questions."""
    found = []
    for number in range(20):
        question = f"Which river flows through town {number}?"
        found += [row(2 * number, question, f"River {number}.", 1)]
        found += [row(2 * number + 1, question, f"River {number + 1}.", 0)]
    return found


def fitted(rows: Sequence[Row], tokenizer: Tokenizer) -> dict[str, Array]:
    """Train knowledge on these rows; PyTorch is imported here, not by every collection."""
    from calibrator.lab.training.stages.knowledge import fit_knowledge

    return fit_knowledge(rows, tokenizer, _base(), SMALL, 1)


def _base() -> Path:
    """Return the folder of the base for training."""
    from calibrator.lab.training.run import base_folder

    return base_folder()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(_base())


@pytest.fixture(scope="module")
def arrays(rows: Sequence[Row], tokenizer: Tokenizer) -> dict[str, Array]:
    return fitted(rows, tokenizer)


def shift_of(known: Knowledge, tokenizer: Tokenizer, question: str, answer: str) -> float:
    return shifts_of(known, tokenizer, [(question, answer)])[0]


def shifts_of(
    known: Knowledge, tokenizer: Tokenizer, texts: Sequence[tuple[str, str]]
) -> list[float]:
    pieces = [
        (
            tokenizer.encode(question, add_special_tokens=False).ids,
            tokenizer.encode(answer, add_special_tokens=False).ids,
        )
        for question, answer in texts
    ]
    found: list[float] = known.shifts(texts, pieces).tolist()
    return found


@pytest.mark.parametrize(
    ("question", "answer", "is_read"),
    [
        ("What is the capital of Norway?", "Oslo", True),
        ("who painted the night watch", "It was **Rembrandt**, in 1642.", True),
        ("What is the capital of Norway?", "", False),
        ("What is the capital of Norway?", "Oslo. " * 3, False),
        ("What is the capital of Norway?", "First line\nsecond line", False),
        ("What is the capital of Norway?\nOptions: A. Oslo B. Rome", "A", False),
        ("What is the capital of Norway? " * 20, "Oslo", False),
        ("What do you think of modern art?", "People disagree about it.", False),
        ("good morning", "Good morning!", False),
        ("Write a slogan for a bicycle shop.", "Two wheels, no worries.", False),
    ],
)
def test_short_replies_to_factual_questions_are_read(
    question: str, answer: str, is_read: bool
) -> None:
    """Only short replies to short factual questions are read."""
    assert (is_short(question, answer) and asks_for_fact(question)) is is_read


def test_what_is_not_read_is_not_changed(arrays: dict[str, Array], tokenizer: Tokenizer) -> None:
    """Only a short factual reply is changed, within the bound."""
    known = Knowledge.from_state(arrays)
    assert known is not None
    least, more, middle = known.weights.tolist()
    shift = shift_of(known, tokenizer, "What is the capital of Norway?", "Oslo")
    assert 0 < abs(shift) <= (least + more) * (LIMIT + abs(middle))
    assert shift_of(known, tokenizer, "Tell me a joke.", "A scarecrow won a medal.") == 0
    bold = shift_of(known, tokenizer, "What is the capital of Norway?", "**Oslo**")
    assert bold == pytest.approx(shift, abs=1e-5)


def test_neighbours_change_nothing(arrays: dict[str, Array], tokenizer: Tokenizer) -> None:
    """A reply gets the same shift alone and among others."""
    known = Knowledge.from_state(arrays)
    assert known is not None
    texts = [
        ("Tell me a joke.", "Knock, knock."),
        ("What is the capital of Norway?", "Oslo"),
        ("Who wrote Emma?", "Emma was written by Jane Austen."),
    ]
    every = shifts_of(known, tokenizer, texts)
    alone = [shift_of(known, tokenizer, *both) for both in texts]
    assert every == pytest.approx(alone, abs=1e-6)


def test_the_same_rows_teach_the_same(
    arrays: dict[str, Array], rows: Sequence[Row], tokenizer: Tokenizer
) -> None:
    """The same rows and seed give the same arrays, all under one prefix."""
    again = fitted(rows, tokenizer)
    assert again.keys() == arrays.keys()
    assert all(key.startswith(PREFIX) for key in arrays)
    assert [key for key in arrays if not np.array_equal(arrays[key], again[key])] == []


def test_pairs_are_of_one_question(rows: list[Row]) -> None:
    """A pair has a right and a wrong reply to the same question."""
    more = [*rows, row(99, "Which river is the longest?", "The Nile.", 1)]
    pairs = pairs_of_rows(more, SMALL, 1)
    assert len(pairs) == 20
    assert all(pair.right != pair.wrong and pair.group == "towns" for pair in pairs)


def test_a_checkpoint_with_it_scores_otherwise_only_what_is_short(
    arrays: dict[str, Array],
) -> None:
    """With knowledge a checkpoint moves a short factual reply by the shift.

    A long reply and small talk stay the same to the last bit.
    """
    plain = load_scorer(EMBEDDED, "cpu")
    assert isinstance(plain, EmbeddedCalibrator)
    parts = replace(plain.parts, knowledge=None)
    without = EmbeddedCalibrator(plain.config, plain.tokenizer, parts)
    parts = replace(plain.parts, knowledge=Knowledge.from_state(arrays))
    knowing = EmbeddedCalibrator(plain.config, plain.tokenizer, parts)
    items = [
        Item("Who wrote Emma?", "Jane Austen"),
        Item("Who wrote Emma?", "Emma has many readers. " * 8),
        Item("Tell me a joke.", "Knock, knock."),
    ]
    read = knowing.read_texts(items)
    before, after = (
        [score.confidence for score in each.score_batch(items)] for each in (without, knowing)
    )
    assert after[1:] == before[1:]
    assert read.shifts[0] != 0
    assert read.shifts[1:].tolist() == [0, 0]
    right = without.confidence(without.read_texts(items))[0] / read.in_order[0]
    assert after[0] == pytest.approx(shift_confidence(right, read.shifts[0]) * read.in_order[0])


def test_arrays_that_do_not_fit_are_refused(arrays: dict[str, Array], tmp_path: Path) -> None:
    """Arrays without a network or with too few weights are refused."""
    own = {key.removeprefix(PREFIX): array for key, array in arrays.items()}
    with pytest.raises(ValueError, match="another shape"):
        Knowledge({key: array for key, array in own.items() if not key.startswith("0.")})
    with pytest.raises(ValueError, match="another shape"):
        Knowledge(own | {"weights": np.zeros(2, np.float32)})
    assert Knowledge.from_state({}) is None


def counted_reading(known: Knowledge, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record how many texts the encoder gets in each call."""
    counts: list[int] = []
    encoder = known.encoder

    def read(texts: Sequence[Sequence[int]]) -> list[Floats]:
        counts.append(len(texts))
        return encoder(texts)

    monkeypatch.setattr(known, "encoder", read)
    return counts


def test_a_question_is_read_once_for_all_replies(
    arrays: dict[str, Array], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is read once for all its replies, with the same numbers and bounded memory."""
    known = Knowledge.from_state(arrays)
    assert known is not None
    read = counted_reading(known, monkeypatch)
    monkeypatch.setattr("calibrator.readers.knowledge.knowledge.MOST_QUESTIONS", 2)
    question = "What is the capital of Norway?"
    together = shifts_of(known, tokenizer, [(question, "Oslo"), (question, "Bergen")])
    later = shifts_of(known, tokenizer, [(question, "Oslo")])
    assert read == [3, 1]
    assert later == pytest.approx(together[:1], abs=ROUNDING)
    others = [(f"Who wrote book {number}?", "Jane Austen") for number in range(5)]
    shifts_of(known, tokenizer, others)
    assert len(known._question_means) <= 2
    assert shifts_of(known, tokenizer, [(question, "Oslo")]) == pytest.approx(later, abs=ROUNDING)


def test_many_replies_go_through_the_encoder_some_at_a_time(
    arrays: dict[str, Array], tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many replies go through the encoder in parts, with the same numbers."""
    known = Knowledge.from_state(arrays)
    assert known is not None
    texts = [(f"Who wrote book {number}?", f"Author {number}") for number in range(7)]
    at_once = shifts_of(known, tokenizer, texts)
    known._question_means.clear()
    read = counted_reading(known, monkeypatch)
    monkeypatch.setattr("calibrator.readers.knowledge.knowledge.AT_ONCE", 200)
    assert shifts_of(known, tokenizer, texts) == pytest.approx(at_once, abs=ROUNDING)
    assert read == [4, 4, 4, 2]
