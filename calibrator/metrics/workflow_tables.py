"""The tables of `calibrator.metrics.workflows` as text, beside the paper's own figures.

The paper's figures come from other models, questions and a larger calibrator. They show what each
line means and are no target.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations

from calibrator.metrics.workflows import (
    ROBO_ADVISOR,
    TELEHEALTH,
    Outcome,
    by_model,
    error_detection,
    gate,
    harm,
    model_selection,
    review_table,
    reviews_for,
    tier_cost,
    tiers,
    widest_gate,
)

_LEAST_ROWS = 50
_MOST_MODELS = 10


def workflow_report(rows: Sequence[Outcome]) -> list[str]:
    """Return the lines of all tables; models with fewer than 50 replies get no line."""
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
    """Yield the lines of O01 to O06, one for each model."""
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
    """Yield the lines of Q02 and Q03."""
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
    """Yield the lines of Q06."""
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
    """Yield the lines of Q04, Q07, Q08; the prices are the paper's examples, nobody's bill."""
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
    """Yield the lines of P02 for the three models that answered the most questions in common."""
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
    return "-" if math.isnan(value) else f"{value:.3f}"


def _percent(share: float) -> str:
    return f"{'-' if math.isnan(share) else format(100 * share, '.1f'):>5} %"
