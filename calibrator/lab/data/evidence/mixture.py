"""Synthetic rows of all kinds, mixed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from calibrator.lab.data.evidence import dialogues, passages, policies, tables

Row = dict[str, str]
# Weight of each kind.
KINDS: dict[Callable[[random.Random, str], Iterator[Row]], int] = {
    policies.rows: 4,
    tables.rows: 2,
    passages.rows: 3,
    dialogues.rows: 2,
}


def made_rows(seed: int) -> Iterator[Row]:
    """Yield rows of all kinds without end, drawn by weight; the same seed gives the same rows.

    A row has `kind`, `group` (`made-SEED-N`, equal for rows about one context), `premise` (the
    context), `question` (may be empty), `hypothesis` (the reply) and `label`: `entail`,
    `contradict` or `neutral`.
    """
    number = 0
    while True:
        rng = random.Random(f"{seed}:{number}")
        maker = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield from maker(rng, f"made-{seed}-{number}")
        number += 1
