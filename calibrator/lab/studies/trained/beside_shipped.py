"""A comparison of a newly trained calibrator with the shipped one, on held-out rows.

The rows belong to the questions that the training kept for validation. The new calibrator used them
only for its recalibration; the shipped one may have been trained on some of them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from calibrator.errors import CalibratorError
from calibrator.lab.training.run import TrainConfig, read_selection
from calibrator.loading import load_scorer
from calibrator.metrics.metrics import auroc, ece
from calibrator.rows.rows import Row
from calibrator.scorer import Scorer

SHIPPED: Final = "embedded"
MOST_ROWS: Final = 400
LEAST_ROWS: Final = 30
AT_ONCE: Final = 20  # rows scored between two looks at the clock
MOST_S: Final = 25.0  # seconds for each of the two


def beside_shipped(
    checkpoint: Path,
    config: TrainConfig,
    advance: Callable[[int], None] = lambda _: None,
    most_s: float = MOST_S,
) -> Iterator[str]:
    """Yield lines of text with AUROC and ECE of both calibrators on the same held-out rows.

    If a calibrator fails, or there are too few rows or one label, the only line says so. `most_s`
    limits the seconds for each of the two, and the rows to those that both scored in time.
    `advance` gets the number of rows just scored.
    """
    rows = _held_out(config)
    try:
        new = _confidences(load_scorer(str(checkpoint)), rows, advance, most_s)
        rows = rows[: len(new)]
        shipped = _confidences(load_scorer(SHIPPED), rows, advance, most_s)
    except CalibratorError as error:
        yield f"not compared with the shipped calibrator: {error}"
        return
    labels = [float(row.correct or 0) for row in rows[: len(shipped)]]
    if len(labels) < LEAST_ROWS or len(set(labels)) < 2:
        yield "not compared with the shipped calibrator: too few held-out rows, or all alike"
        return
    yield (
        f"on {len(labels):,} held-out rows, as served (the shipped one may have been trained on "
        "some of them):"
    )
    for name, found in (("this one", new), ("the shipped one", shipped)):
        confidences = found[: len(labels)]
        ranking, calibration = auroc(labels, confidences), ece(labels, confidences)
        yield f"  {name:15}  AUROC {ranking:.3f}, ECE {calibration:.3f}"


def _held_out(config: TrainConfig) -> list[Row]:
    """Return at most `MOST_ROWS` rows of the validation questions, the same for a configuration."""
    _, held, _ = read_selection(config)
    return random.Random(config.seed).sample(held, min(MOST_ROWS, len(held)))


def _confidences(
    scorer: Scorer, rows: Sequence[Row], advance: Callable[[int], None], most_s: float
) -> list[float]:
    """Return the confidences of the first rows: of all, or as many as `most_s` seconds allow.

    `advance` gets the number of rows just scored.
    """
    ends_at, found = time.monotonic() + most_s, list[float]()
    for at in range(0, len(rows), AT_ONCE):
        items = [row.item("served") for row in rows[at : at + AT_ONCE]]
        found += [score.confidence for score in scorer.score_batch(items)]
        advance(len(items))
        if time.monotonic() > ends_at:
            break
    return found
