"""The gain of a simulated judge over the shipped calibrator, and the effect of its absence.

    python scripts/studies/signals.py ROWS.jsonl.gz .. [--labels 200 500 1000] [--rows 6000]

The judge's log-odds are 1.2 on the side of the label, with a deviation of 1.5, and it judges half
of the rows, drawn at random. Weights are fitted on a quarter of the questions and tested on the
others, with the judge and without it; figures are means of five draws.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator.loading import load_scorer  # noqa: E402
from calibrator.metrics.metrics import auroc, brier, ece  # noqa: E402
from calibrator.recalibration.curves import sigmoid  # noqa: E402
from calibrator.recalibration.signals import (  # noqa: E402
    LabelledSignals,
    confidences,
    fit_signals,
    weigh_replies,
)
from calibrator.rows.scores import score_rows  # noqa: E402
from calibrator.rows.selection import load_labelled, share_of  # noqa: E402
from calibrator.scorer import Signals  # noqa: E402

FITTED, SIDE, NOISE, DRAWS = 0.25, 1.2, 1.5, 5


def main() -> None:
    """Print how a simulated judge changes the figures, by number of labels, with and without it."""
    arguments = _arguments()
    rows, _ = load_labelled(arguments.files)
    random.Random(0).shuffle(rows)
    rows = rows[: arguments.rows]
    scorer = load_scorer("embedded")
    numbers = score_rows(scorer, rows).confidence
    rng = np.random.default_rng(0)
    replies = []
    for row, number in zip(rows, numbers.tolist(), strict=True):
        word = float(sigmoid((SIDE if row.correct else -SIDE) + rng.normal(0, NOISE)))
        signals = Signals(word, "simulated") if rng.random() < 0.5 else Signals()
        replies.append(LabelledSignals(bool(row.correct), number, scorer.name, signals))
    is_fitted_on = [share_of(row.question_id) < FITTED for row in rows]
    fit = [each for each, is_its in zip(replies, is_fitted_on, strict=True) if is_its]
    judged = [each for each, is_its in zip(replies, is_fitted_on, strict=True) if not is_its]
    print("labels  judge   replies  right  mean           ECE            Brier          AUROC")
    for labels in arguments.labels:
        for name, group in (
            ("silent", [each for each in judged if not each.signals.kinds]),
            ("spoke", [each for each in judged if each.signals.kinds]),
        ):
            print(f"{labels:6}  {name:6} {_line(fit, labels, group)}")


def _line(fit: Sequence[LabelledSignals], labels: int, judged: Sequence[LabelledSignals]) -> str:
    """Return a table line: number of judged replies, share right, and figures before > after.

    Weights are fitted on `labels` replies of `fit`; the latter figures are means over `DRAWS`
    draws.
    """
    right = np.array([int(each.is_correct) for each in judged])
    before, after = confidences(judged), []
    for draw in range(DRAWS):
        chosen = np.random.default_rng(draw).permutation(len(fit))[:labels]
        after.append(weigh_replies(fit_signals([fit[at] for at in chosen]), judged))

    def both(measure: object) -> str:
        """Return `before > after` of a metric of labels and confidences, such as `auroc`."""
        assert callable(measure)
        mean = np.mean([measure(right, each) for each in after])
        return f"{measure(right, before):.3f} > {mean:.3f}"

    means = f"{before.mean():.3f} > {np.mean([each.mean() for each in after]):.3f}"
    figures = "  ".join([means, both(ece), both(brier), both(auroc)])
    return f"{len(judged):8,}  {right.mean():.3f}  {figures}"


def _arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--labels", type=int, nargs="+", default=[200, 500, 1_000])
    parser.add_argument("--rows", type=int, default=6_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
