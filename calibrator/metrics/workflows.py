"""The paper's three production workflows and its cost tables, for labelled replies.

Each function takes rows, a confidence and a label each, and returns one table of the paper (rows
O01 to O06 and Q02 to Q08 of its checklist). A reply "passes" a threshold where its confidence is
above it, as in the paper. Rules of a policy use `at_least`, which differs where both are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations, groupby
from typing import NamedTuple

# `workflow_report` prints the tables beside the paper's figures, which come from other models,
# questions and a larger calibrator: they show what each line means and are no target.
_LEAST_ROWS = 50
_MOST_MODELS = 10


class Outcome(NamedTuple):
    """A scored, labelled reply of `model`; replies with the same `question` compete."""

    confidence: float
    is_correct: bool
    model: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class Detection:
    """Error detection by low confidence (O01).

    `auprc` is the average precision (H08), `f1` the best over all thresholds (H09), reached by
    flagging confidences up to `threshold`.
    """

    auprc: float
    f1: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Gate:
    """Replies above a threshold (O03, Q02).

    `coverage` is their share, `error` the share of errors among them, `catch` the share of all
    errors that stay below.
    """

    threshold: float
    coverage: float
    error: float
    catch: float


@dataclass(frozen=True, slots=True)
class Review:
    """The replies to review, least sure first, for an accuracy (O04, H11), as shares of all.

    `system` counts a reviewed reply as right; `delivered` counts only the others. `random` is
    `system` where reviews are drawn at random.
    """

    system: float
    delivered: float
    random: float


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier of a routing (O05, Q07).

    `volume` is its share of all replies, `error_share` its share of all errors (H12).
    """

    name: str
    volume: float
    accuracy: float
    error_share: float
    count: int
    wrong: int


@dataclass(frozen=True, slots=True)
class CaughtErrors:
    """Errors found by reviewing the least sure `share` of the replies, and missed by it (Q06)."""

    share: float
    caught: int
    slipped: int


@dataclass(frozen=True, slots=True)
class Harm:
    """The number of errors, of those at high and of those at low confidence (Q03, H13).

    `nnr` is the number of reviews for each error found among the first 25, the least sure ones.
    """

    errors: int
    confident: int
    unconfident: int
    nnr: float


@dataclass(frozen=True, slots=True)
class Prices:
    """The price of one reply in each tier: delivered, reviewed by a junior or a senior person."""

    deliver: float
    junior: float
    senior: float


TELEHEALTH = Prices(deliver=0.5, junior=10.0, senior=25.0)
"""Example costs of the paper (Q04): automatic, nurse, physician, in dollars."""

ROBO_ADVISOR = Prices(deliver=0.5, junior=20.0, senior=50.0)
"""Example costs of the paper (Q08): automatic, junior analyst, senior analyst, in dollars."""

HIGH, LOW = 0.8, 0.5
"""The tiers' thresholds that the paper's tables imply (V31)."""

_ROUNDING = 1e-9


def error_detection(rows: Sequence[Outcome]) -> Detection:
    """Return how well low confidence finds errors (O01); all nan without errors."""
    errors = sum(not row.is_correct for row in rows)
    if not errors:
        return Detection(math.nan, math.nan, math.nan)
    found = flagged = 0
    precision_sum, best = 0.0, (0.0, 0.0)
    for confidence, equal in _by_confidence(rows):
        wrong = sum(not row.is_correct for row in equal)
        found, flagged = found + wrong, flagged + len(equal)
        precision_sum += wrong * found / flagged
        best = max(best, (2 * found / (flagged + errors), confidence))
    return Detection(precision_sum / errors, *best)


def gate(rows: Sequence[Outcome], threshold: float) -> Gate:
    """Return the share and the errors of the replies above one threshold (Q02).

    The error is nan where nothing passes, and `catch` where there are no errors.
    """
    passing = [row for row in rows if row.confidence > threshold]
    wrong = sum(not row.is_correct for row in passing)
    errors = sum(not row.is_correct for row in rows)
    return Gate(
        threshold,
        _share(len(passing), len(rows)),
        _share(wrong, len(passing)),
        _share(errors - wrong, errors),
    )


