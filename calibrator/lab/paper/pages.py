"""The report as an HTML page, as Markdown and as JSON, all from the same tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from calibrator.lab.paper.sections.tables import ReportTable, TableLine
from calibrator.lab.reporting.page import cells_table, frame_figure, page, section, style_sheet
from calibrator.lab.reporting.panels import pipeline
from calibrator.rows.results import plain_json

TITLE = "The paper's tables on these rows"
_STEPS = (
    ("question and reply", "as an API gave them"),
    ("calibrator", "one pass, no logits"),
    ("P(correct)", "recalibrated"),
    ("policy", "deliver, hold, ask"),
    ("verdicts", "recalibrate, certify"),
)
PAPER = "the paper: "
_WORDS = {
    "lacking": "Not made: ",
    "training": "Not made: it trains calibrators; add --retrain to the command below.",
}


def svg_file(svg: str) -> str:
    """Return an inline `<svg ..>` drawing as the text of a stand-alone SVG file.

    The SVG namespace and a `<style>` element with the report's style sheet are added, and the text
    ends with a newline.
    """
    head = '<svg xmlns="http://www.w3.org/2000/svg"'
    style = f"<style>{style_sheet()}</style>"
    return svg.replace("<svg", head, 1).replace(">", f">{style}", 1) + "\n"


def drawings_of(tables: Sequence[ReportTable]) -> Iterator[tuple[str, str]]:
    """Yield (file name, SVG text) of the overview and then of each drawing of the tables.

    Names are `U01-overview.svg` and `ROW-TABLE-NUMBER.svg`, where ROW is the checklist's row, TABLE
    the table's id, and the number counts from 1 within a table.
    """
    yield "U01-overview.svg", svg_file(pipeline(_STEPS))
    for table in tables:
        for number, one in enumerate(table.drawings, start=1):
            yield f"{one.row}-{table.id}-{number}.svg", svg_file(one.svg)


def _label(line: TableLine) -> str:
    """Return the line's label, with `the paper: ` before it if the line has the paper's numbers."""
    return f"{PAPER if line.is_paper else ''}{line.label}"


def _cells(table: ReportTable) -> tuple[list[str], list[list[str]]]:
    """Return a table's head (one text for each column) and its rows of cells, all as text.

    The cells are the label, one for each column ("" where a line has no such value), and the row of
    the checklist (a letter and a number). If any line of the table is suspect, a last cell has the
    doubt's key (its text before the colon), or "".
    """
    doubts = any(line.doubt for line in table.lines)
    head = ["", *(one.title for one in table.columns), "row", *(["suspect"] if doubts else [])]
    rows = [
        [
            _label(line),
            *(
                column.text(line.values[column.key]) if column.key in line.values else ""
                for column in table.columns
            ),
            line.row,
            *([line.doubt.partition(":")[0]] if doubts else []),
        ]
        for line in table.lines
    ]
    return head, rows


def _doubts(table: ReportTable) -> list[str]:
    """Return the texts of the doubts about the paper's numbers in a table, each once, in order."""
    return list(dict.fromkeys(line.doubt for line in table.lines if line.doubt))


def _sentence(table: ReportTable) -> str:
    """Return the table's note; for a table that was not made, `Not made: ..` with the reason."""
    return f"{_WORDS[table.state]}{table.note}" if table.state in _WORDS else table.note


def as_html(tables: Sequence[ReportTable], facts: Mapping[str, Any]) -> str:
    """Return the report as the text of one HTML page without external files.

    It has an overview figure, links to the tables, a section for each table, and the rows of the
    checklist that are not covered. `facts` are the values that `run._write` collects: `calibrator`,
    `rows`, `questions`, `is_quick`, and `not_here`, which maps such a row to the reason.
    """
    links = "".join(
        f'<li><a href="#{escape(one.id, quote=True)}">{escape(one.title)}</a>'
        f"{'' if one.state == 'made' else ' (not made)'}</li>"
        for one in tables
    )
    head = (
        f"<header><h1>{escape(TITLE)}</h1><p>{escape(_facts(facts))}</p></header>"
        f"{frame_figure(pipeline(_STEPS), 'Where the number comes from and what it is for (U01).')}"
        f"<details><summary>All tables</summary><ul>{links}</ul></details>"
    )
    lacking = cells_table((("row", "why"), list(map(list, facts["not_here"].items()))))
    last = section("Checklist items not covered", lacking)
    return page(TITLE, head + "".join(map(_html_of, tables)) + last)


