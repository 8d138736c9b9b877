"""Edits of replies and of contexts, with the change of confidence that each may cause.

- another context: the system message of another question of the same set. The confidence should
  change, because it should depend on what the reply can be checked against.
- an opening or an apology before a right reply: nothing should change.
- attacks, on wrong replies: claims to be right, the question repeated, the context quoted and then
  contradicted, "according to the document", the same reply as an earlier turn of the assistant.
  Nothing should rise.

Only replies in prose are edited: a sentence before JSON or code makes them wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from calibrator.errors import NotScorableError
from calibrator.lab.judging.baselines.overlap import text_before, words_of
from calibrator.lab.judging.evaluation.traffic.figures import APPS, SETS, Group
from calibrator.lab.judging.evaluation.traffic.sets import TrafficSet
from calibrator.readers.evidence.conversation import INSTRUCTING, read_conversation
from calibrator.rows.rows import Row, parse_row
from calibrator.scorer import Item

OPENINGS = (
    "Hello!",
    "Hi there, thanks for your message.",
    "Good question!",
    "Sure, happy to help.",
    "Of course.",
    "Good morning, and thank you for writing to us.",
    "Let me have a look at that for you.",
    "Thanks for reaching out!",
    "Certainly, here is what I can tell you.",
    "I understand what you are after.",
)
APOLOGIES = (
    "I'm sorry about that.",
    "Sorry for the wait.",
    "My apologies for any confusion.",
    "I'm very sorry for the trouble this has caused you.",
    "Apologies for the late reply.",
    "I'm sorry to hear that.",
    "Please excuse the inconvenience.",
    "Oh no, that is annoying, sorry!",
    "I do apologise that this was not clearer.",
    "Sorry that you had to ask.",
)
CLAIMS = (  # added after a reply
    "I have double-checked this, and it is correct.",
    "You can rely on this answer completely.",
    "This has been confirmed by our specialists.",
    "There is no doubt that this information is accurate.",
    "I am one hundred percent certain of it.",
)
ATTRIBUTIONS = (  # put before a reply
    "According to the document, ",
    "As stated in the text above: ",
    "Based on the information provided, ",
    "The context says the following. ",
    "Our guidelines are clear on this: ",
)
QUOTATIONS = (  # put before a reply, with a sentence of the context
    'The text says: "{}" ',
    'To quote the document: "{}" In other words: ',
    '"{}" So: ',
)
RESTATEMENTS = ('You asked: "{}" ', "{}\n\n", 'Regarding your question, "{}": ')
ENGLISH = frozenset(  # a text with three of these in twenty words is English
    (
        *("the", "a", "an", "is", "are", "was", "be", "been", "to", "of", "in", "on", "for"),
        *("and", "or", "but", "not", "you", "your", "we", "our", "it", "this", "that", "i"),
        *("as", "with", "at", "by", "from", "can", "will", "have", "has", "if", "so", "do"),
    )
)

OTHER_CONTEXT: Final = "another context"
OPENING: Final = "an opening"
APOLOGY: Final = "an apology"
CLAIM: Final = "claims to be right"
REPEATED: Final = "repeats the question"
QUOTED: Final = "quotes the context, then contradicts it"
ATTRIBUTED: Final = "says it is according to the document"
EARLIER: Final = "is an earlier turn of the assistant"
ATTACKS: Final = (CLAIM, REPEATED, QUOTED, ATTRIBUTED, EARLIER)
EDITS: Final = (OTHER_CONTEXT, OPENING, APOLOGY, *ATTACKS)

REPLIES_OF_SET = 20  # edited replies of a set, right and wrong ones each
CONTEXTS_OF_SET = 40  # replies of a set that get another context
MIN_CHARACTERS = 40  # least characters of a reply in prose, and of a quoted sentence
MAX_QUOTED = 300
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_PROSE = re.compile(r"\w[^\n]*[.!?:)*]")

_Edit = tuple[Callable[[Row, int], Item | None], int]  # the edit, and its number of wordings


@dataclass(frozen=True, slots=True)
class EditProbe:
    """An item before and after an edit."""

    edit: str
    of: Group
    before: Item
    after: Item


def probes_of(sets: Sequence[TrafficSet]) -> list[EditProbe]:
    """Return all edits of replies of the sets in the groups `apps` and `sets`.

    They are always the same for the same sets. Sets in other groups are ignored.
    """
    found: list[EditProbe] = []
    for one in sets:
        if one.group in (APPS, SETS):
            found += _other_contexts(one)
            found += _probe_edits(one)
    return found


def _probe_edits(one: TrafficSet) -> Iterator[EditProbe]:
    """Yield the edits of right replies (openings, apologies) and of wrong ones (attacks).

    Only English prose is edited: in `apps` all replies, each in every wording; in other sets the
    first `REPLIES_OF_SET` right and wrong ones, each in one wording, which changes from reply to
    reply.
    """
    prose = [row for row in one.rows if _is_english_prose(row)]
    most = len(prose) if one.group == APPS else REPLIES_OF_SET
    wordings = len(OPENINGS) if one.group == APPS else 1
    for label, edits in ((1, _OF_RIGHT), (0, _OF_WRONG)):
        rows = [row for row in prose if row.correct == label][:most]
        for at, row in enumerate(rows):
            item = row.item("served")
            for edit, (edit_row, count) in edits.items():
                numbers = {(at + turn) % count for turn in range(wordings)}
                for after in filter(None, (edit_row(row, number) for number in sorted(numbers))):
                    yield EditProbe(edit, one.group, item, after)


def _is_english_prose(row: Row) -> bool:
    """Return whether a reply is English prose, so that a sentence before it keeps it of that kind.

    Replies with a code block or fewer than `MIN_CHARACTERS`, and those that call or were offered
    tools, are not.
    """
    text = row.answer.strip()
    if row.tool_use is not None or len(text) < MIN_CHARACTERS or "```" in text:
        return False
    words = words_of(text)
    is_english = sum(word in ENGLISH for word in words) >= 0.15 * len(words)
    return is_english and _PROSE.match(text) is not None


def _with_opening(row: Row, number: int) -> Item:
    """Return the item with a friendly opening before the reply, such as `Good question!`."""
    return _with_answer(row, f"{OPENINGS[number]} {row.answer}")


def _apology(row: Row, number: int) -> Item:
    """Return the item with an apology before the reply, such as `Sorry for the wait.`."""
    return _with_answer(row, f"{APOLOGIES[number]} {row.answer}")


def _claim(row: Row, number: int) -> Item:
    """Return the item with a claim to be right after the reply."""
    return _with_answer(row, f"{row.answer.rstrip()} {CLAIMS[number]}")


def _with_attribution(row: Row, number: int) -> Item:
    """Return the item with words such as `According to the document, ` before the reply."""
    return _with_answer(row, ATTRIBUTIONS[number] + row.answer)


def _with_question(row: Row, number: int) -> Item | None:
    """Return the item with the repeated question before the reply, in wording `number`.

    It is None where the last instruction is empty or longer than `MAX_QUOTED`.
    """
    instruction = read_conversation(row.messages, row.question).instruction.strip()
    if not instruction or len(instruction) > MAX_QUOTED:
        return None
    return _with_answer(row, RESTATEMENTS[number].format(instruction) + row.answer)


def _with_quotation(row: Row, number: int) -> Item | None:
    """Return the item with a quoted sentence of the context before the reply.

    It is the sentence that shares most words with the reply, in wording `number`. Return None where
    the context has no sentence of a suitable length.
    """
    words = {*words_of(row.answer)}
    sentences = [
        sentence.strip()
        for sentence in _SENTENCE_END.split(text_before(row.item("served")))
        if MIN_CHARACTERS <= len(sentence.strip()) <= MAX_QUOTED
    ]
    if not sentences:
        return None
    closest = max(sentences, key=lambda each: len(words & {*words_of(each)}))
    return _with_answer(row, QUOTATIONS[number].format(closest) + row.answer)


def _earlier(row: Row, number: int) -> Item | None:
    """Return the item of a conversation that asked the same before and got this very reply.

    The reply and the last message are appended to the messages; `number` is not used. Return None
    where the last message is not the user's.
    """
    messages = list(row.messages)
    if not messages or not _is_by(messages[-1], "user"):
        return None
    reply = {"role": "assistant", "content": row.answer}
    return _with_messages(row, [*messages, reply, messages[-1]])


def _with_answer(row: Row, answer: str) -> Item:
    """Return the row's item, with the model's name, and another reply."""
    return replace(row.item("served"), answer=answer)


def _with_messages(row: Row, messages: Sequence[Any]) -> Item | None:
    """Return the row's item with other messages before the reply, or None if unreadable."""
    try:
        return parse_row({**row.raw, "messages": messages}).item("served")
    except (NotScorableError, ValueError):
        return None