def widest_gate(rows: Sequence[Outcome], max_error: float) -> Gate:
    """Return the gate of the most coverage with at most `max_error` errors among it (O03).

    `max_error` is a share. The threshold is chosen with the labels in view: it describes these rows
    and promises nothing about others; `pinocchio certify` does that. Coverage is 0 where no gate
    will do.
    """
    best, below = Gate(1.0, 0.0, math.nan, 1.0), 0
    wrong_left = errors = sum(not row.is_correct for row in rows)
    threshold = -math.inf
    for confidence, equal in _by_confidence(rows):
        passing = len(rows) - below
        if wrong_left <= max_error * passing + _ROUNDING:
            error = wrong_left / passing
            return Gate(threshold, passing / len(rows), error, _share(errors - wrong_left, errors))
        below += len(equal)
        wrong_left -= sum(not row.is_correct for row in equal)
        threshold = confidence
    return best


def reviews_for(rows: Sequence[Outcome], accuracy: float = 0.95) -> Review:
    """Return the least shares of replies to review for an accuracy (O04, H11).

    They are by two readings, as the paper defines none.
    """
    allowed = 1.0 - accuracy + _ROUNDING
    errors = sum(not row.is_correct for row in rows)
    remaining = [
        errors,
        *(errors - found for found in accumulate(not r.is_correct for r in _sort_by_doubt(rows))),
    ]
    total = len(rows)
    system = next(n for n, wrong in enumerate(remaining) if wrong <= allowed * total)
    delivered = next(n for n, wrong in enumerate(remaining) if wrong <= allowed * (total - n))
    by_lot = max(0.0, 1.0 - allowed * total / errors) if errors else 0.0
    return Review(_share(system, total), _share(delivered, total), by_lot)


def tiers(rows: Sequence[Outcome], high: float = HIGH, low: float = LOW) -> tuple[Tier, Tier, Tier]:
    """Return the tiers green above `high`, yellow, and red below `low`, in order (O05, Q07)."""
    errors = sum(not row.is_correct for row in rows)

    def tier(name: str, members: Sequence[Outcome]) -> Tier:
        """Return the figures of one tier with these members."""
        wrong = sum(not row.is_correct for row in members)
        volume, accuracy = _share(len(members), len(rows)), 1.0 - _share(wrong, len(members))
        return Tier(name, volume, accuracy, _share(wrong, errors), len(members), wrong)

    return (
        tier("green", [row for row in rows if row.confidence > high]),
        tier("yellow", [row for row in rows if low <= row.confidence <= high]),
        tier("red", [row for row in rows if row.confidence < low]),
    )


def tier_cost(routed: tuple[Tier, Tier, Tier], prices: Prices) -> tuple[float, float]:
    """Return the cost of a routing, and that of a senior review of every reply (Q04, Q08).

    Both are in the unit of `prices`.
    """
    green, yellow, red = routed
    cost = green.count * prices.deliver + yellow.count * prices.junior + red.count * prices.senior
    return cost, sum(tier.count for tier in routed) * prices.senior


def review_table(rows: Sequence[Outcome], shares: Iterable[float]) -> list[CaughtErrors]:
    """Return the errors found and missed by reviewing each share of the least sure (Q06)."""
    wrong = [not row.is_correct for row in _sort_by_doubt(rows)]
    errors = sum(wrong)
    found = [0, *accumulate(wrong)]
    counts = ((share, found[round(share * len(rows))]) for share in shares)
    return [CaughtErrors(share, caught, errors - caught) for share, caught in counts]


