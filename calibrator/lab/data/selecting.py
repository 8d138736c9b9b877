"""Selection of scored rows for training: the surest, or pairs of a sure and an unsure reply.

- the surest rows of files: a share of them, or those above a threshold (paper P03);
- pairs for preference training: the surest and the least sure reply to a question, where their
  confidences are far enough apart (paper P01).

Files may be larger than memory. They are read line by line and twice, first for the confidences;
eight bytes a row are kept, or the positions of the two replies to each question.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.errors import JudgingError, RowError
from calibrator.rows.rows import read_lines

Json = dict[str, Any]
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

        A pair has the question's most and least confident reply, in the form of `pair_of`. The
        files, which must not be pipes, are read twice; a pair comes as soon as both replies were
        read again. The selection's counts are updated in place.
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
            row_question = wanted.get((row.file, row.line))
            if row_question is None:
                continue
            first = waiting.pop(row_question, None)
            if first is None:
                waiting[row_question] = row
                continue
            chosen, rejected = sorted((first, row), key=lambda each: -each.confidence)
            self._count(chosen, rejected, self._found[row_question])
            yield pair_of(row_question, chosen.raw, rejected.raw)

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


@dataclass
class Tally:
    """The number of rows, of those with a label, and of the right ones among these."""

    rows: int = 0
    labelled: int = 0
    right: int = 0

    def count(self, row: ScoredLine) -> None:
        """Count a row, and if it has a label also this and whether it is right."""
        self.rows += 1
        if row.correct is not None:
            self.labelled += 1
            self.right += row.correct

    @property
    def accuracy(self) -> float:
        """The share of right rows among the labelled ones; nan for none."""
        return self.right / self.labelled if self.labelled else float("nan")


@dataclass
class Filter:
    """Keeps rows of confidence at or above `threshold`, and of those at it `at_it` at most."""

    threshold: float
    at_it: int | None = None
    seen: Tally = field(default_factory=Tally)
    kept: Tally = field(default_factory=Tally)

    def keep(self, paths: Sequence[Path]) -> Iterator[ScoredLine]:
        """Yield the rows that are kept, in the files' order, and count seen and kept rows.

        Rows at the threshold are kept until there are `at_it` of them; all of them if that
        is None.
        """
        remaining = self.at_it
        for row in scored_lines(paths):
            self.seen.count(row)
            if row.confidence < self.threshold:
                continue
            if row.confidence == self.threshold and remaining is not None:
                if remaining == 0:
                    continue
                remaining -= 1
            self.kept.count(row)
            yield row


def of_share(paths: Sequence[Path], share: float) -> Filter:
    """Return a filter that keeps a share (0 to 1) of the rows, those of highest confidence.

    At least one row is kept; of equal ones the first. The files are read once for it. Raises
    JudgingError if there is no row.
    """
    confidences = np.frombuffer(array("d", (row.confidence for row in scored_lines(paths))))
    if not len(confidences):
        raise JudgingError("there is no row to keep")
    count = max(1, round(share * len(confidences)))
    ordered = np.partition(confidences, len(confidences) - count)
    threshold = float(ordered[len(confidences) - count])
    return Filter(threshold, count - int((confidences > threshold).sum()))


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A row, unchanged, with its file and line; `correct` is None where it has no label."""

    file: int
    line: int
    raw: Json

    @property
    def confidence(self) -> float:
        return float(self.raw["confidence"])

    @property
    def correct(self) -> bool | None:
        value = self.raw.get("correct")
        return None if value is None else bool(value)


def scored_lines(paths: Sequence[Path]) -> Iterator[ScoredLine]:
    """Yield each row of the files, in order; empty lines are skipped.

    Raises RowError for a line that cannot be read, is no JSON, or has no valid confidence or
    label.
    """
    for number, path in enumerate(paths):
        for line, text in read_lines(path):
            if isinstance(text, RowError):
                raise text
            if text.strip():
                yield ScoredLine(number, line, _row(str(path), line, text))


def _row(source: str, line: int, text: bytes) -> Json:
    """Parse a line that `pinocchio score` wrote, and return its object.

    Raises RowError if it is no JSON object, if `confidence` is no number from 0 to 1, or if
    `correct` is not 0, 1 or null.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RowError(source, line, f"not JSON: {error}") from error
    confidence = raw.get("confidence") if isinstance(raw, dict) else None
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise RowError(source, line, "the row has no confidence; `pinocchio score` adds it")
    if not 0 <= confidence <= 1:
        raise RowError(source, line, f"'confidence' must be from 0 to 1, not {confidence!r}")
    if raw.get("correct") not in (None, 0, 1):
        raise RowError(source, line, f"'correct' must be 0 or 1, not {raw['correct']!r}")
    return raw  # type: ignore[no-any-return]  # an object, as its confidence says
