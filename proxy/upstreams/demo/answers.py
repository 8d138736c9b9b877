"""The demo's canned answers, right and wrong ones: found, judged, and turned into JSON.

They are in `demo.yaml` with their labels, so that a newcomer can see what a confidence is worth,
and a test can measure it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import yaml

from proxy.errors import BadRequestError
from proxy.http.wire.json_splice import json_object

Json = dict[str, Any]

JUDGE: Final = "demo-judge"  # a model that knows the labels, and is wrong about one in eight
SURE: Final = 0.9  # the probability of its verdict

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
    """Load all labelled answers from `demo.yaml`, in the order of the file; cached."""
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
    """Return the labelled answers by the text of their question, in the order of the file."""
    return {text: tuple(group) for text, group in groupby(rows(), key=lambda row: row.question)}


def first_question(*, correct: bool = False) -> str:
    """Return a question for a first try, which the demo answers wrongly (rightly if `correct`)."""
    return next(
        text
        for text, rows_of_question in questions().items()
        if rows_of_question[0].correct is correct
    )


def find_answers(question: str) -> tuple[DemoRow, ...]:
    """Return the labelled answers to the canned question that `question` means, () for none.

    Case, white space and punctuation are ignored. A few words may be added or left out, but none
    changed or moved: "most" is never taken for "least".
    """
    if len(question) > MOST_CHARACTERS:
        return ()
    words = words_of(question)
    closest = max(questions(), key=lambda known: _closeness(words, words_of(known)))
    return questions()[closest] if _closeness(words, words_of(closest)) >= _CLOSE else ()


def words_of(text: str) -> list[str]:
    """Split a text into words, numbers and operators, in lower case."""
    return re.findall(r"\w+|[+*/^%<>=]|(?<!\w)-(?=\d)", text.casefold())


def _closeness(one: list[str], other: list[str]) -> float:
    """Return the shorter list's length as a share of the longer's, 0 if the meaning may differ.

    That is so if a word of the shorter one is missing or moved, or numbers, operators and negations
    differ.
    """
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


def judged_choice(text: str, *, has_logprobs: bool) -> Json:
    """Return the choice with which the demo's judge answers a prompt, in OpenAI's format.

    The text is True or False and a percentage, such as `True 90`, about the canned answer in the
    prompt. With `has_logprobs` the first token has log-probabilities. If there is no canned answer,
    the message says so.
    """
    row = _longest_answer_in(text.rpartition("<answer")[2])
    if row is None:
        message = text_message("There is no canned answer in this text that I could judge.")
        return {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    p = SURE if row.correct != _is_mistaken(row) else 1 - SURE
    word = str(p >= 0.5)
    tokens = [
        {"token": name, "logprob": math.log(q)} for name, q in (("True", p), ("False", 1 - p))
    ]
    first = {**next(each for each in tokens if each["token"] == word), "top_logprobs": tokens}
    return {
        "index": 0,
        "message": text_message(f"{word} {round(100 * p)}"),
        "logprobs": {"content": [first], "refusal": None} if has_logprobs else None,
        "finish_reason": "stop",
    }


def _longest_answer_in(text: str) -> DemoRow | None:
    """Return the longest canned answer that the text contains, or None."""
    found = [row for row in rows() if row.content and row.content in text]
    return max(found, key=lambda row: len(row.content or ""), default=None)


def _is_mistaken(row: DemoRow) -> bool:
    """Return whether the judge is wrong about this answer, as about one in eight."""
    return hashlib.sha256(row.id.encode()).digest()[0] % 8 == 0


def format_answer(content: str, response_format: Json) -> str:
    """Convert an answer to the JSON that `response_format` asks for, or return it unchanged.

    It is unchanged for a format that does not ask for JSON. Raises BadRequestError for a schema
    that the demo cannot fill.
    """
    fields = json_object(content)
    match response_format:
        case {"type": "json_object"}:
            return dump_json({"answer": content} if fields is None else fields)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            try:
                return dump_json(
                    _fill_schema(schema, content if fields is None else fields, schema)
                )
            except (AttributeError, KeyError, TypeError, RecursionError):
                text = "Invalid schema for response_format: the demo cannot fill it."
                raise BadRequestError(text, param="response_format") from None
    return content


def _fill_schema(schema: Json, source: Any, root: Json) -> Any:
    """Return a value of a JSON Schema's type, with the content of `source` as far as possible.

    `root` is the whole schema, for references. Raises AttributeError, KeyError, TypeError or
    RecursionError for a schema that it cannot follow.
    """
    match schema:
        case {"$ref": str(pointer)}:
            target = reduce(lambda node, step: node[step], pointer.split("/")[1:], root)
            return _fill_schema(target, source, root)
        case {"anyOf": [first, *_]}:
            return _fill_schema(first, source, root)
        case {"const": value}:
            return value
        case {"enum": [first, *_] as values}:
            options = {str(value).casefold(): value for value in values}
            return next((options[word] for word in words_of(str(source)) if word in options), first)
        case {"type": [first, *_]}:
            return _fill_schema(schema | {"type": first}, source, root)
        case {"type": "object"}:
            fields = source if isinstance(source, dict) else {}
            parts = schema.get("properties", {}).items()
            return {
                name: _fill_schema(part, fields.get(name, source), root) for name, part in parts
            }
        case {"type": "array"}:
            items = source if isinstance(source, list) else [source]
            return [_fill_schema(schema.get("items", {}), item, root) for item in items]
        case {"type": "string"}:
            return source if isinstance(source, str) else dump_json(source)
        case {"type": "boolean"}:
            return source if isinstance(source, bool) else not re.match(r"(?i)no\b", str(source))
        case {"type": "integer" | "number" as kind}:
            # The last number of an answer is most often its result.
            numbers = re.findall(r"-?\d{1,15}(?:\.\d+)?", str(source).replace(",", ""))
            number = float(numbers[-1]) if numbers else 0.0
            return int(number) if kind == "integer" else number
        case {"type": "null"}:
            return None
    return source
