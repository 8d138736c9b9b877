"""Measures whether a calibrator finds the altered argument of a call.

Right calls of tools are made wrong in the value of one argument, by rule. The altered argument
should come first among those that the calibrator names. It is compared with a guess among the
call's arguments.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from calibrator.rows.rows import Row
from calibrator.rows.scores import score_items
from calibrator.scorer import FieldDoubt, Scorer

MOST: Final = 600  # altered replies
FEWEST, WIDEST = 2, 12  # number of arguments of a call that is altered
SEED = 20_261_125


@dataclass(frozen=True, slots=True)
class FieldFigures:
    """The figures of one kind of alteration, on `replies` altered replies.

    `told` is the share for which any argument is named. `first` is the share of these in which it
    is the altered one (ties count in part), and `chance` the share that a guess finds. `found`
    counts replies without a named argument as guessed. `alarms` is the share of the same replies
    unaltered for which an argument is named.
    """

    kind: str
    replies: int
    told: float
    first: float
    chance: float
    found: float
    alarms: float


@dataclass(frozen=True, slots=True)
class FieldStudy:
    """The figures of each kind of alteration, and of all together."""

    calibrator: str
    entries: list[FieldFigures]

    def as_json(self) -> str:
        """Return the study as indented JSON text; figures that do not exist are NaN."""
        return json.dumps(asdict(self), indent=1)


@dataclass(frozen=True, slots=True)
class _AlteredCall:
    kind: str
    right: Row
    wrong: Row
    name: str  # the name of the altered argument
    names: tuple[str, ...]


def study_fields(
    scorer: Scorer,
    rows: Sequence[Row],
    most: int = MOST,
    progress: Callable[[int], None] = lambda _: None,
) -> FieldStudy:
    """Change one argument of right calls, score them, and return how often the scorer names it.

    The scorer names doubtful arguments in `Score.fields`. At most `most` replies are changed, the
    same ones for the same rows. `progress` is called with the number of replies scored since the
    last call; each counts twice, changed and unchanged. The last entry is of all kinds together.
    """
    altered = _draw_evenly(_alter_calls(rows), most)
    wrong = score_items(scorer, [each.wrong.item("served") for each in altered], progress)
    right = score_items(scorer, [each.right.item("served") for each in altered], progress)
    found = [
        (each, score.fields, bool(before.fields))
        for each, score, before in zip(altered, wrong, right, strict=True)
    ]
    kinds = sorted({each.kind for each in altered})
    entries = [_figures(kind, [f for f in found if f[0].kind == kind]) for kind in kinds]
    entries.append(_figures("all", found))
    return FieldStudy(scorer.name, entries)


def _alter_calls(rows: Sequence[Row]) -> list[_AlteredCall]:
    """Return right calls with corrupted ones that differ from them in the value of one argument.

    They are replies with a single call of `FEWEST` to `WIDEST` arguments, from all kinds of
    corruptions.
    """
    from calibrator.lab.data.calls import corrupted_calls

    found = []
    for kind, pairs in corrupted_calls(rows, SEED).items():
        for right, wrong in pairs:
            before, after = _arguments(right), _arguments(wrong)
            changed = [name for name in after if after[name] != before.get(name, after)]
            is_one = before.keys() == after.keys() and len(changed) == 1
            if is_one and FEWEST <= len(after) <= WIDEST:
                found.append(_AlteredCall(kind, right, wrong, changed[0], tuple(after)))
    return found


def _draw_evenly(altered: Sequence[_AlteredCall], most: int) -> list[_AlteredCall]:
    """Return at most `most` altered calls, about as many of each kind, the same ones every time.

    Kinds with few calls come first; what they do not use is left to the others.
    """
    rng, kinds = random.Random(SEED), sorted({each.kind for each in altered})
    by_kind = {kind: [each for each in altered if each.kind == kind] for kind in kinds}
    found: list[_AlteredCall] = []
    for at, kind in enumerate(sorted(kinds, key=lambda each: (len(by_kind[each]), each))):
        share = (most - len(found)) // (len(kinds) - at)
        found += rng.sample(by_kind[kind], min(share, len(by_kind[kind])))
    return found


def _arguments(row: Row) -> dict[str, Any]:
    """Return the arguments of the reply's only call as a dict.

    It is empty where there is no call, more than one, or arguments that are no JSON object.
    """
    calls = row.tool_use.message.get("tool_calls") if row.tool_use else None
    if not isinstance(calls, list) or len(calls) != 1:
        return {}
    try:
        arguments = json.loads(calls[0]["function"]["arguments"])
    except (KeyError, TypeError, ValueError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _figures(
    kind: str, found: Sequence[tuple[_AlteredCall, tuple[FieldDoubt, ...], bool]]
) -> FieldFigures:
    """Return the figures of altered calls under the name `kind`; nan where there are none.

    `found` has for each call the fields named for it, and whether any was named for the unaltered
    reply.
    """

    def mean(values: Sequence[float]) -> float:
        """Return the mean of the values, or nan for none."""
        return float(np.mean(values)) if values else float("nan")

    firsts = [
        (_first_share(each, fields), 1 / len(each.names)) for each, fields, _ in found if fields
    ]
    guesses = [1 / len(each.names) for each, fields, _ in found if not fields]
    return FieldFigures(
        kind,
        len(found),
        len(firsts) / len(found) if found else float("nan"),
        mean([first for first, _ in firsts]),
        mean([chance for _, chance in firsts] + guesses),
        mean([first for first, _ in firsts] + guesses),
        mean([float(alarm) for *_, alarm in found]),
    )


def _first_share(altered: _AlteredCall, fields: Sequence[FieldDoubt]) -> float:
    """Return 1 where the altered argument alone has the lowest share, 1 / k for a tie of k, else 0.

    A field without a share counts as 1. `fields` must not be empty.
    """
    shares = {each.name: 1.0 if each.share is None else each.share for each in fields}
    lowest = min(shares.values())
    first = [name for name, share in shares.items() if share <= lowest]
    return 1 / len(first) if altered.name in first else 0.0
