"""The surest rows of files: a share of them, or those above a threshold (paper P03).

Files are read twice, first for the confidences alone; eight bytes a row are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.data.selecting.scored_lines import ScoredLine, scored_lines


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
        left = self.at_it
        for row in scored_lines(paths):
            self.seen.count(row)
            if row.confidence < self.threshold:
                continue
            if row.confidence == self.threshold and left is not None:
                if left == 0:
                    continue
                left -= 1
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
