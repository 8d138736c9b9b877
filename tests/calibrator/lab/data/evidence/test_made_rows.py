"""The made pairs: the same for a seed, balanced, without wording that reveals the label."""

from __future__ import annotations

import gzip
import json
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from itertools import islice
from pathlib import Path

import pytest

from calibrator.lab.data.evidence.mixture import made_rows

LABELS = {"entail", "contradict", "neutral"}
KINDS = {"policies", "tables", "passages", "dialogues"}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    """Return 3,000 made rows."""
    return list(islice(made_rows(1), 3000))


def test_the_same_seed_gives_the_same_rows(rows: list[dict[str, str]]) -> None:
    """Two generators of one seed must agree, and another seed must not."""
    assert list(islice(made_rows(1), 300)) == rows[:300]
    assert list(islice(made_rows(2), 300)) != rows[:300]


def test_every_kind_has_every_label_in_balance(rows: list[dict[str, str]]) -> None:
    """Each kind must have all labels, as many right as contradicting ones within a tenth."""
    counts = Counter((row["kind"], row["label"]) for row in rows)
    assert {kind for kind, _ in counts} == KINDS
    for kind in KINDS:
        assert {label for of, label in counts if of == kind} == LABELS
        right, wrong = counts[kind, "entail"], counts[kind, "contradict"]
        assert abs(right - wrong) <= 0.1 * (right + wrong)
        assert counts[kind, "neutral"] >= 0.5 * right


def test_a_group_has_one_premise(rows: list[dict[str, str]]) -> None:
    """Rows of one group must share the premise, and no other group may have it."""
    premises = defaultdict(set)
    for row in rows:
        premises[row["group"]].add(row["premise"])
    assert all(len(texts) == 1 for texts in premises.values())


def test_rows_are_complete_texts(rows: list[dict[str, str]]) -> None:
    """No slot or choice of a template may be left in a text, and no text may be empty."""
    for row in rows:
        assert row["premise"].strip()
        assert row["hypothesis"].strip()
        text = "\n".join((row["premise"], row["question"], row["hypothesis"]))
        assert not re.search(r"\$\{?[A-Za-z]|<[^<>]*\|", text), text


def test_a_reply_has_one_label_in_its_context(rows: list[dict[str, str]]) -> None:
    """The same reply to the same question about the same context must not get two labels."""
    labels = defaultdict(set)
    for row in rows:
        labels[row["group"], row["question"], row["hypothesis"]].add(row["label"])
    assert not [key for key, found in labels.items() if len(found) > 1]


def test_length_does_not_reveal_the_label(rows: list[dict[str, str]]) -> None:
    """The replies of the three labels must be of like length in every kind."""
    lengths = defaultdict(list)
    for row in rows:
        lengths[row["kind"], row["label"]].append(len(row["hypothesis"].split()))
    for kind in KINDS:
        means = [sum(n) / len(n) for (of, _), n in lengths.items() if of == kind]
        assert max(means) <= 1.35 * min(means)


@pytest.mark.parametrize("word", ["sorry", "sure", "unfortunately", "yes", "not", "happy", "n't"])
def test_tone_does_not_reveal_the_label(rows: list[dict[str, str]], word: str) -> None:
    """Apologies, promises and negations must be about as frequent in right as in wrong replies."""
    counts = Counter(row["label"] for row in rows if word in row["hypothesis"].lower())
    right, wrong = counts["entail"], counts["contradict"]
    assert abs(right - wrong) <= max(12, 0.25 * (right + wrong))


def test_the_command_writes_the_rows(tmp_path: Path) -> None:
    """The command writes the requested number of rows, as gzipped JSON lines."""
    path = tmp_path / "made.jsonl.gz"
    command = [
        sys.executable,
        "-m",
        "calibrator.lab.data.evidence",
        "--rows",
        "60",
        "-o",
        str(path),
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with gzip.open(path, "rt", encoding="utf-8") as file:
        written = [json.loads(line) for line in file]
    assert len(written) == 60
    assert set(written[0]) == {"kind", "group", "premise", "question", "hypothesis", "label"}
    assert "policies" in output


def test_rows_of_a_seed_do_not_depend_on_earlier_use() -> None:
    """Drawing other random numbers before must not change the rows."""
    first = list(islice(made_rows(7), 20))
    random.random()
    assert list(islice(made_rows(7), 20)) == first
