"""The results of the peer benchmark: a value for each figure, target and round."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

BUSY = 0.10  # a larger share of CPU time used by others makes a measurement doubtful
LOADED = 0.90  # from this use on, load and upstream may be the limit


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the values lie, nan without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


@dataclass(slots=True)
class Board:
    """Figures by name, target and round."""

    values: dict[str, dict[str, dict[int, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    busy: dict[str, float] = field(default_factory=dict)  # measurement -> share of others
    limited: set[str] = field(default_factory=set)  # measurements limited by the load
    shed: Counter[str] = field(default_factory=Counter)  # replies without a score, by status
    unrecorded: list[str] = field(default_factory=list)  # sentences about missing rows
    notes: list[str] = field(default_factory=list)

    def add(self, number: int, target: str, **figures: float) -> None:
        """Add the figures of one target in round `number`, by name."""
        for name, value in figures.items():
            self.values[name][target][number] = value

    def median(self, figure: str, target: str) -> float:
        """Return the median of a target's figure over rounds, nan without values."""
        found = [v for v in self.values[figure][target].values() if not math.isnan(v)]
        return statistics.median(found) if found else math.nan

    def factor(self, figure: str, ours: str, other: str, *, is_cost: bool) -> float:
        """Return how many times better `ours` is than `other`: the median of the rounds' ratios.

        For a cost less is better. The result is nan if no round has both.
        """
        mine, theirs = self.values[figure][ours], self.values[figure][other]
        ratios = [
            theirs[number] / mine[number] if is_cost else mine[number] / theirs[number]
            for number in mine
            if mine[number] > 0 and theirs.get(number, 0) > 0
        ]
        return statistics.median(ratios) if ratios else math.nan

    def note(self, sentence: str) -> None:
        """Add a sentence to the notes, unless it is there already."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    @property
    def doubtful(self) -> dict[str, float]:
        """The largest share that others had of the cores, by place such as `round 1 ours`.

        Only places with more than a tenth are here.
        """
        found: dict[str, float] = defaultdict(float)
        for what, share in self.busy.items():
            if share > BUSY:
                place = what.partition(":")[0]
                found[place] = max(found[place], share)
        return found
