"""What verdicts on a deployment's replies mend: before, recalibrated, fine-tuned.

    python scripts/studies/from_store.py CHECKPOINT TRAIN.jsonl.gz TEST.jsonl.gz [--labels N ..]

CHECKPOINT is one that was trained without this benchmark. Rows of TRAIN, one for each question as
far as there are any, go into a store as audited replies with verdicts, by the store's own writers;
`pinocchio recalibrate --from-store` and `pinocchio tune` learn from them as anywhere,
and all are judged on TEST, whose questions are others. Several draws, their mean.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator.loading import load_scorer  # noqa: E402
from calibrator.metrics.metrics import auroc, ece  # noqa: E402
from calibrator.rows.rows import Row  # noqa: E402
from calibrator.rows.scores import score_rows  # noqa: E402
from calibrator.rows.selection import load_labelled  # noqa: E402
from tests.builders.recorded_verdicts import label, record  # noqa: E402

MOST_TEST_ROWS = 2_000
CONFIG = """
calibrator: {checkpoint: CHECKPOINT}
store: sqlite:///FOLDER/store.db
"""


@dataclass(frozen=True)
class Found:
    """AUROC and ECE of one draw, before, recalibrated and fine-tuned, and the command's verdict."""

    figures: tuple[float, ...]
    is_better: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkpoint")
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--labels", type=int, nargs="+", default=[200, 500, 2_000])
    parser.add_argument("--draws", type=int, default=3)
    given = parser.parse_args()
    rows, test = load_labelled([given.train])[0], load_labelled([given.test])[0]
    shuffled = np.random.default_rng(0).permutation(len(test))[:MOST_TEST_ROWS]
    test = [test[at] for at in shuffled]
    print("| labels | | before | recalibrated | fine-tuned | promoted |\n|---|---|---|---|---|---|")
    for count in given.labels:
        if count > len(rows):
            continue
        found = [draw(given.checkpoint, rows, test, count, n) for n in range(given.draws)]
        means = np.mean([each.figures for each in found], axis=0)
        promoted = sum(each.is_better for each in found)
        for name, at in (("AUROC", 0), ("ECE", 1)):
            cells = " | ".join(f"{means[at + 2 * k]:.3f}" for k in range(3))
            which = f"{promoted} of {len(found)}" if at == 0 else ""
            print(f"| {count:,} | {name} | {cells} | {which} |", flush=True)


def draw(checkpoint: str, rows: Sequence[Row], test: Sequence[Row], count: int, seed: int) -> Found:
    """One store, filled and learnt from."""
    chosen = [row.raw for row in _one_a_question(rows, count, seed)]
    scorer = load_scorer(checkpoint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = CONFIG.replace("CHECKPOINT", checkpoint).replace("FOLDER", name)
        (folder / "proxy.yaml").write_text(config)
        url = f"sqlite:///{folder}/store.db"
        label(url, record(url, chosen, scorer, share=0.1), chosen)
        _run(folder, "recalibrate", "--from-store", "-o", str(folder / "curve.json"))
        told = _run(folder, "tune", "-o", str(folder / "tuned"), "--even-if-worse")
        curve, tuned = folder / "curve.json", str(folder / "tuned")
        scorers = [scorer, load_scorer(checkpoint, recalibration=curve), load_scorer(tuned)]
        judged = [_figures(each, test) for each in scorers]
    return Found(tuple(number for pair in judged for number in pair), bool(told["is_better"]))


def _one_a_question(rows: Sequence[Row], count: int, seed: int) -> list[Row]:
    """Rows in chance order, a question's second ones only after all its first ones."""
    seen: dict[str, int] = {}
    ranked = []
    for at in np.random.default_rng(seed).permutation(len(rows)):
        question = rows[at].question_id
        ranked.append((seen.setdefault(question, 0), len(ranked), int(at)))
        seen[question] += 1
    return [rows[at] for _, _, at in sorted(ranked)[:count]]


def _figures(scorer: Any, test: Sequence[Row]) -> tuple[float, float]:
    y = np.array([row.correct for row in test])
    confidence = score_rows(scorer, test).confidence
    return auroc(y, confidence), ece(y, confidence)


def _run(folder: Path, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pinocchio", *arguments, "--json"]
    done = subprocess.run(
        [*command, "--config", str(folder / "proxy.yaml")], cwd=ROOT, capture_output=True, text=True
    )
    if not done.stdout:
        sys.exit(done.stderr)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


if __name__ == "__main__":
    main()
