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
    """Return a drawing as a stand-alone SVG file with its own style."""
    head = '<svg xmlns="http://www.w3.org/2000/svg"'
    style = f"<style>{style_sheet()}</style>"
    return svg.replace("<svg", head, 1).replace(">", f">{style}", 1) + "\n"


def drawings_of(tables: Sequence[ReportTable]) -> Iterator[tuple[str, str]]:
    """Yield the file name and the text of each drawing."""
    yield "U01-overview.svg", svg_file(pipeline(_STEPS))
    for table in tables:
        for number, one in enumerate(table.drawings, start=1):
            yield f"{one.row}-{table.id}-{number}.svg", svg_file(one.svg)


def _label(line: TableLine) -> str:
    return f"{PAPER if line.is_paper else ''}{line.label}"


def _cells(table: ReportTable) -> tuple[list[str], list[list[str]]]:
    """Return head and rows as text; a suspect number of the paper has its doubt's number."""
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
    return list(dict.fromkeys(line.doubt for line in table.lines if line.doubt))


def _sentence(table: ReportTable) -> str:
    """Return the reason why there is no table, or its note."""
    return f"{_WORDS[table.state]}{table.note}" if table.state in _WORDS else table.note


def as_html(tables: Sequence[ReportTable], facts: Mapping[str, Any]) -> str:
    """Return the report as one self-contained page."""
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
    """Return the HTML section of a table: lines, figures, suspect numbers, and its command."""
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
    """Return the report as Markdown, with links to the files of its drawings."""
    lacking = [f"- {row}: {why}" for row, why in facts["not_here"].items()]
    last = ["\n## Checklist items not covered\n", *lacking, ""]
    return "\n".join([f"# {TITLE}\n", _facts(facts), *map(markdown_of, tables), *last])


def markdown_of(table: ReportTable) -> str:
    """Return one table as Markdown with its note, doubts, drawings and command."""
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
    return cell.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


def as_json(tables: Sequence[ReportTable], facts: Mapping[str, Any]) -> str:
    """Return the report as JSON, without the drawings."""
    values = [asdict(one) | {"drawings": [d.row for d in one.drawings]} for one in tables]
    return json.dumps(plain_json({**facts, "tables": values}), indent=1, ensure_ascii=False) + "\n"


def _facts(facts: Mapping[str, Any]) -> str:
    """Return the sentences that say what the report was made from."""
    quick = " Made with --quick, by few resamples: a trial, not for publication."
    return (
        f"{facts['calibrator']} on {facts['rows']:,} labelled replies to {facts['questions']:,} "
        'questions. Lines that begin with "the paper" are its own numbers, of other data, models '
        "and a larger calibrator; those marked as suspect contradict others of its numbers."
        f"{quick if facts['is_quick'] else ''}"
    )