def _html_of(table: ReportTable) -> str:
    """Return a table's HTML section: cells, figures, suspect numbers, and its command.

    Parts that the table does not have are left out.
    """
    body = cells_table(_cells(table)) if table.lines else ""
    drawn = [
        frame_figure(one.svg, f"{one.caption} ({one.row})", one.names) for one in table.drawings
    ]
    body += f'<div class="pair">{"".join(drawn)}</div>' if drawn else ""
    doubts = "".join(f"<li>{escape(each)}</li>" for each in _doubts(table))
    body += f"<details><summary>Suspect</summary><ul>{doubts}</ul></details>" if doubts else ""
    body += (
        f"<p><small>Rows {escape(', '.join(table.rows))}. "
        f"<code>{escape(table.command)}</code></small></p>"
    )
    return section(table.title, body, _sentence(table), table.id)


def as_markdown(tables: Sequence[ReportTable], facts: Mapping[str, Any]) -> str:
    """Return the report as Markdown: title, facts, all tables, and the rows that are not covered.

    Drawings are links to the files that `drawings_of` names, in `figures/`. `facts` are as for
    `as_html`.
    """
    lacking = [f"- {row}: {why}" for row, why in facts["not_here"].items()]
    last = ["\n## Checklist items not covered\n", *lacking, ""]
    return "\n".join([f"# {TITLE}\n", _facts(facts), *map(markdown_of, tables), *last])


def markdown_of(table: ReportTable) -> str:
    """Return one table as Markdown: title, note, cells, doubts, drawings, and its rows and command.

    Parts that the table does not have are left out. Drawings are links into `figures/`.
    """
    head, rows = _cells(table)
    parts = [f"\n## {table.title}\n", _sentence(table)]
    if rows:
        lines = [head, ["---"] * len(head), *rows]
        text = "\n".join("| " + " | ".join(map(_escape_cell, each)) + " |" for each in lines)
        parts.append(f"\n{text}\n")
    parts += [f"- suspect: {each}" for each in _doubts(table)]
    for number, one in enumerate(table.drawings, start=1):
        parts.append(f"![{_escape_cell(one.caption)}](figures/{one.row}-{table.id}-{number}.svg)")
    parts.append(f"\nRows {', '.join(table.rows)}: `{table.command}`")
    return "\n".join(part for part in parts if part)


def _escape_cell(cell: str) -> str:
    """Return the text with backslash, `|` and `<` escaped for a cell of a Markdown table."""
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def as_json(tables: Sequence[ReportTable], facts: Mapping[str, Any]) -> str:
    """Return the report as indented JSON: `facts`, and `tables` with all their values.

    Of a table's drawings only the rows of the checklist are kept. The text ends with a newline.
    """
    values = [asdict(one) | {"drawings": [d.row for d in one.drawings]} for one in tables]
    return json.dumps(plain_json({**facts, "tables": values}), indent=1, ensure_ascii=False) + "\n"


def _facts(facts: Mapping[str, Any]) -> str:
    """Return the report's opening sentences: calibrator, numbers of replies and questions, source.

    They say that lines of the paper are of other data. Where `facts["is_quick"]` is set, a last
    sentence says that few resamples were used.
    """
    quick = " Made with --quick, by few resamples: a trial, not for publication."
    return (
        f"{facts['calibrator']} on {facts['rows']:,} labelled replies to {facts['questions']:,} "
        'questions. Lines that begin with "the paper" are its own numbers, of other data, models '
        "and a larger calibrator; those marked as suspect contradict others of its numbers."
        f"{quick if facts['is_quick'] else ''}"
    )
