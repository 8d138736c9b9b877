"""The paper's numbers as lines of our tables, each with its row and any doubt about it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from calibrator.lab.paper.sections.tables import TableLine

_BESIDE = ("row", "label", "doubt")


@cache
def _read() -> dict[str, Any]:
    """Return the content of `numbers.yaml`, read once: the keys `doubts` and `tables`.

    `doubts` maps a key to its text, and `tables` a table's id to a list of lines.
    """
    text = files("calibrator.lab.paper").joinpath("numbers.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def paper_lines(table: str) -> list[TableLine]:
    """Return the paper's lines of the table with this id, such as `main`; [] if it has none.

    The `doubt` of a suspect line is `KEY: text`, and "" otherwise. All other keys of a line are its
    values.
    """
    doubts = _read()["doubts"]
    return [
        TableLine(
            str(each["label"]),
            {key: value for key, value in each.items() if key not in _BESIDE},
            each["row"],
            is_paper=True,
            doubt=f"{doubt}: {doubts[doubt]}" if (doubt := each.get("doubt")) else "",
        )
        for each in _read()["tables"].get(table, ())
    ]
