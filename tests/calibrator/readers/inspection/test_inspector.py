"""The inspector: whether a reply answers its question and agrees with itself."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator import load_scorer
from calibrator.checkpoints.checkpoint import CHECKPOINTS, EMBEDDED
from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.lab.data.corruptions import KINDS, TAUGHT_KINDS
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.lab.training.fits.inspection.lessons import Lesson, seen_in
from calibrator.lab.training.fits.inspection.training import fit_inspector
from calibrator.readers.inspection import Inspector, inspect
from calibrator.readers.inspection.inspector import CHECKS, LONG, SEEN
from calibrator.readers.inspection.relevance import Pieces, _numbers
from calibrator.readers.inspection.wanted import wanted_kinds
from calibrator.readers.inspection.working import working_traits
from calibrator.rows.rows import Row
from calibrator.scorer import Item, ToolUse
from calibrator.text.word_pieces import Layout, load_tokenizer

LAYOUT = Layout(max_tokens=192)
TOKENIZER = load_tokenizer(Path(CHECKPOINTS) / "embedded")
THINGS = ["apples", "bricks", "candles", "drums", "engines", "flutes", "gloves", "hammers"]


def rows(count: int) -> list[Row]:
    """Return right replies to small sums, each with its working."""
    rng = random.Random(1)
    found = []
    for number in range(count):
        first, second = rng.randint(12, 99), rng.randint(12, 99)
        thing = rng.choice(THINGS)
        question = f"Shelf {number} has {first} {thing} and gets {second} more. How many {thing}?"
        answer = (
            f"Shelf {number} had {first} {thing} at first. With {second} more that makes "
            f"{first} + {second} = {first + second} {thing}. The answer is {first + second}."
        )
        raw = {"id": str(number)}
        found.append(Row(question, answer, None, "shelves", None, question, 1, None, raw))
    return found


@pytest.fixture(scope="module")
def inspector() -> Inspector:
    vectors = np.random.default_rng(0).normal(size=(TOKENIZER.get_vocab_size(), 32))
    config = InspectorConfig(
        right_rows=160, irrelevant_rows=60, faulty_rows=60, trees=40, leaf_rows=10, width=16
    )
    state = fit_inspector(rows(160), TOKENIZER, LAYOUT, vectors.astype(np.float32), config, 0)
    found = Inspector.from_state(state)
    assert found is not None
    return found


def in_order(inspector: Inspector, question: str, answer: str) -> float:
    lesson = Lesson(question, answer, "shelves")
    seen = seen_in([lesson], TOKENIZER, LAYOUT, inspector.pieces)
    return float(inspector.read(seen)[0][0])


def test_a_reply_to_another_question_and_a_changed_number_are_seen(inspector: Inspector) -> None:
    """Right replies rank above replies to other questions and above wrong last numbers."""
    fresh = rows(200)[160:]
    own = [in_order(inspector, row.question, row.answer) for row in fresh]
    pairs = zip(fresh, [*fresh[1:], fresh[0]], strict=True)
    elsewhere = [in_order(inspector, row.question, other.answer) for row, other in pairs]
    changed = [in_order(inspector, row.question, row.answer[:-2] + "7.") for row in fresh]
    off = [in_order(inspector, row.question, "The choir meets on Mondays.") for row in fresh]
    for wrong in (elsewhere, changed, off):
        assert np.mean([right > other for right, other in zip(own, wrong, strict=True)]) > 0.85


def test_the_same_rows_and_seed_give_the_same_arrays() -> None:
    """The same rows and seed give the same arrays."""
    vectors = np.random.default_rng(0).normal(size=(TOKENIZER.get_vocab_size(), 8))
    config = InspectorConfig(
        right_rows=40, irrelevant_rows=20, faulty_rows=20, trees=3, leaf_rows=5, width=4
    )
    fits = [
        fit_inspector(rows(40), TOKENIZER, LAYOUT, vectors.astype(np.float32), config, 3)
        for _ in range(2)
    ]
    assert fits[0].keys() == fits[1].keys()
    assert all(np.array_equal(fits[0][name], fits[1][name]) for name in fits[0])


def test_the_end_of_a_long_reply_is_evidence_and_of_a_short_one_is_not(
    inspector: Inspector,
) -> None:
    """Only the end of a long reply is evidence: a share of the trees' odds beyond their middle."""
    ending = next(at for at, check in enumerate(inspector.checks) if check.name == "ending")
    text = "The shelf holds nine books, and each book has its own place. " * 8
    lessons = [Lesson("How many?", text[:length], "shelves") for length in (LONG, LONG + 1, 480)]
    seen = seen_in(lessons, TOKENIZER, LAYOUT, inspector.pieces)
    counts = inspector.counts[ending]
    assert counts.share > 0
    expected = counts.share * (inspector.check_odds(seen)[ending] - counts.middle)
    assert inspector.read(seen).evidence == pytest.approx([0.0, *expected[1:]], abs=1e-9)
    assert all(expected[1:] != 0)


