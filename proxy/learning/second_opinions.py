"""The worth of second opinions and judges: calls from the record, gains measured by verdicts.

The confidence that knows others, or a judge and log-probabilities, is compared with the one of the
same replies that does not. Both are compared with the verdicts, with the weights of every other
estimate (`labels.py`): an audited reply stands for those that were not drawn. Numbers of another
name are measured apart.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from calibrator import Gain, gains, knows_others, knows_signals
from proxy.learning.labels import represented, weights_of
from proxy.store.record.writer import DAY_S
from proxy.store.verdicts.statistics import (
    JudgedReply,
    OpinionExchange,
    Window,
    judged_replies,
    opinion_exchanges,
)

LEAST: Final = 30
"""The least labels for a measurement."""
LABELS_FOR_DAYS: Final = 90
"""The age in days up to which verdicts count; longer than for traffic, because there are fewer."""


@dataclass(frozen=True, slots=True)
class MeasuredGain:
    """The gain of the numbers of one name over those without what they know.

    It is measured on `labels` of replies that have both: without signals where the numbers know
    some, else without others. `auroc` says how well each ranks; `kept` is the largest share that
    could be delivered, surest first, with 95 % right. Both are None where the labels are too few,
    or of one kind.
    """

    calibrator: str
    labels: int
    auroc: Gain | None
    kept: Gain | None


@dataclass(frozen=True, slots=True)
class SecondOpinions:
    """The second opinions of a window: `asked` calls, of which `failed` had no answer.

    They took `tokens`. `agreed`, `differed` and `untold` count comparisons, one for each choice of
    a reply. `replies` have a number that knows them. `judged` counts calls of a judge, `unjudged`
    those without a usable answer, `judge_tokens` their tokens. `is_whole` is False where only the
    latest exchanges of the window were read.
    """

    replies: int
    asked: int
    failed: int
    tokens: int
    agreed: int
    differed: int
    untold: int
    is_whole: bool
    measured: tuple[MeasuredGain, ...]
    judged: int = 0
    unjudged: int = 0
    judge_tokens: int = 0

    @property
    def is_any(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.asked or self.replies or self.judged or self.measured)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name, as JSON values."""
        return asdict(self)


def read_second_opinions(
    engine: Any, days: float, model: str | None = None, team: str | None = None
) -> SecondOpinions:
    """Summarize the second opinions of the last `days`, and the verdicts of `LABELS_FOR_DAYS`.

    Only exchanges of `model` and `team` count, if they are given. Raises StoreError.
    """
    now = time.time()

    def is_wanted(row: Any) -> bool:
        return model in (None, row.model) and team in (None, row.team)

    labels = judged_replies(engine, now - LABELS_FOR_DAYS * DAY_S)
    window = Window(now - days * DAY_S, now)
    return second_opinions(engine, window, filter(is_wanted, labels), is_wanted)


def second_opinions(
    engine: Any,
    window: Window,
    labels: Iterable[JudgedReply],
    is_wanted: Callable[[Any], bool] = lambda _: True,
) -> SecondOpinions:
    """Summarize the second opinions of a window's exchanges, measured on labels of any time.

    `is_wanted` says which exchanges count, by their `model` and `team`; the labels are all used.
    Raises StoreError.
    """
    found_exchanges = opinion_exchanges(engine, window)
    rows = [row for row in found_exchanges.rows if is_wanted(row)]
    calls = [call for row in rows for call in row.calls]
    judging = [call for row in rows for call in row.judging]
    opinions = Counter(opinion for row in rows for opinion in row.opinions)
    return SecondOpinions(
        sum(bool(row.opinions) for row in rows),
        len(calls),
        sum("error" in call for call in calls),
        _tokens(calls),
        opinions["agree"],
        opinions["differ"],
        opinions["untold"],
        found_exchanges.is_whole,
        tuple(_measure_gains(rows, labels)),
        len(judging),
        sum("error" in call for call in judging),
        _tokens(judging),
    )


def _tokens(calls: Iterable[Mapping[str, Any]]) -> int:
    """Return the tokens of all calls together, of prompts and answers."""
    return sum(sum(call.get("usage", {}).values()) for call in calls)


def _measure_gains(
    rows: Sequence[OpinionExchange], labels: Iterable[JudgedReply]
) -> list[MeasuredGain]:
    """Return the gain of the numbers of each name, the one with the most labels first.

    Only drawn labels that have a number without the opinions or signals count.
    """
    named: dict[str, list[JudgedReply]] = {}
    for label in labels:
        is_drawn = label.stratum != "other" and label.before is not None
        name = label.calibrator or ""
        if is_drawn and (knows_others(name) or knows_signals(name)):
            named.setdefault(name, []).append(label)
    most = sorted(named, key=lambda name: (-len(named[name]), name))
    return [_gain_of(name, [r for r in rows if r.calibrator == name], named[name]) for name in most]


def _gain_of(
    name: str, rows: Sequence[OpinionExchange], labels: Sequence[JudgedReply]
) -> MeasuredGain:
    """Return the gain of one name's numbers; without figures for fewer than `LEAST` labels."""
    if len(labels) < LEAST:
        return MeasuredGain(name, len(labels), None, None)
    measured = gains(
        [each.is_correct for each in labels],
        [each.before or 0.0 for each in labels],
        [each.confidence for each in labels],
        weights_of(labels, _replies_by_stratum(rows, labels)),
    )
    if measured is None:
        return MeasuredGain(name, len(labels), None, None)
    return MeasuredGain(name, len(labels), measured.auroc, measured.kept)


def _replies_by_stratum(
    rows: Sequence[OpinionExchange], labels: Sequence[JudgedReply]
) -> dict[str, float]:
    """Return how many replies the labels of "held" and "audited" stand for.

    That is the number in `rows`; where they have none, the shares of the draw decide.
    """
    held = sum(row.weight for row in rows if row.review_id)
    counts = {"held": held, "audited": sum(row.weight for row in rows) - held}
    return {name: counts[name] or total for name, total in represented(labels).items()}
