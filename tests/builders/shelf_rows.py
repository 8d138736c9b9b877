"""Sums that three models answer; the answers of others agree if they give the same number."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

MODELS = ("ann", "bob", "cleo")


def shelf_rows(
    count: int, seed: int, right: Mapping[str, float] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a row for each model and question.

    `right` is how often each model is right; the default is 0.6.
    """
    rng = random.Random(seed)
    for n in range(count):
        first, second = rng.randint(10, 99), rng.randint(10, 99)
        for model in MODELS:
            is_right = rng.random() < (right or {}).get(model, 0.6)
            total = first + second + (0 if is_right else rng.randint(1, 40))
            yield {
                "question_id": f"{seed} {n}",
                "benchmark": "shelves" if n % 3 else "racks",
                "model": model,
                "question": f"Shelf {n} has {first} drums and gets {second} more. How many?",
                "response": f"The answer is {total}.",
                "correct": int(is_right),
            }
