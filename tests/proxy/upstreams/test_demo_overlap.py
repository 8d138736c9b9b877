"""No demo question may be in the data on which the calibrator is trained or tested.

Otherwise the demo would show what the calibrator remembers, not what it can tell. That data
is no part of the repository: PINOCCHIO_DATA names its folder, with `train` and `test` in it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.upstreams.demo.demo import questions

# The share of significant words that two questions have in common. The line of a program may share
# half of a demo question's three or four words by chance; a reworded question shares more.
MOST_OVERLAP = 0.5
STOP_WORDS = (
    "a an and are as at be by can did do does for from get has have how i if in is it its many me "
    "much my of on one or so that the their there they this to was were what when where which who "
    "will with would you your"
)
# Options and tool definitions of a benchmark, which would hide its question.
APPENDIX = re.compile(r"Available functions|Answer Choices|\n\s*\(?A[.)]\s")


def telling_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold())) - set(STOP_WORDS.split())


def parts(question: str) -> Iterator[frozenset[str]]:
    """Yield the words of the whole question and of each of its lines.

    A line alone may be the question, after a long instruction.
    """
    text = APPENDIX.split(question, maxsplit=1)[0].removeprefix("User request:")
    yield telling_words(text)
    lines = re.split(r"\n|Question:", text)
    if len(lines) > 1:
        yield from map(telling_words, lines)


def data_questions(folder: Path) -> Iterator[str]:
    """Return every question of every file, once."""
    for path in sorted(folder.glob("*/*.jsonl.gz")):
        seen = set()
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row["question_id"] not in seen:
                    seen.add(row["question_id"])
                    yield row["question"]


def nearest(folder: Path) -> dict[str, tuple[float, str]]:
    """Return each demo question's largest overlap with a question of the data, and that one."""
    demo = {text: telling_words(text) for text in questions()}
    found = dict.fromkeys(demo, (0.0, ""))
    for question in data_questions(folder):
        for words in parts(question):
            for text, telling in demo.items():
                common = len(words & telling)
                if common and common / len(words | telling) > found[text][0]:
                    found[text] = (common / len(words | telling), question)
    return found


def test_no_demo_question_is_in_the_data() -> None:
    """No demo question, and none that is nearly one, is in the calibrator's data."""
    if "PINOCCHIO_DATA" not in os.environ:
        pytest.skip("PINOCCHIO_DATA is unset: it names the folder of the calibrator's data")
    found = nearest(Path(os.environ["PINOCCHIO_DATA"]))
    assert all(question for _, question in found.values()), "no data in PINOCCHIO_DATA"
    close = {text: hit for text, hit in found.items() if hit[0] > MOST_OVERLAP}
    assert not close


@pytest.mark.parametrize(
    "question",
    [
        "is 91 a prime number",
        "Read the question and choose an answer.\n\nQuestion: Is 91 prime?\nA. Yes\nB. No",
        "User request: Is the number 91 prime?\n\nAvailable functions (JSON): [...]",
    ],
)
def test_the_check_finds_a_reworded_question(tmp_path: Path, question: str) -> None:
    """A demo question is found in the data even if it is worded or framed a little differently."""
    (tmp_path / "test").mkdir()
    row = json.dumps({"question_id": "q", "question": question})
    with gzip.open(tmp_path / "test" / "some.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(row)
    overlap, hit = nearest(tmp_path)["Is 91 a prime number?"]
    assert hit == question
    assert overlap > MOST_OVERLAP
