"""A writer of the demo's answers as labelled rows: `python scripts/demo_rows.py demo.jsonl`.

`pinocchio evaluate demo.jsonl --sensitivity` then judges a calibrator on a newcomer's first
impression: how it ranks the right and wrong answers, and how far it falls when a right one changes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BENCHMARK = MODEL = "demo"


def demo_rows() -> Iterator[dict[str, Any]]:
    """Yield every labelled answer of the demo as a row, such as `pinocchio evaluate` reads."""
    from proxy.upstreams.demo.demo import rows

    for row in rows():
        yield {
            "id": row.id,
            "question_id": row.question_id,
            "benchmark": BENCHMARK,
            "domain": row.domain,
            "messages": row.messages(),
            "tools": list(row.tools),
            "response": row.message(),
            "model": MODEL,
            "correct": int(row.correct),
        }


def main() -> None:
    """Write the rows to the file named on the command line, and print their number."""
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/demo_rows.py FILE.jsonl")
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in demo_rows()]
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")
    print(f"{len(lines)} rows in {sys.argv[1]}")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # Python looks only in the script's own folder
    main()