def harm(rows: Sequence[Outcome], reviews: int = 25) -> Harm:
    """Return the errors above `HIGH` and below `LOW`, and reviews per error found first (Q03).

    The first `reviews` replies are the least sure; inf where no error is among them.
    """
    wrong = [row for row in rows if not row.is_correct]
    found = sum(not row.is_correct for row in _sort_by_doubt(rows)[:reviews])
    return Harm(
        len(wrong),
        sum(row.confidence > HIGH for row in wrong),
        sum(row.confidence < LOW for row in wrong),
        min(reviews, len(rows)) / found if found else math.inf,
    )


def by_model(rows: Iterable[Outcome]) -> Mapping[str, list[Outcome]]:
    """Return the rows of each model, in the order of the models' names (O06)."""
    found: dict[str, list[Outcome]] = {}
    for row in rows:
        found.setdefault(row.model, []).append(row)
    return dict(sorted(found.items()))


def model_selection(rows: Sequence[Outcome], models: Sequence[str]) -> tuple[float, float]:
    """Return the accuracy of the surest of the models' replies, and of the best model (P02).

    Only questions that all of the models answered count, with a model's first reply. Both are nan
    where there are none.
    """
    replies: dict[str, dict[str, Outcome]] = {}
    for row in rows:
        if row.model in models:
            replies.setdefault(row.question, {}).setdefault(row.model, row)
    whole = [each for each in replies.values() if len(each) == len(models)]
    chosen = [max(each.values(), key=lambda row: row.confidence).is_correct for each in whole]
    alone = [_share(sum(each[model].is_correct for each in whole), len(whole)) for model in models]
    return _share(sum(chosen), len(whole)), max(alone, default=math.nan)


def _sort_by_doubt(rows: Iterable[Outcome]) -> list[Outcome]:
    """Return the rows with the least sure first; equal ones keep their order."""
    return sorted(rows, key=lambda row: row.confidence)


def _by_confidence(rows: Iterable[Outcome]) -> Iterator[tuple[float, list[Outcome]]]:
    """Yield each distinct confidence, lowest first, with all rows that have it."""
    for confidence, equal in groupby(_sort_by_doubt(rows), key=lambda row: row.confidence):
        yield confidence, list(equal)


def _share(part: float, whole: float) -> float:
    """Return part / whole, or nan for a whole of 0."""
    return part / whole if whole else math.nan


def workflow_report(rows: Sequence[Outcome]) -> list[str]:
    """Return the lines of all tables beside the paper's figures, as text.

    Models with fewer than 50 replies, and all but the ten largest, get no line. Without rows it is
    the one line `no labelled replies`.
    """
    if not rows:
        return ["no labelled replies"]
    large = {name: each for name, each in by_model(rows).items() if len(each) >= _LEAST_ROWS}
    most = sorted(large, key=lambda name: -len(large[name]))[:_MOST_MODELS]
    groups = {"all": list(rows)} | {name: large[name] for name in most}
    return [
        *_workflows(groups),
        "",
        *_thresholds(rows),
        "",
        *_reviews(rows),
        "",
        *_costs(rows),
        *_selection(rows, most),
    ]


def _workflows(groups: dict[str, list[Outcome]]) -> Iterator[str]:
    """Yield the lines of the table of O01 to O06, one for each group of rows."""
    yield "Error detection, gated coverage, review, tiers (paper: O01, O03, O04, O05, by model O06)"
    header = ("AUPRC", "F1", "<=10%", "<=5%", "review", "green", "acc", "errors", "red")
    yield f"{'':28} {'replies':>7} " + " ".join(f"{name:>6}" for name in header)
    for name, rows in groups.items():
        detection, routed = error_detection(rows), tiers(rows)
        figures = (
            detection.auprc,
            detection.f1,
            widest_gate(rows, 0.10).coverage,
            widest_gate(rows, 0.05).coverage,
            reviews_for(rows).delivered,
            routed[0].volume,
            routed[0].accuracy,
            routed[0].error_share,
            routed[2].error_share,
        )
        yield f"{name:28.28} {len(rows):7} " + " ".join(f"{_figure(each):>6}" for each in figures)
    paper = ("0.867", "0.782", ".27-35", ".14-21", "0.79", ".34-43", ".88-90", ".07-12", ".64-74")
    yield f"{'paper, three models':28} {1953:7} " + " ".join(f"{each:>6}" for each in paper)


