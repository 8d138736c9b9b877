"""The demo's canned answers, right and wrong ones, and how a question finds its own.

They stand in `demo.yaml` with their labels: a newcomer sees what a confidence is worth, and a test
measures it.
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

EMBEDDED_AUROC = 0.60
"""What the embedded calibrator reaches on them;
tests/calibrator/embedded/test_embedded_checkpoint.py measures it."""

MOST_CHARACTERS = 2_000  # of a question that is compared with canned ones, which are far shorter
_CLOSE = 0.8  # the share of words that a question must have in common with a canned one
_NEGATIONS = frozenset({"not", "no", "never", "without", "except", "t"})  # "t" as in "don't"


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One labelled answer; the rows of one question share its `question_id`.

    `content` is None where the answer is tool calls: `calls`, each with `name` and `arguments`.
    `tools` are the definitions, in OpenAI's format, of the functions that those calls assume.
    `system` is the system message by which the label holds, empty where it takes none.
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
        """Return the conversation that this answers, as OpenAI's messages."""
        rules = [{"role": "system", "content": self.system}] if self.system else []
        return [*rules, {"role": "user", "content": self.question}]

    def message(self) -> Json:
        """The answer as OpenAI's assistant message, with new call ids each time."""
        message = text_message(self.content)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{uuid4().hex[:24]}",
                    "type": "function",
                    "function": {"name": call["name"], "arguments": dumped(call["arguments"])},
                }
                for call in self.calls
            ]
        return message


@cache
def rows() -> tuple[DemoRow, ...]:
    """Every labelled answer, in the order of the file."""
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
    """The answers to each question, in the order of the file."""
    return {text: tuple(group) for text, group in groupby(rows(), key=lambda row: row.question)}


def first_question(*, correct: bool = False) -> str:
    """A short question for a first try: the demo answers it wrongly, or with `correct` rightly."""
    return next(text for text, found in questions().items() if found[0].correct is correct)


def find_answers(question: str) -> tuple[DemoRow, ...]:
    """The answers to the canned question that `question` stands for, () where it is none.

    Case, white space and punctuation do not count. A few words may be added or left out, but none
    changed or moved: "most" is never taken for "least".
    """
    if len(question) > MOST_CHARACTERS:
        return ()
    asked = words_of(question)
    closest = max(questions(), key=lambda known: _closeness(asked, words_of(known)))
    return questions()[closest] if _closeness(asked, words_of(closest)) >= _CLOSE else ()


def words_of(text: str) -> list[str]:
    """Words, numbers and operators, in lower case."""
    return re.findall(r"\w+|[+*/^%<>=]|(?<!\w)-(?=\d)", text.casefold())


def _closeness(one: list[str], other: list[str]) -> float:
    """The length of the shorter text as a share of the longer, 0 where the meaning may differ."""
    short, long = sorted((one, other), key=len)
    if not short or _telling(short) != _telling(long):
        return 0.0
    rest = iter(long)  # `in` reads it up to the word it finds, so the order counts
    return len(short) / len(long) if all(word in rest for word in short) else 0.0


def _telling(words: list[str]) -> list[str]:
    """Numbers, operators and negations: a question without one of these is another question."""
    return [word for word in words if word in _NEGATIONS or not word.isalpha()]


def text_message(content: str | None) -> Json:
    """An assistant message of OpenAI's."""
    return {"role": "assistant", "content": content, "refusal": None}


def dumped(value: object) -> str:
    """Compact JSON that can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace").decode()  # JSON may carry half characters, UTF-8 may not
