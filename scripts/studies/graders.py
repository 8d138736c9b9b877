"""How often a grader's label agrees with the label of rows that have a right answer, `gold`.

    python scripts/studies/graders.py choice ROWS.jsonl.gz .. [--show 5]

Rows are graded unchanged, so a prompt for the form of the answer may be missing in them.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from calibrator.lab.data.benchmarks.answered import TaskAnswer  # noqa: E402
from calibrator.lab.data.benchmarks.tasks import Task  # noqa: E402
from calibrator.lab.data.grading.graders import GraderName  # noqa: E402
from calibrator.rows.selection import load_labelled  # noqa: E402


def main() -> None:
    """Print for each file how often the grader's label is the row's, and `--show` disagreements.

    Rows without `gold`, or that the grader cannot grade, are left out; a file without others has no
    line.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("grader", choices=get_args(GraderName))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--show", type=int, default=0, help="show so many of each disagreement")
    arguments = parser.parse_args()
    for path in arguments.files:
        counts: Counter[tuple[bool, bool]] = Counter()
        lines: list[str] = []
        for row in load_labelled([path], "ignore")[0]:
            gold = row.raw.get("gold")
            if not gold:
                continue
            task = Task("", "", None, [], row.question, (str(gold),), arguments.grader)
            grade = TaskAnswer(task, "", {"content": row.answer}).rule_grade
            if grade is None:
                continue
            pair = grade.is_correct, bool(row.correct)
            counts[pair] += 1
            if pair[0] != pair[1] and counts[pair] <= arguments.show:
                lines.append(f"  {grade.why}: {grade.answer!r} beside {gold!r}")
        rows = sum(counts.values())
        if rows:
            same = (counts[True, True] + counts[False, False]) / rows
            print(
                f"{path.name}: {rows} rows, {same:.4f} the same label, {counts[True, False]} right "
                f"here and wrong there, {counts[False, True]} the other way round",
                *lines,
                sep="\n",
            )


if __name__ == "__main__":
    main()
