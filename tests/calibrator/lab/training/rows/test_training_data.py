"""The rows to train on, and the examples made of them (paper C10, C11, D03, D04)."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from calibrator.errors import TrainingError
from calibrator.features.tower import tower_row
from calibrator.lab.training.rows.examples import (
    disguise_rows,
    tokenize,
)
from calibrator.rows.rows import Row, parse_row
from calibrator.rows.selection import (
    Selection,
    balance,
    is_trainable,
    load_labelled,
    select_rows,
    share_of,
    split_by_question,
    without_copies,
)
from calibrator.text.word_pieces import Layout, encode
from tests.builders.tiny_checkpoint import BASE

LAYOUT = Layout(max_tokens=48)


@cache
def tokenizer() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(BASE / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def row(question: int, model: str = "m", benchmark: str | None = "b", **more: Any) -> Row:
    values = {
        "question_id": f"q{question}",
        "question": f"What is {question} + {question}?",
        "response": str(2 * question),
        "model": model,
        "benchmark": benchmark,
        "correct": question % 2,
        **more,
    }
    return parse_row(values)


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row.raw) + "\n" for row in rows))
    return path


# --- which rows ---------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc")), max_size=60), st.floats(0, 1)
)
def test_no_question_is_on_both_sides(pairs: list[tuple[int, str]], share: float) -> None:
    """All replies to a question are on one side, and no row is lost (D04)."""
    rows = [row(question, model, response=model) for question, model in pairs]
    train, validation = split_by_question(rows, share)
    assert not {r.question_id for r in train} & {r.question_id for r in validation}
    assert Counter(map(id, [*train, *validation])) == Counter(map(id, rows))


def test_the_split_is_for_ever() -> None:
    """A question's side depends on its id alone (D04)."""
    assert share_of("gpqa/1") == pytest.approx(0.438018, abs=1e-6)
    few, many = [row(n) for n in range(50)], [row(n) for n in range(500)]
    _, held = split_by_question(few, 0.2)
    _, more_held = split_by_question(many[::-1], 0.2)
    assert {r.question_id for r in held} <= {r.question_id for r in more_held}


def row_asking(id: str, question: str) -> Row:
    return replace(row(1), question_id=id, question=question)


LONG = "Which of these planets has the most moons, and what are they called?"


@pytest.mark.parametrize(
    ("first", "second", "is_copy"),
    [
        (LONG, "WHICH of these planets  has the most moons — and what are they called", True),
        (LONG + "x" * 300, LONG + "x" * 300 + "y", True),  # the same 300 letters
        (LONG, LONG + " A. Saturn", False),
        ("2 + 2 = ?", "2 + 2=?", True),
        ("( [ { ) ]", "( [ { ) ] }", False),  # text without letters is compared by its signs
    ],
)
def test_copies_of_a_question_have_one_id(first: str, second: str, is_copy: bool) -> None:
    """Copies of a question have one id, also from another benchmark (D04)."""
    ids = [r.question_id for r in without_copies([row_asking("b", first), row_asking("a", second)])]
    assert ids == (["a", "a"] if is_copy else ["b", "a"])


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_what_shares_an_id_or_a_text_is_on_one_side(pairs: list[tuple[int, int]]) -> None:
    """Rows that share an id or a text are on one side, in any order (D04)."""
    rows = [row_asking(f"q{id}", f"{LONG} {text}") for id, text in pairs]
    merged = without_copies(rows)
    of_id = {r.question_id: m.question_id for r, m in zip(rows, merged, strict=True)}
    of_text = {r.question: m.question_id for r, m in zip(rows, merged, strict=True)}
    for r, m in zip(rows, merged, strict=True):
        assert of_id[r.question_id] == of_text[r.question] == m.question_id
        assert replace(m, question_id=r.question_id) == r
    assert sorted(set(of_id.values())) == sorted(
        {m.question_id for m in without_copies(rows[::-1])}
    )


def test_copies_are_never_on_both_sides(tmp_path: Path) -> None:
    """Copies in two benchmarks are never on both sides (D04)."""
    files = [
        write(tmp_path / f"{name}.jsonl", [row(n, question_id=f"{name}{n}") for n in range(60)])
        for name in "ab"
    ]
    train, validation = select_rows(files, Selection(validation_share=0.3))
    assert len(train) + len(validation) == 120
    assert not {r.question for r in train} & {r.question for r in validation}