def test_nothing_is_evidence_of_an_agents_message() -> None:
    """A long text is evidence as an answer, but not as an agent's message."""
    shipped = load_scorer(EMBEDDED, "cpu")
    assert isinstance(shipped, EmbeddedCalibrator)
    answer = "First I add the two sides, and then I halve the sum of both. " * 10
    plain = Item("How wide is the shelf?", answer)
    used = ToolUse([{"role": "user", "content": plain.question}], [], {"content": answer})
    alone, agents = shipped.read_texts([plain, replace(plain, tool_use=used)]).shifts
    assert alone != 0
    assert agents == 0


def test_every_fault_is_a_kind_of_corruption() -> None:
    """The faults of the checks are exactly the kinds of corruption."""
    faults = {fault for check in CHECKS for fault in check.faults}
    assert faults <= KINDS.keys() | TAUGHT_KINDS.keys()
    assert TAUGHT_KINDS.keys() <= faults


def test_a_checkpoint_without_an_inspector_has_none() -> None:
    """A checkpoint without an inspector gives None."""
    assert Inspector.from_state({"tower.0.table": np.zeros(1)}) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("3 + 4 = 7, so it is 7.", "3 + 4 = 8, so it is 8."),
        ("He has 7. The answer is 7", "He has 7. The answer is 9"),
        ("The sky is blue. It is blue.", "The sky is very blue. The sky is not very blue."),
        ("A whole reply ends here.", "A whole reply (that ends he"),
    ],
)
def test_a_reply_that_contradicts_itself_has_other_traits(right: str, wrong: str) -> None:
    """A sound and an unsound reply have different traits."""
    assert working_traits("How many?", right) != working_traits("How many?", wrong)


def test_the_named_option_is_held_against_the_working() -> None:
    """The support of the chosen option falls if the working names another one."""
    question = "Which gas?\nA. nitrogen\nB. carbon dioxide\nC. helium"
    reply = "Plants take up carbon dioxide. The answer is ({})."
    places = slice(15 + 2, 15 + 4)
    own, other = (working_traits(question, reply.format(letter))[places] for letter in "BC")
    assert own == [1.0, 1.0]
    assert other == [0.0, -1.0]


def test_different_kinds_have_different_marks() -> None:
    """A year for "when" and a name for "who" have different marks."""
    assert wanted_kinds("When was it built?", "In 1889.") != wanted_kinds(
        "When was it built?", "By Ann Lee."
    )


PIECES = Pieces(
    np.ones((40_000, 4), np.int8), np.full(40_000, 0.5, np.float32), np.ones(40_000, np.float32)
)


@pytest.mark.parametrize(
    "text",
    ["", "\0", "9" * 100_000, "(" * 100_000, "= 1 " * 40_000, "A. x\n" * 30_000, "\ud800" * 10,
     "not " * 50_000, "The answer is (" * 20_000],
)  # fmt: skip
def test_every_text_has_finite_traits_in_bounded_time(text: str) -> None:
    """Hostile texts have finite traits within two seconds."""
    start = time.process_time()
    seen = inspect(text, text, list(range(30_000)), [5] * 30_000, PIECES)
    assert time.process_time() - start < 2
    assert seen.shape == (SEEN,)
    assert np.isfinite(seen).all()


def test_numbers_are_compared_both_ways() -> None:
    """Numbers are compared in both directions.

    Of three numbers in the question the reply has two; of its four, two are in the question. One
    number above 9 of the three is missing.
    """
    found = _numbers("Add 7, 25 and 310.", "7 + 25 = 32, so 32.0 it is.")
    assert found == pytest.approx([2 / 3, 2 / 4, np.log1p(1), 1 / 3])
    assert _numbers("Why?", "Because of 3 things.") == [-1.0, 0.0, 0.0, 0.0]
    assert _numbers("Why 3?", "Because.") == [0.0, -1.0, 0.0, 0.0]
