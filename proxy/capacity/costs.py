"""What a request, a score and a row cost, as `scripts/bench capacity` measured them.

The figures stand in `costs.json` beside the command and the machine that gave them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

MEASURED = Path(__file__).with_name("costs.json")


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU time in ms of one core, memory in kB; tokens are those of the reply."""

    plain_ms: float  # a whole reply, without its tokens, its score and its row
    plain_token_ms: float
    stream_ms: float  # the same of a stream
    stream_token_ms: float  # where each token comes as an event of its own
    score_ms: float  # by the embedded calibrator
    score_token_ms: float
    row_ms: float  # of the proxy's, for the record
    row_database_ms: float  # of PostgreSQL's
    row_kb: float  # on the database's disk, with indexes and the audit chain
    held_kb: float  # a held reply, there
    process_kb: float  # a proxy without a calibrator
    calibrator_kb: float  # what the embedded one adds
    stream_kb: float  # a request that waits for upstream

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def costs_of(told: dict[str, Any]) -> Costs:
    """The figures of a document as `scripts/bench capacity --json` writes it.

    Raises ValueError where one is missing, or is no number above zero.
    """
    figures = told.get("costs")
    if not isinstance(figures, dict):
        raise ValueError("there are no 'costs' in it")
    for each in fields(Costs):
        value = figures.get(each.name)
        if not isinstance(value, int | float) or not value >= 0:
            raise ValueError(f"{each.name} is {value!r}, and has to be a number of 0 or more")
    return Costs(**{each.name: float(figures[each.name]) for each in fields(Costs)})


def read_costs(path: Path = MEASURED) -> tuple[Costs, str]:
    """The figures, and in words how they were measured; raises OSError and ValueError."""
    told = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(told, dict):
        raise ValueError("it is no JSON object")
    return costs_of(told), f"{told.get('command', '?')} on {told.get('machine', '?')}"
