"""Rows that repeat each other, and rows that contradict each other; both mislead an evaluation.

Copies make intervals over replies too narrow, because they are not independent evidence. If the
same reply is labelled both right and wrong, one of the labels is an error that no calibrator can
rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from calibrator.rows.rows import Row

_Key: TypeAlias = "tuple[str, str]"  # a question and a reply to it


@dataclass(frozen=True, slots=True)
class Copies:
    """The number of rows, of those that repeat another one, and of those that contradict another.

    `repeated` counts rows beyond the first with the same question, reply and model.
    `contradicting` counts rows whose question and reply have both labels; `example` is one of them.
    """

    rows: int
    repeated: int
    contradicting: int
    example: Row | None = None

    def sentences(self) -> Iterator[str]:
        """Yield a sentence for a person on each problem; nothing where there is none."""
        if self.repeated:
            yield (
                f"{self.repeated:,} of {self.rows:,} rows repeat another one (same question, reply "
                "and model): intervals over replies are too narrow, those over questions are right"
            )
        if self.example is not None:
            at = f", such as {self.example.source}:{self.example.line}" if self.example.line else ""
            yield (
                f"{self.contradicting:,} rows contradict each other: the same reply to the same "
                f"question is labelled both correct and wrong{at}"
            )


def copies_in(rows: Sequence[Row]) -> Copies:
    """Count copies and contradictions among labelled rows, by the texts that are judged.

    White space around a text makes no other text of it.
    """
    seen: set[tuple[_Key, str | None]] = set()
    labels: dict[_Key, set[int | None]] = {}
    keys: list[_Key] = [(row.question.strip(), row.answer.strip()) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        seen.add((key, row.model))
        labels.setdefault(key, set()).add(row.correct)
    pairs = zip(keys, rows, strict=True)
    both = [row for key, row in pairs if len(labels[key] - {None}) > 1]
    return Copies(len(rows), len(rows) - len(seen), len(both), both[0] if both else None)