def test_the_validation_share_is_met() -> None:
    """The validation share is met over many questions."""
    _, validation = split_by_question([row(n) for n in range(4_000)], 0.15)
    assert len(validation) == pytest.approx(600, rel=0.15)


@pytest.mark.parametrize(
    ("name", "trainable"),
    [("gpqa.jsonl", True), ("gpqa__nc.jsonl", False), ("gpqa__nc.jsonl.gz", False)],
)
def test_files_for_non_commercial_use_are_left_out(
    tmp_path: Path, name: str, trainable: bool
) -> None:
    """A file marked `__nc` is never trained on."""
    assert is_trainable(tmp_path / name) is trainable
    marked = write(tmp_path / "marked__nc.jsonl", [row(n, "forbidden") for n in range(50)])
    free = write(tmp_path / "free.jsonl", [row(n, "allowed") for n in range(50)])
    train, validation = select_rows([marked, free], Selection(validation_share=0.2))
    assert {r.model for r in [*train, *validation]} == {"allowed"}


def test_the_mark_of_a_folder_does_not_count(tmp_path: Path) -> None:
    """Only the file's own name is checked for the mark."""
    assert is_trainable(tmp_path / "folder__nc" / "gpqa.jsonl")


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 60), min_size=1),
    st.integers(10, 200),
    st.floats(0, 1),
)
def test_balance_respects_its_limits(sizes: dict[str, int], total: int, power: float) -> None:
    """Each benchmark has at most its rows and its rounded share of the total."""
    rows = [row(n, benchmark=name) for name, size in sizes.items() for n in range(size)]
    chosen = balance(rows, total, power, random.Random(1))
    wanted = {name: size**power for name, size in sizes.items()}
    scale = total / sum(wanted.values())
    counts = Counter(r.benchmark for r in chosen)
    assert {name: counts[name] for name in sizes} == {
        name: min(size, round(wanted[name] * scale)) for name, size in sizes.items()
    }
    assert len({id(r) for r in chosen}) == len(chosen)
    assert len(chosen) <= total + len(sizes) / 2


def test_a_lower_power_gives_small_benchmarks_more() -> None:
    """A lower power gives small benchmarks more rows (C10)."""
    rows = [row(n, benchmark="large") for n in range(900)]
    rows += [row(n, benchmark="small") for n in range(100)]
    counts = {
        power: Counter(r.benchmark for r in balance(rows, 200, power, random.Random(1)))
        for power in (0.0, 0.7, 1.0)
    }
    assert counts[1.0] == {"large": 180, "small": 20}
    assert counts[0.0] == {"large": 100, "small": 100}
    assert counts[1.0]["small"] < counts[0.7]["small"] < counts[0.0]["small"]


def test_the_same_values_choose_the_same_rows(tmp_path: Path) -> None:
    """A selection is the same for the same files in any order."""
    files = [
        write(tmp_path / f"{name}.jsonl", [row(n, benchmark=name) for n in range(80)])
        for name in ("one", "two", "three")
    ]
    selection = Selection(rows=60, validation_share=0.2)
    train, validation = select_rows(files, selection)
    assert select_rows(files[::-1], selection) == (train, validation)
    other, same = select_rows(files, Selection(rows=60, validation_share=0.2, seed=1))
    assert (other != train, same) == (True, validation)


