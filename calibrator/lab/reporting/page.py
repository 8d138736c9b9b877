"""The parts of every page of figures. All text is escaped, except the HTML `body`.

A page is self-contained, has no script, and follows the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from calibrator.lab.reporting.figures import series


def style_sheet() -> str:
    """Return the CSS of pages, the text of `report.css`, which separate drawings use too."""
    return files("calibrator.lab.reporting").joinpath("report.css").read_text(encoding="utf-8")


def page(heading: str, body: str) -> str:
    """Return the text of a whole HTML page around the HTML `body`.

    `heading` is the title of the browser's window; the body has its own heading. The style is part
    of the page.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(heading)}</title><style>{style_sheet()}</style></head>\n"
        f"<body><main>{body}</main></body></html>\n"
    )


def section(title: str, body: str, explanation: str = "", anchor: str = "") -> str:
    """Return an HTML section: a title as `<h2>`, an explanation, and the HTML `body`.

    An empty `explanation` is left out. `anchor` is the id that links name; without it there is
    none.
    """
    words = f"<p>{escape(explanation)}</p>" if explanation else ""
    place = f' id="{escape(anchor, quote=True)}"' if anchor else ""
    return f"<section{place}><h2>{escape(title)}</h2>{words}{body}</section>"


def cells_table(table: tuple[Sequence[str], Sequence[Sequence[str]]]) -> str:
    """Return an HTML table from a pair of head and rows of text; each row's first cell is its head.

    Raises ValueError for a row without cells.
    """
    head, rows = table
    lines = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
        for first, *cells in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{"".join(f"<th>{escape(one)}</th>" for one in head)}'
        f"</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def frame_figure(svg: str, caption: str, names: Sequence[str] = ()) -> str:
    """Return an HTML figure of a drawing with a caption below it.

    The caption is plain text, escaped here; the drawing is inserted as it is. Between them is a
    legend of the colours of `names`, the drawing's series, if there are any.
    """
    colours = legend(names) if names else ""
    return f"<figure>{svg}{colours}<figcaption>{escape(caption)}</figcaption></figure>"


def legend(names: Sequence[str]) -> str:
    """Return an HTML list of the names of series, each beside its colour, in colour order."""
    items = "".join(
        f'<li><svg viewBox="0 0 20 8"><line class="curve {series(number)}" x1="0" y1="4" x2="20" '
        f'y2="4"/></svg>{escape(name)}</li>'
        for number, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'
