"""Probes of a scorer: the same rows again with something changed (paper K10-K13, H17).

- metadata: names given as served, both, none (K10);
- question: empty, or `[QUESTION REDACTED]` (K11);
- hedging: words of doubt removed from the answers, or added to them (K12);
- truncation: only the answer's first characters; a calibrator with a limit of its own then reads
  all of these (K13).
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from calibrator.lab.studies.studies import Study, entry_of
from calibrator.metrics.metrics import Floats
from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items
from calibrator.scorer import Item, Scorer, with_answer_characters

REDACTED = "[QUESTION REDACTED]"
HEDGES = ("maybe", "I think", "possibly")  # of K12
BUDGETS = (200, 400, 800, 1_600, 3_000)  # characters of the answer, K13
AS_SERVED = "as served"
SEED = 20_261_121
_HEDGE = re.compile(
    r"\b(?:maybe|perhaps|possibly|i think(?: that)?|i believe(?: that)?|probably)\b,?\s*", re.I
)
_SENTENCE = re.compile(r"(?:(?<=^)|(?<=[.!?]\s))(?=\S)")


def strip_hedges(answer: str) -> str:
    """Return the answer without its words of doubt, such as `maybe` or `I think that`."""
    return _HEDGE.sub("", answer)


def inject_hedges(answer: str) -> str:
    """Return the answer with a word of doubt before its first sentence and every third one after.

    The words take turns, such as `Maybe, ` and `I think, `; the sentences themselves are unchanged.
    """
    starts = [match.start() for match in _SENTENCE.finditer(answer)][::3]
    parts = [answer[: starts[0]] if starts else answer]
    for number, (at, end) in enumerate(itertools.pairwise([*starts, len(answer)])):
        hedge = HEDGES[number % len(HEDGES)]
        parts += [hedge[0].upper(), hedge[1:], ", ", answer[at:end]]
    return "".join(parts)


def _answer(change: Callable[[str], str]) -> Callable[[Row], Item]:
    """Return a function that makes a row's item as served, with its answer changed by `change`."""

    def change_item(row: Row) -> Item:
        item = row.item("served")
        return replace(item, answer=change(item.answer))

    return change_item


def _cut_after(characters: int) -> Callable[[str], str]:
    """Return a function that returns the first `characters` of a text."""
    return lambda answer: answer[:characters]


def _budget_label(characters: int) -> str:
    return f"answer: first {characters:,} characters"


PROBES: dict[str, Callable[[Row], Item]] = {
    AS_SERVED: lambda row: row.item("served"),
    "names: model and benchmark": lambda row: row.item("all"),
    "names: none": lambda row: row.item("none"),
    "question: empty": lambda row: replace(row.item("served"), question="", messages=()),
    f"question: {REDACTED}": lambda row: replace(
        row.item("served"), question=REDACTED, messages=()
    ),
    "answer: empty": _answer(lambda _: ""),
    "hedges: taken out": _answer(strip_hedges),
    "hedges: put in": _answer(inject_hedges),
    **{_budget_label(n): _answer(_cut_after(n)) for n in BUDGETS},
}
_BOUNDS = {_budget_label(n): n for n in BUDGETS}


def sample(rows: Sequence[Row], count: int) -> list[Row]:
    """Return at most `count` rows, always the same ones, in their order."""
    if len(rows) <= count:
        return list(rows)
    return [rows[i] for i in sorted(random.Random(SEED).sample(range(len(rows)), count))]


def probe(
    scorer: Scorer, rows: Sequence[Row], progress: Callable[[int], None] = lambda _: None
) -> Study:
    """Score the rows once for each probe of `PROBES`, and return these as a study's entries.

    The reference is the confidences as served. `progress` gets the number of rows just scored.
    """
    entries = []
    reference: Floats | None = None
    for label, change in PROBES.items():
        bound = _BOUNDS.get(label)
        bounded = scorer if bound is None else with_answer_characters(scorer, bound)
        found = score_items(bounded, [change(row) for row in rows], progress)
        confidence = np.array([score.confidence for score in found])
        reference = confidence if reference is None else reference
        entries.append(entry_of(label, 0, rows, confidence, reference))
    return Study("probes", scorer.name, entries)