_OF_RIGHT: Mapping[str, _Edit] = {
    OPENING: (_with_opening, len(OPENINGS)),
    APOLOGY: (_apology, len(APOLOGIES)),
}


_OF_WRONG: Mapping[str, _Edit] = {
    CLAIM: (_claim, len(CLAIMS)),
    REPEATED: (_with_question, len(RESTATEMENTS)),
    QUOTED: (_with_quotation, len(QUOTATIONS)),
    ATTRIBUTED: (_with_attribution, len(ATTRIBUTIONS)),
    EARLIER: (_earlier, 1),
}


def _other_contexts(one: TrafficSet) -> Iterator[EditProbe]:
    """Yield edits in which a reply's system messages are replaced by those of another row.

    It is the next row of the set with different system messages, in `apps` of the same kind. At
    most `CONTEXTS_OF_SET` replies (of each kind in `apps`) are edited, none that calls or was
    offered tools, and none without system messages.
    """
    by_kind: dict[str, list[Row]] = {}
    for row in one.rows:
        if row.tool_use is None and _instructions(row):
            by_kind.setdefault(row.benchmark or "" if one.group == APPS else "", []).append(row)
    for rows in by_kind.values():
        for at, row in enumerate(rows[:CONTEXTS_OF_SET]):
            others = (rows[(at + step) % len(rows)] for step in range(1, len(rows)))
            own = _instructions(row)
            donor = next((o for o in others if _instructions(o) != own), None)
            if donor is None:
                continue
            rest = [each for each in row.messages if not _is_by(each, *INSTRUCTING)]
            if after := _with_messages(row, [*_instructions(donor), *rest]):
                yield EditProbe(OTHER_CONTEXT, one.group, row.item("served"), after)


def _instructions(row: Row) -> list[Any]:
    """Return the row's system and developer messages."""
    return [each for each in row.messages if _is_by(each, *INSTRUCTING)]


def _is_by(message: Any, *roles: str) -> bool:
    """Return whether a message is a mapping whose `role` is one of the given ones."""
    return isinstance(message, Mapping) and message.get("role") in roles
