"""Checks of labels: an audit of a sample, and the self-preference of judges.

The audit is the error rate of a random sample that a person looks at (D06). The rate has Wilson's
interval, so a sample without errors still gives an upper bound.

Self-preference is measured with two judges of the same replies (D07). For each judge that answered
too, the preference is how much more often it calls its own model's replies correct than the other
judge does, minus the same difference on other models' replies. 0 is fair. The other judge's
verdicts control for the quality of the replies, and the replies of other models for the leniency of
the judge. The interval resamples questions.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calibrator.errors import JudgingError
from calibrator.metrics.intervals import Interval
from calibrator.metrics.metrics import Floats
from calibrator.metrics.sampling import wilson

Json = dict[str, Any]
ANSWER: Final = "label_is_right"  # the field that a person fills in: true or false
RESAMPLES: Final = 2_000
SEED: Final = 20_261_124


@dataclass(frozen=True, slots=True)
class Preference:
    """One judge's preference beside another judge; nan where it judged no reply of its own."""

    judge: str
    other: str
    replies: int  # replies that both judged
    own: int  # replies of these by the judge's model
    agreement: float  # share of replies with the same verdict of both
    preference: float
    low: float
    high: float


def self_preference(rows: Sequence[Mapping[str, Any]]) -> list[Preference]:
    """Return two entries: the first judge's preference beside the second's, and the reverse.

    The judges are the first two in the first row that has two; only rows with both are counted.
    Rows have `verdicts` by judge, as `pinocchio collect --judge A --judge B` writes them.
    Raises JudgingError if no row has the verdicts of two judges.
    """
    judged = [row for row in rows if len(row.get("verdicts") or {}) >= 2]
    if not judged:
        raise JudgingError("no row has the `verdicts` of two judges; collect with --judge twice")
    first, second = list(judged[0]["verdicts"])[:2]
    both = [row for row in judged if {first, second} <= set(row["verdicts"])]
    return [_preference(both, first, second), _preference(both, second, first)]


def _preference(rows: Sequence[Mapping[str, Any]], judge: str, other: str) -> Preference:
    """Measure how much more than `other` a judge prefers its own model's replies to others'.

    The preference's 95 % interval comes from resampled questions; all three are nan if the
    judge has no own reply, or no other.
    """
    gaps = np.array([row["verdicts"][judge] - row["verdicts"][other] for row in rows], dtype=float)
    own = np.array([_is_own(row["model"], judge) for row in rows])
    value = _gap(gaps, own, np.ones(len(rows)))
    drawn = _resample_gaps(rows, gaps, own) if math.isfinite(value) else np.array([math.nan])
    drawn = drawn[np.isfinite(drawn)]
    low, high = np.quantile(drawn, [0.025, 0.975]) if len(drawn) else (math.nan, math.nan)
    agreement = float(np.mean(gaps == 0))
    return Preference(
        judge, other, len(rows), int(own.sum()), agreement, value, float(low), float(high)
    )


def _is_own(model: str | None, judge: str) -> bool:
    """Return whether both names are one model in any case, without routes such as `openai/`."""
    return (model or "").rpartition("/")[2].lower() == judge.rpartition("/")[2].lower()


def _gap(gaps: Floats, own: Any, weights: Floats) -> float:
    """Return the weighted mean of `gaps` on own replies minus that on others; nan without one."""
    mine, others = weights * own, weights * ~own
    if not mine.sum() or not others.sum():
        return math.nan
    return float((gaps * mine).sum() / mine.sum() - (gaps * others).sum() / others.sum())


def _resample_gaps(rows: Sequence[Mapping[str, Any]], gaps: Floats, own: Any) -> Floats:
    """Return the gap on each of `RESAMPLES` draws of all questions with replacement, (RESAMPLES,).

    A draw without own or without other replies is nan.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for at, row in enumerate(rows):
        places[str(row["question_id"])].append(at)
    question = np.empty(len(rows), dtype=np.int64)
    for number, listed in enumerate(places.values()):
        question[listed] = number
    rng = np.random.default_rng(SEED)
    counts = rng.multinomial(len(places), [1 / len(places)] * len(places), RESAMPLES)
    return np.array([_gap(gaps, own, each[question].astype(float)) for each in counts])


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
