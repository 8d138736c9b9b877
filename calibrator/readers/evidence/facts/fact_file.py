"""The facts that an operator provides: a file of names and texts, one JSON object a line.

    {"name": "Lumo desk lamp", "text": "The Lumo desk lamp costs 49 euros and comes in white."}

The few texts about a request and its reply are context, like a document in the conversation. Texts
that have nothing to do with the request are never read, so they change no score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibrator.errors import InputError, NotScorableError, os_error_sentence
from calibrator.readers.evidence.conversation import split_request
from calibrator.readers.evidence.facts.fact_index import FactIndex
from calibrator.scorer import Item
from calibrator.text.transcript import content_text

MOST_BYTES: Final = 32_000_000  # bytes of a file; its index takes about four times the memory
MOST_NAME: Final = 200  # characters
MOST_TEXT: Final = 200_000  # characters
MOST_PROBLEMS: Final = 5  # mistakes that one error reports
KEYS: Final = ("name", "text")
MOST_REQUEST: Final = 2_000  # last characters of a request that are searched for names
MOST_REPLY: Final = 4_000  # first characters of a reply that are searched for names
LONG_REQUEST: Final = 20_000  # characters; the question of a longer request is at its end
MOST_MESSAGES: Final = 16  # last messages that are searched for the user's last two turns


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the file: the name of a subject, and the text about it."""

    name: str
    text: str


class FactFile:
    """The facts of one file, with an index that finds those a reply should agree with."""

    def __init__(self, path: Path, facts: Sequence[Fact]) -> None:
        self.path = path
        self.count = len(facts)
        self._index = FactIndex((each.name, each.text) for each in facts)

    def about(self, request: str, reply: str) -> tuple[str, ...]:
        """Return the texts that a request and its reply are about, the closest first."""
        return self._index.find(request[-MOST_REQUEST:], reply[:MOST_REPLY])

    def about_item(self, item: Item) -> tuple[str, ...]:
        """Return the texts that the last question of an item and its answer are about.

        A short question such as "And in blue?" is read together with the question before it.
        """
        asked = _questions(item)
        found = self.about(asked[0], item.answer)
        if found or len(asked) == 1 or not self._index.is_short(asked[0]):
            return found
        return self.about(" ".join(asked), item.answer)


def load_facts(path: Path) -> FactFile:
    """Read a file of facts.

    Raises InputError, with the path and line of each mistake, for a file that cannot be read or is
    too large, and for lines that are not an object of a name and a text.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(
                f"{path}: the file is larger than {MOST_BYTES // 1_000_000} MB; "
                "keep what customers ask about, or split it between several proxies"
            )
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise InputError(os_error_sentence(error)) from error
    facts: list[Fact] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            facts.append(_fact(line))
        except ValueError as error:
            problems.append(f"{path}:{number}: {error}")
            if len(problems) == MOST_PROBLEMS:
                break
    if problems:
        raise InputError("\n".join(problems))
    if not facts:
        raise InputError(f'{path}: no facts in it; a line is {{"name": "..", "text": ".."}}')
    return FactFile(path, facts)


def _fact(line: bytes) -> Fact:
    """Parse one line. Raises ValueError with a description of the mistake in it."""
    try:
        values = json.loads(line)
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text; save the file as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"not JSON ({error}); each line is one object, {{'name': .., 'text': ..}}"
        ) from error
    if not isinstance(values, dict):
        raise ValueError(f"a fact is an object with a name and a text, not {_kind(values)}")
    if unknown := sorted(values.keys() - set(KEYS)):
        raise ValueError(f"unknown key {unknown[0]!r}; a fact has the keys 'name' and 'text'")
    return Fact(_text(values, "name", MOST_NAME), _text(values, "text", MOST_TEXT))


def _text(values: Mapping[str, Any], key: str, most: int) -> str:
    """Return a string field, stripped. Raises ValueError if it is missing, empty or too long."""
    if key not in values:
        raise ValueError(f"{key!r} is missing")
    value = values[key]
    if not isinstance(value, str):
        raise ValueError(f"{key!r} must be a string, not {_kind(value)}")
    if not value.strip():
        raise ValueError(f"{key!r} is empty")
    if len(value) > most:
        raise ValueError(f"{key!r} has {len(value):,} characters; {most:,} are the most")
    return value.strip()


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _questions(item: Item) -> list[str]:
    """Return the user's last request, without a document in it, and the one before it."""
    texts = list(_user_texts(item.messages)) or [item.question]
    return [_instruction(text) for text in texts]


def _user_texts(messages: Sequence[Any]) -> Iterator[str]:
    """Yield the texts of the user's last two messages, the last one first."""
    count = 0
    for message in reversed(messages[-MOST_MESSAGES:]):
        if not isinstance(message, Mapping) or message.get("role") != "user":
            continue
        try:
            text = content_text(message.get("content"), [])
        except (NotScorableError, ValueError):
            continue
        yield text
        count += 1
        if count == 2:
            return


def _instruction(request: str) -> str:
    if len(request) > LONG_REQUEST:
        return request[-MOST_REQUEST:]
    return split_request(request)[0]
