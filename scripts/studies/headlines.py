"""A writer of a report's headline tables into docs/study.md, between two comments.

python -m scripts.studies.headlines report/
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from calibrator.lab.paper.pages import markdown_of
from calibrator.lab.paper.sections.tables import ReportTable, table_of

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "study.md"
BEGIN = "<!-- tables: written by `python -m scripts.studies.headlines`, not by hand -->\n"
END = "<!-- end of tables -->"
HEADLINES = ("main",)


def headlines(report: Path) -> str:
    """Return the tables of `HEADLINES` from a report's folder as Markdown, without drawings.

    A sentence on the rows comes first; in commands paths are `$DATA` and `report/`.
    """
    facts = json.loads((report / "report.json").read_text(encoding="utf-8"))
    parts = [
        f"\n`{facts['calibrator']}` on {facts['rows']:,} replies to {facts['questions']:,} "
        "questions of `$DATA/test`, which training never saw.\n"
    ]
    for name in HEADLINES:
        values = json.loads((report / "tables" / f"{name}.json").read_text(encoding="utf-8"))
        found = table_of(values)
        command = f"pinocchio study $DATA/test --out report/ --only {name}"
        table = ReportTable(
            found.id,
            found.title,
            found.rows,
            command,
            found.columns,
            found.lines,
            (),
            found.note,
        )
        parts.append(markdown_of(table).replace("\n## ", "\n### "))
    return "\n".join(parts) + "\n\n"


def with_tables(page: str, tables: str) -> str:
    """Return the page's text with these tables between its two comments, in place of earlier ones.

    Raises ValueError if the page has no such comments.
    """
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError("the page lacks the comments around its tables")
    return before + BEGIN + tables + END + after


def main() -> None:
    """Write the tables of the report named on the command line into `docs/study.md`."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.studies.headlines REPORT")
    text = with_tables(PAGE.read_text(encoding="utf-8"), headlines(Path(sys.argv[1])))
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
