"""Values that appear in a conversation without any meaning there.

An attacker can make a wrong call look right by repeating its values before it: in a list, in
brackets, in a log. A real value has words of its own beside it; a planted one has only the other
values of the call beside it, or nothing.

A value that is alone may also be an answer, and nobody can tell. So such a call is read twice, with
the value and without it, and the lower confidence counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from calibrator.readers.calls.reading.conversation import SEGMENT, Call, View
from calibrator.readers.calls.reading.values import (
    STOP,
    Day,
    Value,
    dates_in,
    holds_day,
    name_words,
    stem,
)

REACH = 40  # characters on either side of a value that are read
MAX_PLACES = 6  # places of one value that are read, the first and the last ones
BARE_WORDS = 2  # most other words around a value that is bare

_WORD = re.compile(r"[^\W\d_]{2,}")
_TOKEN = re.compile(r"[^\W_]{2,}")


def planting_traits(values: Sequence[Value], call: Call, view: View) -> dict[str, float]:
    """Return three traits of a call's values that appear only among each other.

    `values` are those that must have a source and have one. The keys are `planted`, the number
    of values that have at most two other words beside them everywhere, `planted_share`, and
    `answered_bare`, the number of values whose first place is a text of nothing else.
    """
    own = {word for v in call.values for word in _WORD.findall(v.text[:200])}
    texts = [text.lower() for text in (*view.turns, *view.results)]
    found = [places for v in values if (places := _places(v, texts))]
    bare = sum(max(_count_others(text, at, end, own) for text, at, end in one) <= BARE_WORDS
               for one in found)  # fmt: skip
    alone = sum(_is_alone(text, at, end) for one in found for text, at, end in one[:1])
    return {
        "planted": float(bare),
        "planted_share": bare / len(found) if found else 0.0,
        "answered_bare": float(alone),
    }


def _places(value: Value, texts: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the places of a value in texts: (text, start, end), at most six; [] if it is empty.

    The first three and the last ones are returned. `texts` are in lower case.
    """
    wanted = value.text
    if value.kind == "number" and value.number is not None:
        wanted = f"{value.number:g}"
    if not wanted:
        return []
    found: list[tuple[str, int, int]] = []
    for text in texts:
        at = text.find(wanted)
        while at >= 0 and len(found) < MAX_PLACES // 2:
            found.append((text, at, at + len(wanted)))
            at = text.find(wanted, at + len(wanted))
    for text in reversed(texts):
        at = text.rfind(wanted)
        while at >= 0 and len(found) < MAX_PLACES:
            found.append((text, at, at + len(wanted)))
            at = text.rfind(wanted, 0, at)
    return found


def _count_others(text: str, at: int, end: int, own: set[str]) -> int:
    """Return the number of words around a place that belong to no value of the call."""
    about = f"{_text_before(text, at)} {text[end : end + REACH].partition(chr(10))[0]}"
    return sum(word not in own and word not in STOP for word in _WORD.findall(about))


def _text_before(text: str, at: int) -> str:
    """Return the text before a place in its line, and the line before if that ends in a colon.

    At most 40 characters are returned.
    """
    lead = text[max(0, at - REACH) : at]
    head, _, line = lead.rpartition("\n")
    return lead if head.rstrip().endswith(":") else line


def _is_alone(text: str, at: int, end: int) -> bool:
    """Return whether a turn has fewer than 20 characters beside the value."""
    return len(text) < end - at + 20


# --- the conversation without planted values ----------------------------------------------------

MAX_VALUES = 40  # values of a reply's calls that are searched for
MAX_VALUE = 60  # characters of each value
DOUBTED_WORDS = 3  # most other words beside a value that say nothing about it
BRIEF_WORDS = 12  # most words of a brief answer
LISTED_WORDS = 4  # most words of a line in a list
LISTED_LINES = 2  # least number of lines without a value in a list that is kept

_OPENING = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
_DECODER = json.JSONDecoder()


def without_planted(view: View) -> View | None:
    """Return the conversation without text that has only values of the calls, or None.

    None if nothing is removed. Brief answers to a question stay. So do fields under the names
    of the calls' arguments, JSON and lists that say more, and a request or a result that would
    be empty otherwise.
    """
    values = Values.from_view(view)
    if values is None:
        return None
    turns = [
        turn if is_answer and len(turn.split()) <= BRIEF_WORDS else values.sentences(turn)
        for turn, is_answer in zip(view.turns, view.is_answer, strict=True)
    ]
    if turns and not _TOKEN.search(turns[-1]):
        turns[-1] = _most_of(view.request, values, Values.sentences)
    results = [_most_of(result, values, Values.lines) for result in view.results]
    if (turns, results) == (view.turns, view.results):
        return None
    return replace(view, turns=turns, results=results)


