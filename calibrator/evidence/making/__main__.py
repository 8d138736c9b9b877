"""Write made pairs to a file.

`python -m calibrator.evidence.making --rows 60000 --seed 1 -o FILE.jsonl.gz`
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from calibrator.evidence.making import dialogues, passages, policies, tables

Row = dict[str, str]
# How many of ten rows each kind gives.
KINDS: dict[Callable[[random.Random, str], Iterator[Row]], int] = {
    policies.rows: 4,
    tables.rows: 2,
    passages.rows: 3,
    dialogues.rows: 2,
}


def made_rows(seed: int) -> Iterator[Row]:
    """Make rows without end: the same seed gives the same rows."""
    number = 0
    while True:
        rng = random.Random(f"{seed}:{number}")
        maker = rng.choices(list(KINDS), list(KINDS.values()))[0]
        yield from maker(rng, f"made-{seed}-{number}")
        number += 1


def main() -> None:
    """Write the rows that the command line asks for, and print how many of each kind and label."""
    parser = argparse.ArgumentParser(description="Write made pairs of a context and a reply.")
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    with gzip.open(options.output, "wt", encoding="utf-8") as file:
        for row in islice(made_rows(options.seed), options.rows):
            counts[row["kind"], row["label"]] += 1
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    for (kind, label), count in sorted(counts.items()):
        print(f"{kind:12} {label:10} {count}")


if __name__ == "__main__":
    main()