def test_unlabelled_rows_are_reported(tmp_path: Path) -> None:
    """Rows without a label are reported and not taken for incorrect (D03)."""
    path = tmp_path / "rows.jsonl.gz"
    lines = [json.dumps(row(1).raw), "x", json.dumps({"question": "q", "response": ""})]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    rows, errors = load_labelled([path])
    assert [r.question_id for r in rows] == ["q1"]
    assert [(error.line, str(error).split(": ", 1)[1]) for error in errors] == [
        (2, "not JSON: Expecting value at column 1"),
        (3, "'correct' is missing"),
    ]


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    """Without a labelled row, a file or a question left, training is refused."""
    empty = write(tmp_path / "empty.jsonl", [])
    with pytest.raises(TrainingError, match=r"no labelled row in .*empty\.jsonl"):
        load_labelled([empty])
    with pytest.raises(TrainingError, match="no labelled row in no file"):
        select_rows([], Selection())
    with pytest.raises(TrainingError, match="every file is marked __nc and never trained on"):
        select_rows([tmp_path / "only__nc.jsonl"], Selection())
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"question": "q"}\n' * 4 + '{"question": "q", "response": "a"}\n')
    with pytest.raises(TrainingError) as caught:
        load_labelled([bad])
    assert str(caught.value) == (
        f"no labelled row in {bad}: {bad}:1: 'response' is missing; "
        f"{bad}:5: 'correct' is missing; and 3 more; a row is "
        '{"question": "..", "response": "..", "correct": 1}, a sample '
        "examples/labelled/rows.jsonl"
    )
    one = write(tmp_path / "one.jsonl", [row(1)])
    with pytest.raises(TrainingError, match="too few questions: all of them fell to validation"):
        select_rows([one], Selection(validation_share=1.0))


# --- tokens -------------------------------------------------------------------------------------


def test_tokenizing_keeps_labels_and_tags() -> None:
    """An example has the ids of question and answer, the label, and the model in lower case."""
    (example,) = tokenize([row(3, "Kimi-3", "gpqa")], tokenizer(), LAYOUT)
    question, answer = encode(tokenizer(), ["What is 3 + 3?", "6"], LAYOUT)
    assert (example.question.tolist(), example.answer.tolist()) == (question, answer)
    assert (example.source_model, example.benchmark) == ("kimi-3", "gpqa")
    assert (example.question_id, example.target) == ("q3", 1.0)


def test_the_tower_reads_what_is_served() -> None:
    """An example for the tower equals what `tower_row` makes when serving."""
    (example,) = tokenize([row(3)], tokenizer(), LAYOUT)
    question, answer = encode(tokenizer(), ["What is 3 + 3?", "6"], LAYOUT)
    served = tower_row("What is 3 + 3?", "6", question, answer)
    assert (example.tower.traits == served.traits).all()
    for trained, part in zip(example.tower.grams, served.grams, strict=True):
        assert (trained == part).all()


def test_chunks_of_rows_make_no_difference() -> None:
    """Rows are tokenized in chunks with the same examples in order."""
    rows = [row(n) for n in range(2_100)]
    examples = tokenize(rows, tokenizer(), LAYOUT)
    assert [e.target for e in examples] == [r.correct for r in rows]
    (alone,) = tokenize(rows[2_050:2_051], tokenizer(), LAYOUT)
    assert examples[2_050].answer.tolist() == alone.answer.tolist()


def test_a_target_replaces_the_label() -> None:
    """A given target replaces the label."""
    assert tokenize([row(3)], tokenizer(), LAYOUT, target=0.4)[0].target == 0.4


def test_disguise_changes_answers_and_never_labels() -> None:
    """Disguising adds text to about the wanted share of answers and changes no label."""
    rows = [row(n) for n in range(2_000)]
    disguised = disguise_rows(rows, 0.2, random.Random(1))
    changed = [after for before, after in zip(rows, disguised, strict=True) if after is not before]
    assert len(changed) == pytest.approx(400, rel=0.2)
    assert sum(r.correct or 0 for r in changed) == pytest.approx(len(changed) / 2, rel=0.2)
    assert [r.correct for r in disguised] == [r.correct for r in rows]
    assert all(len(r.answer) > len(rows[0].answer) for r in changed)
    assert disguise_rows(rows, 0.0, random.Random(1)) == rows


def test_rebuilt_replies_lose_their_confidence_half_of_the_time() -> None:
    """A reply of a letter and a confidence loses the confidence half of the time."""
    rows = [row(n, response="Answer: B\nConfidence: 95%") for n in range(400)]
    found = Counter(r.answer for r in disguise_rows(rows, 0.0, random.Random(1)))
    assert set(found) == {"Answer: B", "Answer: B\nConfidence: 95%"}
    assert found["Answer: B"] == pytest.approx(200, rel=0.2)