def _most_of(text: str, values: Values, left: Callable[[Values, str], str]) -> str:
    """Return a text without its bare parts; if nothing is left, remove fewer parts or none.

    `left` is the method of `Values` that removes them; it is tried with ever fewer words
    allowed beside a value.
    """
    for words in range(DOUBTED_WORDS, -1, -1):
        rest = left(replace(values, words=words), text)
        if _TOKEN.search(rest):
            return rest
    return text


@dataclass(slots=True)
class Values:
    """The values of a reply's calls, as they are searched for in a text, with words beside them."""

    texts: list[str]  # in lower case
    days: list[Day]
    own: set[str]  # stems of words in values
    names: set[str]  # stems of words in the names of tools and arguments
    words: int = DOUBTED_WORDS  # most other words in a bare text
    counts: dict[str, int] = field(default_factory=dict)  # number of other words by text

    @classmethod
    def from_view(cls, view: View) -> Values | None:
        """Return the values of a view's calls, at most 40; None if there are none.

        Flags and empty values do not count.
        """
        values = [v for c in view.calls for v in c.values if v.kind not in ("flag", "empty")]
        values = values[:MAX_VALUES]
        texts = {v.text[:MAX_VALUE] for v in values}
        texts |= {f"{v.number:g}" for v in values if v.kind == "number" and v.number is not None}
        names = {word for v in values for word in name_words(v.path)}
        names |= {word for c in view.calls for word in name_words(c.name)}
        own = {stem(word) for v in values for word in _WORD.findall(v.text[:300])}
        days = [day for v in values for day in v.days]
        return cls(sorted(texts - {""}), days, own, set(map(stem, names))) if values else None

    def sentences(self, text: str) -> str:
        """Return a turn without its bare lines, sentences and brackets.

        Bare is a text that has a value of the call and at most `words` other words
        (`is_bare`).
        """
        lines = [line for line in text.splitlines(keepends=True) if not self.is_bare(line)]
        return "".join(
            part for line in lines for part in SEGMENT.findall(line) if not self.is_bare(part)
        )

    def lines(self, text: str) -> str:
        """Return a result without its bare lines; JSON in it stays if it says more.

        Bare is a text that has a value of the call and at most `words` other words
        (`is_bare`).
        """
        at, end = _json_span(text)
        if self.is_bare(text[at:end]):
            at = end = 0
        return self._lines_with_lists(text[:at]) + text[at:end] + self._lines_with_lists(text[end:])

    def _lines_with_lists(self, text: str) -> str:
        """Return a text without its bare lines (`is_bare`), but with whole lists.

        A list is a run of lines of at most four words; it stays whole if at least two of
        its lines are not bare.
        """
        rest, run = [], []
        for line in [*text.splitlines(keepends=True), ""]:
            if 0 < len(_TOKEN.findall(line)) <= LISTED_WORDS:
                run.append(line)
                continue
            plain = [each for each in run if not self.is_bare(each)]
            rest += run if len(plain) >= LISTED_LINES else plain
            run = []
            rest += [line] if not self.is_bare(line) else []
        return "".join(rest)

    def is_bare(self, text: str) -> bool:
        """Return whether a text has a value of the call and at most `words` other words.

        `order 77 please` is bare for the value 77 unless it has a name of the tool or of an
        argument. Results are remembered.
        """
        if text not in self.counts:
            self.counts[text] = self._count(text.lower())
        return self.counts[text] <= self.words

    def _count(self, text: str) -> int:
        """Return the number of other words beside a value in a text in lower case.

        It is `DOUBTED_WORDS` + 1 if the text has no value, or a name of a tool or an
        argument.
        """
        others = [word for word in map(stem, _WORD.findall(text)) if word not in self.own]
        if len(others) > DOUBTED_WORDS or not self.names.isdisjoint(others):
            return DOUBTED_WORDS + 1
        near = [each for each in self.texts if each in text]
        is_held = any(re.search(rf"(?<!\w){re.escape(each)}(?!\w)", text) for each in near)
        if not is_held and self.days:
            text_days = dates_in(text)
            is_held = any(holds_day(text_days, day) for day in self.days)
        return len(others) if is_held else DOUBTED_WORDS + 1


def _json_span(text: str) -> tuple[int, int]:
    """Return the start and end of the first JSON object or list that begins a line, else (0, 0)."""
    found = _OPENING.search(text)
    if found is None:
        return 0, 0
    try:
        return found.end() - 1, _DECODER.raw_decode(text, found.end() - 1)[1]
    except (ValueError, RecursionError):
        return 0, 0
