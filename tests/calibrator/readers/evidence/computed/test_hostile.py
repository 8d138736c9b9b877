"""Hostile input: any text gets a verdict or none, without an exception, in bounded time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrator.readers.evidence.computed import verify
from calibrator.readers.evidence.conversation import Conversation, Turn

# Beginnings of requests that lead into each of the checks
STARTS = (
    "",
    "What is ",
    "Calculate the average of ",
    "How many kilometers are ",
    "What day of the week was ",
    "How many days between 1 May 2024 and ",
    "What time is it 3 hours after ",
    "Extract the name as JSON with keys name, age: ",
    'Return only JSON {"a": string, "b": "x|y"}. ',
    "Given the table t(a, b), write an SQL query ",
    "CREATE TABLE t (a int, ",
    "Write a Python function called f that returns ",
    "Answer in exactly three words: ",
    "Translate into German: ",
    "Classify as spam or ham: ",
    "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\nWhat is the total of b?",
    "Sort alphabetically: ",
)
REPLIES = (
    "",
    "36",
    '{"name": ',
    "SELECT a FROM t WHERE ",
    "```python\ndef f():\n",
    "- a\n- b\n",
    "def f(",
)
TEXT = st.text(max_size=200)
PIECES = st.sampled_from(
    (
        "1",
        "12.5",
        "%",
        " of ",
        "(",
        "^",
        "9" * 40,
        "km",
        "31 February 2024",
        "25:99",
        "{",
        "[",
        '"',
        ":",
        "SELECT",
        "ATTACH",
        ";",
        "lambda:",
        "\x00",
        "\ud7ff",
        "٣",
        "²",
        "½",
        "and",
        "two",
        "hundred",
        "-",
        "e9",
    )
)
MIXED = st.lists(PIECES, max_size=40).map("".join)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    start=st.sampled_from(STARTS),
    request=TEXT | MIXED,
    begin=st.sampled_from(REPLIES),
    reply=TEXT | MIXED,
    rules=TEXT | st.sampled_from(STARTS),
    earlier=TEXT,
)
def test_no_text_makes_it_fail(
    start: str, request: str, begin: str, reply: str, rules: str, earlier: str
) -> None:
    """Any conversation and reply give a verdict with a reason, or none."""
    turns = (Turn("user", earlier), Turn("assistant", reply)) if earlier else ()
    verdict = verify(Conversation(start + request, rules, turns, (earlier,)), begin + reply)
    assert verdict is None or (verdict.reason and verdict.task.isalpha())


HUGE = {
    "digits": "9" * 200_000,
    "sum": "1+" * 100_000 + "1",
    "parentheses": "(" * 100_000,
    "powers": "9^" * 50_000 + "9",
    "spaces": " " * 200_000,
    "words": "word " * 40_000,
    "commas": "a, " * 60_000,
    "lines": "- item\n" * 30_000,
    "braces": '{"a":' * 40_000,
    "brackets": "[" * 200_000,
    "quotes": '"' * 200_000,
    "percents": "5% of " * 40_000,
    "dates": "1 May 2024, " * 20_000,
    "minus": "-" * 200_000,
    "fences": "```\n" * 50_000,
    "pipes": "| a | b |\n" * 20_000,
    "columns": "t(" + "a, " * 50_000 + "b)",
    "labels": "classify as a" + " or b" * 40_000,
    "joins": "SELECT * FROM t " + "JOIN t USING (a) " * 10_000,
    "nested query": "SELECT * FROM (" * 3_000,
    "not": "not " * 40_000,
    "numbers in words": "one hundred and two " * 10_000,
    "no spaces": "a" * 200_000,
}


@pytest.mark.parametrize("start", STARTS[:1] + STARTS[3:4] + STARTS[7:12])
@pytest.mark.parametrize("name", sorted(HUGE))
def test_huge_texts_take_little_time(name: str, start: str) -> None:
    """200,000 characters in request, rules or reply are judged within half a second."""
    text = HUGE[name]
    for conversation, reply in (
        (Conversation(start + text), "36"),
        (Conversation(start + "x"), text),
        (Conversation(start + "x", rules=start + text), text),
        (Conversation(start + "x"), "```python\n" + text[:15_000] + "\n```"),
        (Conversation(start + "x"), "SELECT a FROM t WHERE " + text[:9_000]),
    ):
        begin = time.process_time()
        verify(conversation, reply)
        assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    ("rules", "item", "count"),
    [
        ('Return {"s": "max 12 words"} as JSON. ', {f"k{at}": "v" for at in range(40)}, 90),
        (
            "JSON, days are inclusive. ",
            {"start": "2025-01-01", "end": "2025-01-03", "days": 3},
            900,
        ),
    ],
)
def test_many_objects_take_little_time(rules: str, item: dict[str, object], count: int) -> None:
    """A prompt is read once for all objects of a reply."""
    prompt = rules + "filler words here " * 1_000
    conversation = Conversation("some words about prices " * 3_000, rules=prompt)
    begin = time.process_time()
    verify(conversation, json.dumps([item] * count))
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH DATABASE '/tmp/other.db' AS other",
        "PRAGMA writable_schema = 1",
        "DROP TABLE t",
        "VACUUM INTO '/tmp/copy.db'",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT a FROM t; DROP TABLE t",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n FROM r",
        "SELECT randomblob(1000000000)",
    ],
)
def test_a_statement_is_compiled_and_never_run(query: str) -> None:
    """SQL statements that attach, change, load or never end return at once without effect."""
    conversation = Conversation("Table t(a, b). Write an SQL query that lists a.")
    begin = time.process_time()
    verify(conversation, query)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "code",
    [
        "(" * 5000,
        "[" * 5000 + "]" * 5000,
        "x = " + "-" * 10_000 + "1",
        "x = " + "not " * 4000 + "1",
        "x = " + "1 + " * 4000 + "1",
        "x = " + "a." * 9000 + "b",
        "x = " + "lambda: " * 2000 + "1",
        "def f():\n" + "".join(" " * depth + "if 1:\n" for depth in range(1, 150)),
        "x = " + "f(" * 3000,
        "\x00",
        "x = '\\d'",
        "import os\nos.remove('/tmp/never')\nraise SystemExit",
    ],
)
def test_code_is_parsed_and_never_run(code: str) -> None:
    """Code that overflows the parser or does harm is parsed and not run."""
    conversation = Conversation("Write a Python function f that returns 1.")
    begin = time.process_time()
    verify(conversation, f"```python\n{code}\n```")
    assert time.process_time() - begin < 0.5
