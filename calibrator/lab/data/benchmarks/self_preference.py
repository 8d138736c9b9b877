"""Self-preference of judges, measured with two judges of the same replies (D07).

For each judge that answered too, the preference is how much more often it calls its own model's
replies correct than the other judge does, minus the same difference on other models' replies. 0 is
fair. The other judge's verdicts control for the quality of the replies, and the replies of other
models for the leniency of the judge. The interval resamples questions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats

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