def _thresholds(rows: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of the tables of thresholds (Q02) and of errors at high confidence (Q03)."""
    paper = {0.5: (59, 19.3, 75), 0.6: (50, 13.2, 85), 0.7: (43, 10.4, 90), 0.8: (34, 7.7, 94)}
    paper[0.9] = (27, 4.1, 98)
    yield "Thresholds: coverage, error of what passes, errors caught (Q02; paper: healthcare set)"
    for threshold, (coverage, error, catch) in paper.items():
        found = gate(rows, threshold)
        yield (
            f"  {threshold:.1f}  {_percent(found.coverage)} {_percent(found.error)} "
            f"{_percent(found.catch)}   paper {coverage} % {error} % {catch} %"
        )
    found_harm = harm(rows)
    yield (
        f"  of {found_harm.errors} errors {found_harm.confident} are above 0.8 and "
        f"{found_harm.unconfident} below 0.5; {found_harm.nnr:.2f} reviews for an error at first "
        "(Q03; paper 26 and 340 of 454, 1.0)"
    )


def _reviews(rows: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines of the table of errors caught by reviewing the least sure (Q06)."""
    paper = {0.1: 18, 0.2: 35, 0.3: 52, 0.4: 68, 0.5: 83}
    yield "Reviewing the least sure: errors caught and slipped (Q06; paper: finance set)"
    for each in review_table(rows, paper):
        errors = each.caught + each.slipped
        caught = each.caught / errors if errors else math.nan
        yield (
            f"  {each.share:4.0%}  {each.caught:6} {each.slipped:6} {_percent(caught)}   "
            f"paper {paper[each.share]} %"
        )


def _costs(rows: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines on tiers and their costs (Q04, Q07, Q08).

    The prices are the paper's examples, nobody's bill.
    """
    routed = tiers(rows)
    yield "Tiers above 0.8, from 0.5, below (Q07; paper 30, 11, 59 % at 95.3, 72.9, 12.1 % right)"
    for tier in routed:
        yield f"  {tier.name:6} {_percent(tier.volume)} of replies, {_percent(tier.accuracy)} right"
    for name, prices, paper in (
        ("telehealth", TELEHEALTH, "25,150 -> 11,654 for 1,006 (Q04)"),
        ("robo-advisor", ROBO_ADVISOR, "96,500 -> 60,244 for 1,930 (Q08)"),
    ):
        cost, manual = tier_cost(routed, prices)
        yield (
            f"  {name} at example costs: {manual:,.0f} -> {cost:,.0f} dollars "
            f"({_percent(cost / manual).strip()})   paper {paper}"
        )


def _selection(rows: Sequence[Outcome], models: Sequence[str]) -> Iterator[str]:
    """Yield the lines on choosing the surest model's reply (P02); none without three models.

    It takes the three of `models` that answered the most questions in common.
    """
    answered = {name: {row.question for row in each} for name, each in by_model(rows).items()}

    def count_shared(three: Sequence[str]) -> int:
        return len(set.intersection(*(answered[name] for name in three)))

    three = max(combinations(models, 3), key=count_shared, default=())
    if three and count_shared(three):
        chosen, alone = model_selection(rows, three)
        yield ""
        yield (
            f"The surest of {', '.join(three)} on {count_shared(three)} questions: "
            f"{_percent(chosen).strip()} right, the best one alone {_percent(alone).strip()} "
            "(P02; paper 67.4 %, 5.4 points more than the best)"
        )


def _figure(value: float) -> str:
    """Return a number with three digits, or `-` for nan."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def _percent(share: float) -> str:
    """Return a share as percent with one digit, or `-` for nan."""
    return f"{'-' if math.isnan(share) else format(100 * share, '.1f'):>5} %"
