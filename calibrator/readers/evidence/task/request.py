"""The parts of a request that show the kind of its task.

A request may be a whole book, so only its two ends are read; lines are counted in its first 20,000
characters. A system message like "You are a helpful assistant" is skipped: benchmarks are run with
and without one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from calibrator.readers.evidence.conversation import Conversation

HEAD, TAIL = 900, 300  # characters of a request
COUNTED = 20_000  # characters in which lines are counted
HEAD_WORDS, TAIL_WORDS = 48, 24
SHORT_RULES = 400  # characters; longer rules always say something of their own
_WORDS: Final = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_+")
_SENTENCE_ENDS: Final = re.compile(r"[.!?\n]+")
_GENERIC: Final = re.compile(
    r"\s*(?:you are|you're) (?:a|an|the)?\s*(?:\w+, |\w+ and )?\w* ?(?:ai |language |large )*"
    r"(?:assistant|model|chatbot|ai|bot|chatgpt|gpt|claude|llama|qwen|gemini|mistral)\b"
    r"(?:,? (?:a|an|based|trained|created|made|developed|from|by|language|large|model)\b[\w ,-]*)?"
    r"\s*|\s*(?:please )?(?:answer|respond|reply)(?: to)?(?: the| all| any| my| users?'?s?)*"
    r"(?: questions?| requests?)?"
    r"(?: as)?(?: accurately| correctly| concisely| briefly| truthfully| helpfully| honestly"
    r"| carefully| clearly| and| well| possible| in english| short)*\s*"
    r"|\s*(?:be|stay) (?:helpful|concise|brief|honest|accurate|precise|polite|harmless|and|, )"
    r"[\w ,]{0,40}|\s*(?:let's )?think (?:carefully |it through |hard )*(?:step by step|first)?\s*"
    r"|\s*today(?:'s date)? is [\w ,:-]{4,40}|\s*(?:current date|knowledge cutoff): [\w ,:-]{4,40}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The ends and the words of a request, and the sizes of the texts beside it."""

    text: str  # the head, and the tail of a longer request after a line break
    length: int  # characters of the whole request
    lines: int
    head: list[str]  # words and marks in lower case
    tail: list[str]
    last: list[str]  # the first words of the last paragraph, if there are several
    rules: int  # characters of rules that are not generic
    turns: int  # earlier turns
    results: int  # results of tools
    has_tools: bool


def read_request(conversation: Conversation, *, has_tools: bool = False) -> TaskRequest:
    """Read the parts of a conversation that show its kind, in bounded time."""
    asked = conversation.request
    text = asked[: HEAD + TAIL].strip()
    if len(asked) > HEAD + TAIL:
        text = f"{asked[:HEAD].strip()}\n{asked[-TAIL:].strip()}"
    last = text[text.rfind("\n\n") + 2 :] if "\n\n" in text else ""
    words = _words(text[:360])
    return TaskRequest(
        text=text,
        length=len(asked),
        lines=asked.count("\n", 0, COUNTED) + 1,
        head=words[:HEAD_WORDS],
        tail=(words if len(text) <= 180 else _words(text[-180:]))[-TAIL_WORDS:],
        last=_words(last[:60])[:6],
        rules=own_rules(conversation.rules),
        turns=len(conversation.earlier),
        results=len(conversation.results),
        has_tools=has_tools,
    )


def own_rules(rules: str) -> int:
    """Return the number of characters in rules; in short rules without generic sentences."""
    if len(rules) > SHORT_RULES:
        return len(rules)
    sentences = _SENTENCE_ENDS.split(rules)
    return sum(len(each) for each in sentences if each.strip() and not _GENERIC.fullmatch(each))


def _words(text: str) -> list[str]:
    return _WORDS.findall(text.lower())
