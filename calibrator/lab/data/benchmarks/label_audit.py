"""An audit of labels: the error rate of a random sample that a person looks at (D06).

The rate has Wilson's interval, so a sample without errors still gives an upper bound.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calibrator.errors import JudgingError
from calibrator.metrics.intervals import Interval
from calibrator.metrics.sampling import wilson

Json = dict[str, Any]
ANSWER: Final = "label_is_right"  # the field that a person fills in: true or false


@dataclass(frozen=True, slots=True)
class LabelAudit:
    """The result of an audited sample; `wrong_by` counts wrong labels by their grader."""

    looked_at: int
    wrong: int
    rate: Interval
    wrong_by: Mapping[str, int]
    left: int  # rows that nobody has audited yet


def draw_rows(rows: Sequence[Mapping[str, Any]], count: int, seed: int) -> list[Json]:
    """Return copies of `count` random rows in their order, each with `label_is_right: null` first.

    All rows are returned if there are fewer.
    """
    chosen = random.Random(seed).sample(range(len(rows)), min(count, len(rows)))
    return [{ANSWER: None, **rows[at]} for at in sorted(chosen)]


def audit(rows: Sequence[Mapping[str, Any]]) -> LabelAudit:
    """Return the share of wrong labels in an audited sample, with Wilson's interval and counts.

    A row's `label_is_right` is true, false, or null if nobody has audited it. Raises
    JudgingError for another value, or if no row is audited.
    """
    for row in rows:
        if row.get(ANSWER) not in (None, True, False):
            raise JudgingError(f"{ANSWER!r} must be true, false or null, not {row[ANSWER]!r}")
    looked_at = [row for row in rows if row.get(ANSWER) is not None]
    if not looked_at:
        raise JudgingError(f"no row says {ANSWER!r}: true where the label holds, false where not")
    wrong = [row for row in looked_at if not row[ANSWER]]
    return LabelAudit(
        len(looked_at),
        len(wrong),
        wilson(len(wrong) / len(looked_at), len(looked_at)),
        dict(sorted(Counter(str(row.get("graded_by") or "") for row in wrong).items())),
        len(rows) - len(looked_at),
    )
