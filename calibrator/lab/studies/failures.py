"""A study of where a calibrator is most wrong: hard errors by benchmark, accuracy and ranking.

A hard error is a wrong reply above .9 or a right one below .1 (paper S01, S02); each benchmark also
has the share of right replies below .2 and of wrong ones above .8 (S04). Spearman's rho of accuracy
and AUROC over the benchmarks shows whether ranking suffers where models fail (H14). Replies that
state a confidence of 100 % and get less than .01 are counted, with the wrong ones among them (O02).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from calibrator.errors import JudgingError
from calibrator.metrics.metrics import Floats, Ints, auroc, cohens_d
from calibrator.metrics.rankings import Correlation, spearman
from calibrator.rows.groups import NONE
from calibrator.rows.results import plain_json
from calibrator.rows.rows import Row, labels_of

SURE, UNSURE = 0.9, 0.1  # S01
HIGH, LOW = 0.8, 0.2  # S04
STATED, DENIED = 1.0, 0.01  # O02
FEWEST = 20  # least rows of a benchmark that counts for Spearman's rho
NAMED = 20  # hard errors of each kind whose ids are kept


@dataclass(frozen=True, slots=True)
class Failures:
    """The hard errors of one benchmark, or of all rows.

    Shares are nan where they have no replies.
    """

    benchmark: str
    rows: int
    accuracy: float
    auroc: float
    d: float
    sure_wrong: int
    unsure_right: int
    right_below: float  # share of the right replies below LOW
    wrong_above: float  # share of the wrong replies above HIGH


@dataclass(frozen=True, slots=True)
class FailureStudy:
    """All results; ids are those of the rows, the worst first."""

    method: str
    entries: list[Failures]  # most hard errors first
    all: Failures
    accuracy_and_auroc: Correlation
    stated_sure: int
    stated_sure_wrong: int
    sure_wrong: list[str]
    unsure_right: list[str]

    def as_json(self) -> str:
        """Return the study as indented JSON."""
        return json.dumps(plain_json(asdict(self)), indent=1)


def study_failures(rows: Sequence[Row], confidence: Floats, method: str) -> FailureStudy:
    """Count the hard errors of confidences (N,) of the rows, by benchmark and of all.

    A hard error is a wrong reply above .9 or a right one below .1; the ids of the `NAMED` worst of
    each kind are kept. `method` names the calibrator. Raises JudgingError without rows.
    """
    if not rows:
        raise JudgingError("there is no row to look at")
    labels = labels_of(rows)
    names = np.array([row.benchmark or NONE for row in rows], dtype=object)
    entries = [
        _failures(name, labels[names == name], confidence[names == name])
        for name in sorted(set(names))
    ]
    large = [e for e in entries if e.rows >= FEWEST and not np.isnan(e.auroc)]
    stated = np.array([row.verbalized_confidence or 0.0 for row in rows])
    denied = (stated >= STATED) & (confidence < DENIED)
    return FailureStudy(
        method,
        sorted(entries, key=lambda e: (-(e.sure_wrong + e.unsure_right), e.benchmark)),
        _failures("all", labels, confidence),
        spearman([e.accuracy for e in large], [e.auroc for e in large]),
        int(denied.sum()),
        int((denied & (labels == 0)).sum()),
        _worst_ids(rows, (labels == 0) & (confidence > SURE), -confidence),
        _worst_ids(rows, (labels == 1) & (confidence < UNSURE), confidence),
    )


def _failures(name: str, labels: Ints, confidence: Floats) -> Failures:
    """Count the hard errors of one group of replies, with labels and confidences (n,).

    Shares of the right or of the wrong replies are nan where there are none.
    """
    right, wrong = confidence[labels == 1], confidence[labels == 0]
    return Failures(
        name,
        len(labels),
        float(labels.mean()),
        auroc(labels, confidence),
        cohens_d(labels, confidence),
        int((wrong > SURE).sum()),
        int((right < UNSURE).sum()),
        float((right < LOW).mean()) if len(right) else float("nan"),
        float((wrong > HIGH).mean()) if len(wrong) else float("nan"),
    )


def _worst_ids(rows: Sequence[Row], found: np.ndarray, order: Floats) -> list[str]:
    """Return the ids of at most `NAMED` rows where `found` (N,) is true, lowest `order` first."""
    at = np.flatnonzero(found)
    return [str(rows[i].id) for i in at[np.argsort(order[at], kind="stable")][:NAMED]]
