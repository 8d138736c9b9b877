"""Whether serving on ONNX Runtime changes what the calibrator says: the same rows in torch, fp32.

Beside it, what the parts add: the encoder's logit left out, and distances from known text left out.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from bench_table import say, table
from numpy.typing import NDArray

from calibrator import CalibratorError, Item, load_labelled
from calibrator.checkpoint import resolve_checkpoint
from calibrator.cross_encoder import Checkpoint, CrossEncoder, Encoder, read_checkpoint
from calibrator.layout import TokenRow
from calibrator.metrics import auroc
from calibrator.onnx_encoder import OnnxEncoder
from calibrator.torch_encoder import load_torch_encoder
from calibrator.weights import Floats

MOST_AUROC: Final = 0.003
MOST_CHANGE: Final = 0.02
"""What another way to serve may change: AUROC, and any one confidence."""


class WithoutLogit:
    """An encoder whose features count, and whose logits do not."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __call__(self, rows: Sequence[TokenRow]) -> tuple[Floats, Floats]:
        features, logits = self.encoder(rows)
        return features, np.zeros_like(logits)


class Remembered:
    """An encoder that reads each row once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.known: dict[tuple[int, ...], tuple[Floats, Floats]] = {}

    def __call__(self, rows: Sequence[TokenRow]) -> tuple[Floats, Floats]:
        found = []
        for row in rows:
            key = (row.segment_b, *row.ids)
            if key not in self.known:
                self.known[key] = self.encoder([row])
            found.append(self.known[key])
        features, logits = zip(*found, strict=True)
        return np.concatenate(features), np.concatenate(logits)


def confidences(
    found: Checkpoint, encoder: Encoder, items: Sequence[Item], **changes: Any
) -> NDArray[np.float64]:
    """Of all items, in order; `changes` take the place of parts of the checkpoint."""
    parts = {"familiarity": found.familiarity, "tower": found.tower, **changes}
    scorer = CrossEncoder(found.config, encoder, found.tokenizer, **parts)
    given = (scorer.score_batch(items[at : at + 64]) for at in range(0, len(items), 64))
    return np.array([score.confidence for batch in given for score in batch])


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="scripts/bench parity", description=__doc__.splitlines()[0]
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSON lines of labelled rows")
    parser.add_argument("--rows", type=int, default=3_000, help="so many, drawn at random")
    parser.add_argument("--calibrator", default="embedded", help="embedded, a folder, a hub name")
    options = parser.parse_args()
    try:
        rows, _ = load_labelled(options.files)
        found = read_checkpoint(resolve_checkpoint(options.calibrator))
    except (CalibratorError, OSError) as error:
        parser.error(str(error))
    rows = random.Random(0).sample(rows, min(options.rows, len(rows)))
    labels, items = [row.correct or 0 for row in rows], [row.item("served") for row in rows]
    config, weights = found.config.encoder, found.weights
    served = Remembered(OnnxEncoder(config, weights))
    say(f"{len(rows)} rows on ONNX Runtime, then in torch ...")
    methods = {
        "as it serves": confidences(found, served, items),
        "torch, fp32": confidences(found, load_torch_encoder(config, weights, "cpu"), items),
        "without the encoder's logit": confidences(found, WithoutLogit(served), items),
        "without familiarity": confidences(found, served, items, familiarity=None),
        "tower alone": confidences(found, WithoutLogit(served), items, familiarity=None),
        "encoder alone": confidences(found, served, items, tower=None),
    }
    first = methods["as it serves"]
    areas = {name: auroc(labels, given) for name, given in methods.items()}
    changes = {name: float(np.abs(given - first).max()) for name, given in methods.items()}
    print(
        table(
            [
                [f"{len(rows)} rows", "AUROC", "largest change"],
                *([name, f"{areas[name]:.4f}", f"{changes[name]:.5f}"] for name in methods),
            ]
        )
    )
    is_same = (
        abs(areas["torch, fp32"] - areas["as it serves"]) <= MOST_AUROC
        and changes["torch, fp32"] <= MOST_CHANGE
    )
    print(f"the gate, AUROC within {MOST_AUROC} and no change above {MOST_CHANGE}: ", end="")
    print("passed" if is_same else "FAILED")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
