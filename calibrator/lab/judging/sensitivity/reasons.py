"""Measures whether a number moves as its reasons claim, when the named cause is removed.

Each reason that a scorer gives for a low number (`Score.because`) has an edit of the texts, or of
the name of the model, that removes its cause and nothing else. The confidence must rise. An edit is
made without the scorer. A reply that cannot be edited does not count.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items
from calibrator.scorer import Item, Scorer
from calibrator.text.options import final_letter, options_of

MAX_ROWS = 1_000
MOVED = 0.0001  # the least rise of a confidence, one unit of the last shown digit
SEED = 20_261_125
# The names of these models, of medium ability and several makers, replace one that is often wrong.
OTHER_MODELS = ("gpt-4o", "mistral-large", "llama-4-maverick", "qwen2.5-14b-instruct")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_RESULT = re.compile(r"=\s*[$€£]?\s*(-?\d[\d,]*(?:\.\d+)?)(?!\s*[-+*/\u00d7\d(])")
_SENTENCE_END = re.compile(r"[.!?。](?=\s|$)")
_WORD = re.compile(r"[a-z]{3,}|\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ReasonFigures:
    """The change of confidences when the cause that a reason names is removed.

    Of `told` replies `edited` could be edited; `share` of these rose, by `rise` in the mean.
    `right` is the share of right ones among all replies with the reason.
    """

    reason: str
    told: int
    edited: int
    share: float
    rise: float
    right: float


@dataclass(frozen=True, slots=True)
class ReasonStudy:
    """The figures of each reason, and of all together."""

    calibrator: str
    rows: int  # number of scored rows
    entries: list[ReasonFigures]
    all: ReasonFigures

    def as_json(self) -> str:
        """Return the study as indented JSON text; figures that do not exist are NaN."""
        return json.dumps(asdict(self), indent=1)


@dataclass(frozen=True, slots=True)
class _ReasonedReply:
    """A reply with one reason for its low confidence, and items in which its cause is removed."""

    row: Row
    reason: str
    confidence: float
    edited: list[Item]


def study_reasons(
    scorer: Scorer,
    rows: Sequence[Row],
    most: int = MAX_ROWS,
    progress: Callable[[int], None] = lambda _: None,
) -> ReasonStudy:
    """Score rows, remove the named causes in at most `most` replies, and score those again.

    A reply counts once for each of its reasons; they are drawn evenly over the kinds of reasons,
    the same ones for the same rows. Kinds of the entries are the reasons' texts before `: `, the
    one with most drawn replies first. `progress` is called with the number of rows scored in the
    first pass only.
    """
    scores = score_items(scorer, [row.item("served") for row in rows], progress)
    members: dict[str, list[tuple[Row, str, float]]] = defaultdict(list)
    for row, score in zip(rows, scores, strict=True):
        for reason in score.because:
            members[reason.partition(": ")[0]].append((row, reason, score.confidence))
    siblings: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        siblings[row.question_id].append(row)
    chosen = {
        kind: [_edit_reply(*each, siblings) for each in drawn]
        for kind, drawn in _draw_evenly(members, most).items()
    }
    flat = [item for edits in chosen.values() for each in edits for item in each.edited]
    after = iter(score_items(scorer, flat))
    rises = {
        kind: [
            float(np.mean([next(after).confidence for _ in each.edited])) - each.confidence
            for each in edits
            if each.edited
        ]
        for kind, edits in chosen.items()
    }
    rights = {kind: [row.correct == 1 for row, _, _ in named] for kind, named in members.items()}
    entries = [_figures(kind, len(chosen[kind]), rises[kind], rights[kind]) for kind in chosen]
    entries.sort(key=lambda one: -one.told)
    together = _figures(
        "all",
        sum(one.told for one in entries),
        [rise for each in rises.values() for rise in each],
        [each for right in rights.values() for each in right],
    )
    return ReasonStudy(scorer.name, len(rows), entries, together)


def _draw_evenly(
    members: Mapping[str, list[tuple[Row, str, float]]], most: int
) -> dict[str, list[tuple[Row, str, float]]]:
    """Return for each kind some of its members, at most `most` in all, about as many of each.

    A member is (row, reason, confidence). Kinds with few members come first; what they do not use
    is left to the others.
    """
    rng = random.Random(SEED)
    found, remaining = {}, most
    for number, kind in enumerate(sorted(members, key=lambda each: (len(members[each]), each))):
        share = remaining // (len(members) - number)
        found[kind] = rng.sample(members[kind], min(len(members[kind]), share))
        remaining -= len(found[kind])
    return found


def _figures(
    reason: str, count: int, rises: Sequence[float], right: Sequence[bool]
) -> ReasonFigures:
    """Return how often and how far the confidence rose when a reason's cause was removed.

    `count` is the number of chosen replies, `rises` has the change for each that could be edited,
    and `right` whether each reply with the reason is right. Means of nothing are nan.
    """

    def mean(values: Sequence[float] | Sequence[bool]) -> float:
        """Return the mean of the values, or nan for none."""
        return float(np.mean(values)) if len(values) else float("nan")

    share = mean([rise > MOVED for rise in rises])
    return ReasonFigures(reason, count, len(rises), share, mean(rises), mean(right))


def _edit_reply(
    row: Row, reason: str, confidence: float, siblings: Mapping[str, list[Row]]
) -> _ReasonedReply:
    """Return a reply with its reason, and with items in which the reason's cause is removed.

    `edited` has several items where there are several ways (other models' names, up to three
    answers of `siblings`, the rows by question), and is empty where there is none.
    """
    item = row.item("served")
    if row.tool_use is not None and row.tool_use.has_calls:
        # Only replies with calls need that package, which is large.
        from calibrator.lab.data.calls.taken_away import taken_away

        edited = taken_away(row.tool_use, reason)
        changed = [replace(item, tool_use=edited, messages=edited.messages)] if edited else []
        return _ReasonedReply(row, reason, confidence, changed)
    if reason in _OF_MODELS:
        return _ReasonedReply(row, reason, confidence, _with_others_names(item))
    if reason == "it does not answer the question":
        answers = [other.answer for other in siblings[row.question_id] if other is not row][:3]
    else:
        answer = _OF_TEXTS[reason](row) if reason in _OF_TEXTS else None
        answers = [answer] if answer is not None and answer != row.answer else []
    return _ReasonedReply(row, reason, confidence, [replace(item, answer=each) for each in answers])


def _with_others_names(item: Item) -> list[Item]:
    """Return copies of the item, one under the name of each of `OTHER_MODELS` but its own."""
    own = (item.source_model or "").lower()
    return [replace(item, source_model=name) for name in OTHER_MODELS if name != own]


def number_arrived_at(row: Row) -> str | None:
    """Return the answer with its last number replaced by the last result of its working, or None.

    A result is the number after an equals sign before that number, as in `3 * 4 = 12`. None where
    there is no result, or it is the last number already.
    """
    numbers = list(_NUMBER.finditer(row.answer))
    results = list(_RESULT.finditer(row.answer, 0, numbers[-1].start())) if numbers else []
    if not results or results[-1][1].replace(",", "") == numbers[-1][0].replace(",", ""):
        return None
    last = numbers[-1]
    return row.answer[: last.start()] + results[-1][1] + row.answer[last.end() :]


def option_argued_for(row: Row) -> str | None:
    """Return the answer with its final letter replaced by the option that its working argues for.

    That is the option of the question with the largest share of its words in the last 400
    characters before the phrase with the letter, such as `the answer is (B)`. None where the
    question has no options, the answer no final letter of one, no option has words there, or it is
    the one that the answer names.
    """
    options, found = options_of(row.question), final_letter(row.answer)
    if not options or found is None or found[1].upper() not in options:
        return None
    working = row.answer[: found.start()].lower()[-400:]
    words = {letter: set(_WORD.findall(text.lower())) for letter, text in options.items()}
    shares = {
        letter: len([word for word in own if word in working]) / len(own)
        for letter, own in words.items()
        if own
    }
    best = max(shares, key=lambda letter: (shares[letter], letter), default=found[1])
    if best == found[1].upper() or not shares[best]:
        return None
    return row.answer[: found.start(1)] + best + row.answer[found.end(1) :]


def cut_to_sentence(row: Row) -> str | None:
    """Return the answer up to the end of its last whole sentence, or None without one.

    A sentence ends with `.`, `!`, `?` or `。` before a space or the end.
    """
    ends = list(_SENTENCE_END.finditer(row.answer.rstrip()))
    return row.answer[: ends[-1].end()] if ends else None


_OF_TEXTS: dict[str, Callable[[Row], str | None]] = {
    "the final number is not what the working arrives at": number_arrived_at,
    "the final option is not what the working argues for": option_argued_for,
    "it breaks off before its end": cut_to_sentence,
}
_OF_MODELS = (
    "the model is often wrong on such questions",
    "the calibrator does not know the model",
)
