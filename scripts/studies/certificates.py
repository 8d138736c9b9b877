"""How often `certify` finds a threshold, how much it accepts, and how often its promise is broken.

    python scripts/studies/certificates.py [SCORED.jsonl ..] [--draws 200] [--confidence 0.95]

Labelled replies are drawn from populations with known error rates: three that are simulated, and
one of the rows of the files, which need a `confidence` from `pinocchio score`. From the files a
question is drawn with replacement and then one of its replies, so in the population each question
has the same weight.

found      share of the draws that proved a threshold
coverage   median over the draws of the share of the population at or above it, 0 without one
possible   the largest share of the population that any threshold of the grid could have accepted
broken     share of the draws whose threshold has more errors than promised: at most 1 - confidence
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from policies import GRID, LabelledScore, certify  # noqa: E402

Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"
Draw: TypeAlias = "Callable[[np.random.Generator, int], tuple[Floats, Bools]]"
"""A function that draws n replies: their confidences (n,) and whether they are wrong (n,)."""

POPULATION, TRUTH_SEED, DRAW_SEED = 400_000, 0, 1
LABELS = (200, 500, 1_000, 2_000)
MAX_ERRORS = (0.05, 0.1, 0.2, 0.3)


def main() -> None:
    """Print one table, a line for each population, error rate and number of labels."""
    arguments = _arguments()
    populations = {
        "calibrated, AUROC 0.87": _beta(0.7, 0.6),
        "calibrated, AUROC 0.73": _beta(3.0, 1.6),
        "scale 0 to 0.5": _squeezed,
    }
    if arguments.files:
        populations["rows"] = _of_files(arguments.files)
    print("| replies | at most | labels | found | coverage | possible | broken |")
    print("|---|---|---|---|---|---|---|")
    for name, draw in populations.items():
        coverages, risks = _truth(draw)
        for max_error in MAX_ERRORS:
            for labels in LABELS:
                found = _outcomes(draw, labels, max_error, arguments)
                places = [GRID.index(each) for each in found if each is not None]
                accepted = [coverages[place] for place in places]
                accepted += [0.0] * (len(found) - len(places))
                broken = sum(risks[place] > max_error for place in places) / len(found)
                possible = coverages[risks <= max_error].max(initial=0.0)
                print(
                    f"| {name} | {max_error:.0%} | {labels:,} | {len(places) / len(found):.0%} | "
                    f"{np.median(accepted):.2f} | {possible:.2f} | {broken:.1%} |",
                    flush=True,
                )


def _arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="Labelled rows with a confidence.")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--confidence", type=float, default=0.95)
    return parser.parse_args()


def _outcomes(
    draw: Draw, labels: int, max_error: float, arguments: argparse.Namespace
) -> list[float | None]:
    """Return for each draw of `labels` replies the threshold that it proved, or None for none."""
    rng = np.random.default_rng(DRAW_SEED)
    found = []
    for _ in range(arguments.draws):
        confidence, wrong = draw(rng, labels)
        rows = [
            LabelledScore(str(n), float(each), not is_wrong)
            for n, (each, is_wrong) in enumerate(zip(confidence, wrong, strict=True))
        ]
        found.append(certify(rows, max_error, arguments.confidence).threshold)
    return found


def _truth(draw: Draw) -> tuple[Floats, Floats]:
    """Return (coverage, error rate) of the population at each threshold of the grid, (n,) each.

    The error rate is 0 where nothing is accepted.
    """
    confidence, wrong = draw(np.random.default_rng(TRUTH_SEED), POPULATION)
    order = np.argsort(-confidence)
    accepted = np.searchsorted(-confidence[order], -np.array(GRID), side="right")
    errors = np.concatenate([[0.0], np.cumsum(wrong[order])])[accepted]
    return accepted / POPULATION, errors / np.maximum(accepted, 1)


def _beta(a: float, b: float) -> Draw:
    """Return a function that draws replies whose confidences are the true probabilities.

    They have a Beta(a, b) distribution.
    """

    def draw(rng: np.random.Generator, count: int) -> tuple[Floats, Bools]:
        """Return (confidences, whether wrong) of `count` replies, (n,) each."""
        confidence = rng.beta(a, b, count)
        return confidence, rng.random(count) >= confidence

    return draw


def _squeezed(rng: np.random.Generator, count: int) -> tuple[Floats, Bools]:
    """Draw (confidences, whether wrong) that rank well, are uncalibrated and all below 0.5."""
    truth = rng.beta(0.7, 0.6, count)
    return truth / 2, rng.random(count) >= truth


def _of_files(files: Sequence[Path]) -> Draw:
    """Return a function that draws rows of files: a question, then one of its replies.

    Ends the script with a message if a row has no confidence.
    """
    from calibrator.rows.selection import load_labelled

    rows, _ = load_labelled(files)
    confidences = [row.raw.get("confidence") for row in rows]
    if None in confidences:
        sys.exit("the rows need a confidence: pinocchio score ROWS.jsonl -o SCORED.jsonl")
    scores = np.array(confidences, dtype=np.float64)
    is_wrong = np.array([not row.correct for row in rows])
    _, counts = np.unique([row.question_id for row in rows], return_counts=True)
    order = np.argsort([row.question_id for row in rows], kind="stable")
    starts = np.cumsum(counts) - counts

    def draw(rng: np.random.Generator, count: int) -> tuple[Floats, Bools]:
        """Return (confidences, whether wrong) of `count` replies, drawn with replacement."""
        question = rng.integers(len(counts), size=count)
        place = order[starts[question] + (rng.random(count) * counts[question]).astype(int)]
        return scores[place], is_wrong[place]

    return draw


if __name__ == "__main__":
    main()
