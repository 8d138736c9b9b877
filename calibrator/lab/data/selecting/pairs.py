"""Pairs for preference training: the surest and the least sure reply to a question (paper P01).

A pair is made where their confidences are far enough apart. Files are read twice. Only the
positions of the two replies to each question are kept in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calibrator.lab.data.selecting.scored_lines import Json, ScoredLine, scored_lines

Place = tuple[int, int]


@dataclass(slots=True)
class Extremes:
    """The surest and the least sure reply to a question, and the counts of its labels."""

    high: float
    low: float
    high_at: Place
    low_at: Place
    right: int = 0
    wrong: int = 0

    @property
    def by_chance(self) -> float:
        """P(of two replies drawn at random one is right and the other wrong)."""
        count = self.right + self.wrong
        return 2 * self.right * self.wrong / (count * (count - 1)) if count > 1 else 0.0


@dataclass
class PairSelection:
    """The pairs of files; the counts fill while `make_pairs` is read.

    `informative` pairs have a right and a wrong reply, and in `good` ones the right reply is the
    chosen one. `by_chance` is the expected number of informative pairs, if drawn at random from the
    same questions.
    """

    gap: float
    questions: int = 0
    pairs: int = 0
    labelled: int = 0
    informative: int = 0
    good: int = 0
    by_chance: float = 0.0
    _found: dict[str, Extremes] = field(default_factory=dict)

    def make_pairs(self, paths: Sequence[Path]) -> Iterator[Json]:
        """Yield a pair for each question whose confidences differ by `gap` or more.

        The files are read twice; a pair comes as soon as both replies were read again. The
        selection's counts are updated in place. See `pair_of` for its form.
        """
        for row in scored_lines(paths):
            self._look_at(row)
        wanted: dict[Place, str] = {}
        for question, each in self._found.items():
            if each.high - each.low >= self.gap and each.high_at != each.low_at:
                wanted[each.high_at] = wanted[each.low_at] = question
        self.questions = len(self._found)
        waiting: dict[str, ScoredLine] = {}
        for row in scored_lines(paths):
            question_of = wanted.get((row.file, row.line))
            if question_of is None:
                continue
            first = waiting.pop(question_of, None)
            if first is None:
                waiting[question_of] = row
                continue
            chosen, rejected = sorted((first, row), key=lambda each: -each.confidence)
            self._count(chosen, rejected, self._found[question_of])
            yield pair_of(question_of, chosen.raw, rejected.raw)

    def _look_at(self, row: ScoredLine) -> None:
        """Record a reply's place if its confidence is an extreme; count its label."""
        question, place = _question(row.raw), (row.file, row.line)
        found = self._found.get(question)
        if found is None:
            found = Extremes(row.confidence, row.confidence, place, place)
            self._found[question] = found
        elif row.confidence > found.high:
            found.high, found.high_at = row.confidence, place
        elif row.confidence < found.low:
            found.low, found.low_at = row.confidence, place
        if row.correct is not None:
            found.right += row.correct
            found.wrong += not row.correct

    def _count(self, chosen: ScoredLine, rejected: ScoredLine, found: Extremes) -> None:
        """Count a pair, and if both have labels whether these differ and favour `chosen`.

        `found` has the question's labels, from which the number expected by chance is
        added.
        """
        self.pairs += 1
        if chosen.correct is None or rejected.correct is None:
            return
        self.labelled += 1
        self.informative += chosen.correct != rejected.correct
        self.good += chosen.correct and not rejected.correct
        self.by_chance += found.by_chance


def _question(raw: Mapping[str, Any]) -> str:
    """Return the text that identifies a row's question: its `question_id`, text or messages."""
    return str(raw.get("question_id") or raw.get("question") or raw.get("messages"))


def pair_of(question: str, chosen: Json, rejected: Json) -> Json:
    """Return a pair for preference trainers: `prompt`, `chosen`, `rejected` and their origin.

    If the chosen row has `messages`, the prompt is these and the replies are lists of one
    message; else all are texts. Confidences and models of both follow.
    """
    talked = isinstance(chosen.get("messages"), list)
    return {
        "question_id": question,
        "prompt": chosen["messages"] if talked else chosen.get("question", ""),
        "chosen": _reply(chosen, is_message=talked),
        "rejected": _reply(rejected, is_message=talked),
        "chosen_confidence": chosen["confidence"],
        "rejected_confidence": rejected["confidence"],
        "chosen_model": chosen.get("model"),
        "rejected_model": rejected.get("model"),
    }


def _reply(raw: Json, *, is_message: bool) -> Any:
    """Return the row's response; with `is_message` as a list of one message of the assistant."""
    response = raw.get("response")
    if not is_message:
        return response
    return [response if isinstance(response, dict) else {"role": "assistant", "content": response}]
