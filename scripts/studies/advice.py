"""How often `advise` recommends fine-tuning for healthy deployments, and for badly ranking ones.

    python scripts/studies/advice.py [SCORED.jsonl ..] [--draws 400]

A deployment has labelled replies, two to a question that are right or wrong together. In a healthy
one the confidences are the true probabilities; `all` replies are labelled, or only those
`delivered`, with a confidence of 0.5 or more. In a bad one normal noise of the standard deviation
2.5 was added to their log-odds, or they were shuffled. With files that have a `confidence` from
`pinocchio score`, a healthy deployment is a draw of questions of one file, which is one kind of
question.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator.lab.judging.evaluation.advice import RankingCheck  # noqa: E402
from calibrator.metrics.intervals import auroc_interval  # noqa: E402
from calibrator.metrics.metrics import expected_auroc  # noqa: E402
from calibrator.recalibration.curves import logit, sigmoid  # noqa: E402
from calibrator.rows.selection import load_labelled  # noqa: E402

Floats: TypeAlias = "NDArray[np.float64]"
Rows: TypeAlias = "tuple[Floats, NDArray[np.bool_], NDArray[np.int64]]"
"""The confidences (n,), whether each reply is right (n,), and the number of its question (n,)."""
Draw: TypeAlias = "Callable[[np.random.Generator, int], Rows]"

MIXES = {"wide": (0.7, 0.6), "usual": (1.2, 0.8), "mostly right": (6.0, 1.5)}
LABELS = (100, 300, 1_000)
DELIVERED, NOISE, RESAMPLES = 0.5, 2.5, 300


def main() -> None:
    """Print a table with the share told to fine-tune, by kind of deployment and labels."""
    arguments = _arguments()
    card = json.loads((ROOT / "calibrator/checkpoints/embedded/calibrator.json").read_text())
    own = min(each["auroc"] for each in card["quality"].values())
    print("| deployment | " + " | ".join(f"{each:,} labels" for each in LABELS) + " |")
    print("|---" * (len(LABELS) + 1) + "|")
    for name, draw in _deployments(arguments.files):
        shares = []
        for labels in LABELS:
            rng = np.random.default_rng(0)
            degraded = sum(_is_degraded(draw(rng, labels), own) for _ in range(arguments.draws))
            shares.append(f"{degraded / arguments.draws:.1%}")
        print(f"| {name} | {' | '.join(shares)} |", flush=True)


def _arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="Labelled rows with a confidence.")
    parser.add_argument("--draws", type=int, default=400)
    return parser.parse_args()


def _is_degraded(rows: Rows, own: float) -> bool:
    """Return whether `advise` would say that these rows are ranked worse than promised.

    `own` is the least AUROC of the calibrator's card. Return False if all labels are equal.
    """
    confidence, is_right, question = rows
    if is_right.all() or not is_right.any():
        return False  # `advise` asks for labels of both kinds
    interval = auroc_interval(is_right.astype(int), confidence, question, RESAMPLES)
    return RankingCheck(interval, expected_auroc(confidence), own).is_degraded


def _deployments(files: list[Path]) -> Iterator[tuple[str, Draw]]:
    """Yield the name of each deployment and a function that draws its rows.

    Healthy ones come first: simulated, then the files; two bad ones follow.
    """
    for name, (a, b) in MIXES.items():
        yield f"healthy, {name}, all", _simulated(a, b)
        yield f"healthy, {name}, delivered", _simulated(a, b, lowest=DELIVERED)
    for file in files:
        yield f"healthy, {file.name.partition('.')[0]}", _of_file(file)
    yield "noise of 2.5", _simulated(*MIXES["usual"], noise=NOISE)
    yield "shuffled", _simulated(*MIXES["usual"], is_shuffled=True)


def _simulated(
    a: float, b: float, lowest: float = 0.0, noise: float = 0.0, is_shuffled: bool = False
) -> Draw:
    """Return a function that draws rows whose true probabilities have a Beta(a, b) distribution.

    It draws `count` rows in pairs. Probabilities below `lowest` are left out; the confidences get
    normal noise of deviation `noise` on the log-odds, or are shuffled.
    """

    def draw(rng: np.random.Generator, count: int) -> Rows:
        """Return (confidences, whether right, question numbers) of up to `count` replies."""
        truth = rng.beta(a, b, 20 * count)
        truth = truth[truth >= lowest][: count // 2]
        is_right = rng.random(len(truth)) < truth
        confidences = sigmoid(logit(truth) + rng.normal(0, noise, len(truth))) if noise else truth
        if is_shuffled:
            confidences = rng.permutation(confidences)
        return (
            np.repeat(confidences, 2),
            np.repeat(is_right, 2),
            np.repeat(np.arange(len(truth)), 2),
        )

    return draw


def _of_file(file: Path) -> Draw:
    """Return a function that draws whole questions of a file, with replacement, for `count` rows.

    The rows need a `confidence`.
    """
    rows, _ = load_labelled([file])
    scores = np.array([row.raw["confidence"] for row in rows], dtype=np.float64)
    is_right = np.array([bool(row.correct) for row in rows])
    _, number = np.unique([row.question_id for row in rows], return_inverse=True)
    order = np.argsort(number, kind="stable")
    sizes = np.bincount(number)
    starts = np.cumsum(sizes) - sizes

    def draw(rng: np.random.Generator, count: int) -> Rows:
        """Return (confidences, whether right, question numbers) of `count` rows."""
        drawn = rng.integers(len(sizes), size=count)
        places = [order[starts[each] : starts[each] + sizes[each]] for each in drawn]
        question = np.repeat(np.arange(count), sizes[drawn])[:count]
        place = np.concatenate(places)[:count]
        return scores[place], is_right[place], question

    return draw


if __name__ == "__main__":
    main()
