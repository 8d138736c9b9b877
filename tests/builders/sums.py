"""Labelled rows by a rule that can be learned: an answer is right if it contains the sum."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

NAMES = ("Ann", "Bob", "Cy", "Dee", "Eva", "Flo", "Gus", "Hal")
MODELS = ("gpt", "llama")


def sums(count: int, *, most: int = 2, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows whose questions differ by the names in them; half of the answers are wrong."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        a, b, correct = rng.randrange(most), rng.randrange(most), rng.randrange(2)
        wrong = [x for x in range(2 * most - 1) if x != a + b]
        rows.append(
            {
                "id": str(n),
                "question": f"{rng.choice(NAMES)} {rng.choice(NAMES)} {a}+{b}",
                "response": str(a + b if correct else rng.choice(wrong)),
                "model": rng.choice(MODELS),
                "benchmark": "sums",
                "correct": correct,
            }
        )
    return rows


def write_sums(path: Path, count: int, **options: int) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in sums(count, **options)))
    return path
