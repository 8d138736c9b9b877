"""Labelled rows made up for tests: always the same, with a pattern that a calibrator can learn."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.signals import LabelledSignals
from calibrator.rows.rows import Row, parse_row
from calibrator.scorer import Signals

BENCHMARKS = ("arithmetic", "history", "BFCL-simple")
MODELS = ("gpt-small", "claude-large", "llama-tiny")


def raw_rows(count: int, seed: int, replies: int = 4) -> list[dict[str, Any]]:
    """Return rows with several replies to each question.

    Right replies are mostly longer and contain `certainly`. The questions depend on the seed, so
    the rows of two seeds share none.
    """
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for n in range(count):
        question = n // replies
        correct = rng.randint(0, 1)
        words = ["word"] * rng.randint(3 + 4 * correct, 14 + 8 * correct)
        if rng.random() < 0.2 + 0.6 * correct:
            words[1] = "certainly"
        stated = round(rng.betavariate(3 + 3 * correct, 3), 3)
        rows.append(
            {
                "id": f"{seed}-{n}",
                "question_id": f"{seed}/{question}",
                "question": f"Question {question} of {seed}?",
                "response": " ".join(words),
                "benchmark": BENCHMARKS[question % len(BENCHMARKS)],
                "domain": "math" if question % 3 == 0 else "facts",
                "model": MODELS[n % len(MODELS)],
                "correct": correct,
                "verbalized_confidence": stated if question % 2 else None,
            }
        )
    return rows


def labelled(count: int, seed: int, replies: int = 4) -> list[Row]:
    return [parse_row(raw) for raw in raw_rows(count, seed, replies)]


def labels(rows: list[Row]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([row.correct for row in rows])


def noisy(rows: list[Row], seed: int, signal: float = 0.3) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a confidence per row: the share `signal` of it is the label, the rest is chance."""
    rng = np.random.default_rng(seed)
    return np.clip(signal * labels(rows) + (1 - signal) * rng.random(len(rows)), 0, 1)


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# --- replies with signals

JUDGE = "gpt-5-mini"
IsThere = Callable[[float, np.random.Generator], bool]


def half(_: float, rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def mostly_where_hard(truth: float, rng: np.random.Generator) -> bool:
    """Return whether the judge answers: more often on hard questions, so silence is evidence."""
    return bool(rng.random() < sigmoid(-1.5 * truth))


def signalled_replies(
    count: int,
    seed: int,
    is_judged: IsThere = half,
    has_logprobs: IsThere = half,
    calibrator: str = "words@1",
) -> list[LabelledSignals]:
    """Return replies whose confidence is calibrated without signals; each signal tells more.

    `calibrator` is the name that the replies have.
    """
    rng = np.random.default_rng(seed)
    found = []
    for odds in rng.normal(0.3, 1.2, count):
        is_right = bool(rng.random() < sigmoid(odds))
        judged = float(sigmoid((1.2 if is_right else -1.2) + rng.normal(0, 1.5)))
        mean = -abs(rng.normal(0.3 if is_right else 0.6, 0.2))
        is_there = is_judged(odds, rng)
        found.append(
            LabelledSignals(
                is_right,
                float(sigmoid(odds)),
                calibrator,
                Signals(
                    judged if is_there else None,
                    JUDGE if is_there else "",
                    (mean, 4 * mean) if has_logprobs(odds, rng) else None,
                ),
            )
        )
    return found
