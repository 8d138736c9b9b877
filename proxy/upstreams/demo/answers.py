"""The demo's canned answers, right and wrong ones, and the search for a question's answers.

They are in `demo.yaml` with their labels, so that a newcomer can see what a confidence is worth,
and a test can measure it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

Json = dict[str, Any]

EMBEDDED_AUROC = 0.64
"""The embedded calibrator's AUROC on the canned answers, as measured by
tests/calibrator/embedded/test_embedded_checkpoint.py."""

MOST_CHARACTERS = 2_000  # of a question to be looked up; canned ones are far shorter
_CLOSE = 0.8  # the share of words that a question must have in common with a canned one
_NEGATIONS = frozenset({"not", "no", "never", "without", "except", "t"})  # "t" as in "don't"


@dataclass(frozen=True, slots=True)
class DemoRow:
    """A labelled answer; the rows of one question share its `question_id`.

    `content` is None if the answer consists of tool calls: `calls`, each with `name` and
    `arguments`. `tools` are the definitions, in OpenAI's format, of the functions that those calls
    assume. `system` is the system message with which the label is valid, empty if there is none.
    """

    id: str
    question_id: str
    domain: str
    question: str
    system: str
    tools: tuple[Json, ...]
    content: str | None
    calls: tuple[Json, ...]
    correct: bool

    def messages(self) -> list[Json]:
        """Return the conversation that this row answers, as OpenAI's messages."""
        rules = [{"role": "system", "content": self.system}] if self.system else []
        return [*rules, {"role": "user", "content": self.question}]

    def message(self) -> Json:
        """Return the answer as OpenAI's assistant message, with new call ids each time."""
        message = text_message(self.content)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid4().hex[:24]}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": dump_json(call["arguments"])},
                }
                for call in self.calls
            ]
        return message


@cache
def rows() -> tuple[DemoRow, ...]:
    """Load all labelled answers, in the order of the file."""
    text = Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(
        DemoRow(
            id=f"{entry['id']}/{number}",
            question_id=entry["id"],
            domain=entry["domain"],
            question=entry["question"],
            system=entry.get("system", ""),
            tools=tuple(entry.get("tools", ())),
            content=answer.get("content"),
            calls=tuple(answer.get("tool_calls", ())),
            correct=answer["correct"],
        )
        for entry in yaml.load(text, Loader=loader)
        for number, answer in enumerate(entry["answers"])
    )


@cache
def questions() -> Mapping[str, tuple[DemoRow, ...]]:
    """Return the answers to each question, in the order of the file."""
    return {text: tuple(group) for text, group in groupby(rows(), key=lambda row: row.question)}


def first_question(*, correct: bool = False) -> str:
    """Return a question for a first try, which the demo answers wrongly (rightly if `correct`)."""
    return next(text for text, found in questions().items() if found[0].correct is correct)


def find_answers(question: str) -> tuple[DemoRow, ...]:
    """Return the answers to the canned question that `question` means, () if there is none.

    Case, white space and punctuation are ignored. A few words may be added or left out, but none
    changed or moved: "most" is never taken for "least".
    """
    if len(question) > MOST_CHARACTERS:
        return ()
    asked = words_of(question)
    closest = max(questions(), key=lambda known: _closeness(asked, words_of(known)))
    return questions()[closest] if _closeness(asked, words_of(closest)) >= _CLOSE else ()


def words_of(text: str) -> list[str]:
    """Split a text into words, numbers and operators, in lower case."""
    return re.findall(r"\w+|[+*/^%<>=]|(?<!\w)-(?=\d)", text.casefold())


def _closeness(one: list[str], other: list[str]) -> float:
    """Return the shorter text's length as a share of the longer's, 0 if the meaning may differ."""
    short, long = sorted((one, other), key=len)
    if not short or _decisive_words(short) != _decisive_words(long):
        return 0.0
    rest = iter(long)  # `in` consumes it up to the word it finds, so the order matters
    return len(short) / len(long) if all(word in rest for word in short) else 0.0


def _decisive_words(words: list[str]) -> list[str]:
    """Return the numbers, operators and negations, which decide about a question's meaning."""
    return [word for word in words if word in _NEGATIONS or not word.isalpha()]


def text_message(content: str | None) -> Json:
    """Return an assistant message in OpenAI's format."""
    return {"role": "assistant", "content": content, "refusal": None}


def dump_json(value: object) -> str:
    """Return compact JSON that can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace").decode()  # UTF-8 has no half surrogate pairs, JSON does
