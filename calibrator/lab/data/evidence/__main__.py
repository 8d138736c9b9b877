"""Write made pairs to a file.

`python -m calibrator.lab.data.evidence --rows 60000 --seed 1 -o FILE.jsonl.gz`
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from itertools import islice
from pathlib import Path

from calibrator.lab.data.evidence.mixture import made_rows


def main() -> None:
    """Write synthetic rows as gzipped JSON lines, and print their counts by kind and label.

    The command line gives `--rows`, `--seed` and the file `-o`.
    """
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
