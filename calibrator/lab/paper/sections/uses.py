"""Uses of the confidence: errors found, gates, reviews, tiers, costs (paper O, P, Q)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from calibrator.lab.paper.sections.scored import ScoredRows
from calibrator.lab.paper.sections.tables import Column, Drawing, TableContent, Value
from calibrator.lab.reporting.panels import (
    coverage_accuracy_curves,
    precision_recall_curves,
    review_curves,
)
from calibrator.metrics.metrics import auroc
from calibrator.metrics.workflows import (
    ROBO_ADVISOR,
    TELEHEALTH,
    Outcome,
    Prices,
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
from calibrator.rows.groups import printable_name

LARGEST, FEWEST = 10, 50  # models that get their own line, and the replies that one needs
PANELS = 3  # models that get their own row of figures (U05)
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9)
# These match a row's domain or benchmark; the paper's sets are lists of benchmarks.
SETS = {
    "healthcare": r"(?i)\b(medic|health|clinic|biolog|pharm|psycholog|chem)",
    "finance": r"(?i)(financ|econom|business|account)",
}


def groups_of_models(rows: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Return all rows as `all`, then those of each of the `LARGEST` models, the largest first.

    A model needs a name and `FEWEST` replies.
    """
    large = {n: each for n, each in by_model(rows).items() if n and len(each) >= FEWEST}
    most = sorted(large, key=lambda name: (-len(large[name]), name))[:LARGEST]
    return {"all": list(rows)} | {name: large[name] for name in most}


def workflows_table(scored: ScoredRows) -> TableContent:
    """Return the table for O01, O03 to O06: error detection, gates, reviews and tiers.

    It has a line for all rows and one for each of the largest models. With two models or more a
    line has their mean. Drawings are for all rows (U04) and the `PANELS` largest models (U05).
    """
    table = TableContent(
        (
            Column("rows", "replies", "count"),
            Column("auprc", "AUPRC wrong"),
            Column("f1", "best F1"),
            Column("gate_10", "passes at 10 % wrong", "share"),
            Column("gate_5", "at 5 % wrong", "share"),
            Column("system", "reviews for 95 %, all replies", "share"),
            Column("random", "the same by lot", "share"),
            Column("saved", "less work", "share"),
            Column("delivered", "reviews for 95 % of the rest", "share"),
            Column("saved_delivered", "less work", "share"),
            Column("green", "green", "share"),
            Column("green_right", "of it right"),
            Column("green_errors", "errors in green", "share"),
            Column("red_errors", "errors in red", "share"),
        )
    )
    groups = groups_of_models(scored.outcomes)
    for name, rows in groups.items():
        table.add(printable_name(name), "O01" if name == "all" else "O06", **_workflows(rows))
    if len(groups) > 2:
        _add_mean_over_models(table, [found.values for found in table.lines[1:]])
    for name, rows in list(groups.items())[: PANELS + 1]:
        row, where = ("U04", "all rows") if name == "all" else ("U05", printable_name(name))
        table.drawings += _panels(rows, row, where)
    table.note = (
        "Reviews, least sure first, until 95 % are right: of all replies, where a reviewed one "
        "counts as right (by lot beside it), or of those that nobody looked at, which the paper's "
        "79 % and its 100 % by lot seem to mean."
    )
    return table


def _add_mean_over_models(table: TableContent, models: Sequence[Mapping[str, Value]]) -> None:
    """Add the unweighted mean of each column over models, as the paper averages; `rows` is summed.

    `models` are the values of their lines. A value that is no number is left out of its mean, which
    is None if there is none.
    """
    means: dict[str, Value] = {"rows": sum(int(str(one["rows"])) for one in models)}
    for key in (column.key for column in table.columns if column.key != "rows"):
        found = [value for one in models if isinstance(value := one[key], float | int)]
        means[key] = sum(found) / len(found) if found else None
    table.add(f"mean over {len(models)} models", "O01", **means)


def _workflows(rows: Sequence[Outcome]) -> dict[str, Value]:
    """Return the values of one line of the workflows' table, keyed like its columns.

    They are of error detection, gates at 10 and 5 % wrong, reviews until 95 % are right, and tiers
    (green is the surest, red the least sure).
    """
    found, review, routed = error_detection(rows), reviews_for(rows), tiers(rows)
    is_easy = sum(not row.is_correct for row in rows) <= 0.05 * len(rows)
    by_lot = 0.0 if is_easy else 1.0  # random reviews leave the rest no better
    return {
        "rows": len(rows),
        "auprc": found.auprc,
        "f1": found.f1,
        "gate_10": widest_gate(rows, 0.10).coverage,
        "gate_5": widest_gate(rows, 0.05).coverage,
        "system": review.system,
        "random": review.random,
        "saved": review.random - review.system,
        "delivered": review.delivered,
        "saved_delivered": by_lot - review.delivered,
        "green": routed[0].volume,
        "green_right": routed[0].accuracy,
        "green_errors": routed[0].error_share,
        "red_errors": routed[2].error_share,
    }


def _panels(rows: Sequence[Outcome], row: str, where: str) -> list[Drawing]:
    """Return three drawings of one set of rows; [] if all labels are equal.

    They show errors found, accuracy of what passes, and errors found by reviews. `row` is such as
    `U04`, and `where` names the rows in titles and captions.
    """
    y = np.array([int(one.is_correct) for one in rows])
    p = np.array([one.confidence for one in rows])
    if len(set(y)) < 2:
        return []
    captions = "errors found", "accuracy of what passes", "errors found by reviews"
    curves = precision_recall_curves, coverage_accuracy_curves, review_curves
    return [
        Drawing(row, draw([(where, y, p)]), f"{where}: {caption}.")
        for draw, caption in zip(curves, captions, strict=True)
    ]


def selection_table(scored: ScoredRows) -> TableContent:
    """Return the table for P01 to P03: preference pairs, choice of models, choice of replies.

    The choices are the surest of three models and the surest share kept. Each line compares a share
    of right ones with that of another choice, such as pairs by lot. P01 and P02 are left out where
    the rows allow none.
    """
    table = TableContent(
        (
            Column("count", "count", "count"),
            Column("right", "right"),
            Column("beside", "of these right"),
            Column("difference", "difference"),
            Column("what", "compared with", "text"),
        )
    )
    _add_pairs(scored, table)
    rows = scored.outcomes
    _add_selection(rows, table)
    order = sorted(rows, key=lambda one: -one.confidence)
    everything = sum(one.is_correct for one in rows) / len(rows)
    for share in (0.25, 0.5, 0.75):
        kept = order[: round(share * len(order))]
        right = sum(one.is_correct for one in kept) / len(kept)
        line: dict[str, Value] = {"count": len(kept), "right": right, "beside": everything}
        table.add(
            f"the surest {share:.0%} kept", "P03", **line, difference=right - everything,
            what="all replies",
        )  # fmt: skip
    return table


def _add_pairs(scored: ScoredRows, table: TableContent) -> None:
    """Add P01: the surest and the least sure reply to each question, by their gap in confidence.

    For gaps of at least .2, .4 and .6 a line has the share of pairs with one right and one wrong
    reply, beside pairs drawn by lot, and a second one how often the right reply is the surer one.
    Lines without any pair are left out.
    """
    best: dict[int, tuple[int, int]] = {}
    p, y = scored.confidence(), scored.labels
    for at, question in enumerate(scored.questions):
        high, low = best.get(question, (at, at))
        best[question] = (at if p[at] > p[high] else high, at if p[at] < p[low] else low)
    count = np.bincount(scored.questions)
    right = np.bincount(scored.questions, weights=y)
    chance = 2 * right * (count - right) / np.maximum(count * (count - 1), 1)
    for gap in (0.2, 0.4, 0.6):
        pairs = [(q, *ends) for q, ends in best.items() if p[ends[0]] - p[ends[1]] >= gap]
        if not pairs:
            continue
        informative = float(np.mean([y[high] != y[low] for _, high, low in pairs]))
        good = [y[high] > y[low] for _, high, low in pairs if y[high] != y[low]]
        by_lot = float(np.mean([chance[q] for q, _, _ in pairs]))
        table.add(
            f"pairs a gap of {gap} apart: one right, one wrong", "P01", count=len(pairs),
            right=informative, beside=by_lot, difference=informative - by_lot,
            what="pairs of the same questions by lot",
        )  # fmt: skip
        if good:
            table.add(
                f"... the right one is the surer one, gap {gap}", "P01", count=len(good),
                right=float(np.mean(good)), beside=0.5, difference=float(np.mean(good)) - 0.5,
                what="chance",
            )  # fmt: skip


def _add_selection(rows: Sequence[Outcome], table: TableContent) -> None:
    """Add P02: the surest of three models' replies to a question, beside the best model alone.

    These are the three that answered the most questions in common. Adds nothing for fewer than
    three models, or without a common question.
    """
    answered = {n: {one.question for one in each} for n, each in groups_of_models(rows).items()}
    answered.pop("all")
    if len(answered) < 3:
        return

    def count_shared(three: Sequence[str]) -> int:
        """Return the number of questions that all three models answered."""
        return len(set.intersection(*(answered[name] for name in three)))

    three = max(combinations(answered, 3), key=count_shared)
    if not count_shared(three):
        return
    chosen, alone = model_selection(rows, three)
    table.add(
        f"the surest of {', '.join(map(printable_name, three))}", "P02", count=count_shared(three),
        right=chosen, beside=alone, difference=chosen - alone, what="the best model alone",
    )  # fmt: skip


def thresholds_table(scored: ScoredRows) -> TableContent:
    """Return the table for Q02, Q03: gates at several thresholds, and harm.

    It is made of healthcare rows and of all rows. Healthcare rows are left out if they are too few.
    A line of harm counts the errors, those above .8 and below .5, and the reviews for each error
    found when the least sure are reviewed first.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("coverage", "passes", "share"),
            Column("error", "wrong of it"),
            Column("catch", "errors that stay below", "share"),
            Column("errors", "errors", "count"),
            Column("high", "above .8", "count"),
            Column("low", "below .5", "count"),
            Column("nnr", "reviews an error"),
        )
    )
    for where, rows in _sets(scored, "healthcare"):
        for threshold in THRESHOLDS:
            one = gate(rows, threshold)
            line: dict[str, Value] = {"coverage": one.coverage, "error": one.error}
            table.add(f"{where}, above {threshold}", "Q02", rows=len(rows), **line, catch=one.catch)
        seen = harm(rows)
        counts: dict[str, Value] = {"errors": seen.errors, "high": seen.confident}
        table.add(
            f"{where}, harm", "Q03", rows=len(rows), **counts, low=seen.unconfident, nnr=seen.nnr
        )
    return table


def reviews_table(scored: ScoredRows) -> TableContent:
    """Return the table for Q06: errors found by reviewing the least sure 10 to 50 %.

    Columns are the errors caught and missed. It is made of finance rows, if there are enough, and
    of all rows. `catch` is None without errors.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("caught", "caught", "count"),
            Column("slipped", "slipped", "count"),
            Column("catch", "catch rate", "share"),
        )
    )
    for where, rows in _sets(scored, "finance"):
        for one in review_table(rows, SHARES):
            errors = one.caught + one.slipped
            table.add(
                f"{where}, {one.share:.0%} reviewed", "Q06", rows=len(rows), caught=one.caught,
                slipped=one.slipped, catch=one.caught / errors if errors else None,
            )  # fmt: skip
    return table


def costs_table(scored: ScoredRows) -> TableContent:
    """Return the table for Q01, Q04, Q05, Q07, Q08: tiers and their costs at the paper's prices.

    It has healthcare rows at a telehealth service's prices and finance rows at a robo-advisor's;
    all rows take the place of such rows if these are too few.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("volume", "of the rows", "share"),
            Column("right", "right"),
            Column("auroc", "AUROC"),
            Column("cost", "dollars", "count"),
            Column("manual", "all by a senior", "count"),
        )
    )
    for name, prices, row in (
        ("healthcare", TELEHEALTH, "Q04"),
        ("finance", ROBO_ADVISOR, "Q08"),
    ):
        for where, rows in _sets(scored, name)[:1]:
            _add_costs(table, where, rows, prices, row)
    table.note = "Prices are the paper's examples, nobody's bill; no people were measured."
    return table


def _add_costs(
    table: TableContent, where: str, rows: Sequence[Outcome], prices: Prices, row: str
) -> None:
    """Add a line for all replies, one for each tier, and one for the cost in dollars.

    `row` is the checklist's row of the costs: "Q04" for healthcare, "Q08" for finance. `where`
    begins each label.
    """
    y = [int(one.is_correct) for one in rows]
    found = auroc(y, [one.confidence for one in rows])
    ends: dict[str, Value] = {"rows": len(rows), "right": sum(y) / len(y), "auroc": found}
    table.add(f"{where}, all", "Q01" if row == "Q04" else "Q05", **ends)
    routed = tiers(rows)
    for tier in routed:
        line: dict[str, Value] = {"rows": tier.count, "volume": tier.volume}
        table.add(f"{where}, {tier.name}", "Q07", **line, right=tier.accuracy)
    cost, manual = tier_cost(routed, prices)
    table.add(f"{where}, cost", row, rows=len(rows), cost=cost, manual=manual)


def _sets(scored: ScoredRows, name: str) -> list[tuple[str, list[Outcome]]]:
    """Return [(label, outcomes)]: the rows of the set `name` if there are enough, then all rows.

    The set is `healthcare` or `finance`; its words are looked for in a row's domain and benchmark.
    It needs `FEWEST` rows with both labels.
    """
    wanted = re.compile(SETS[name])
    chosen = [
        one
        for row, one in zip(scored.rows, scored.outcomes, strict=True)
        if wanted.search(f"{row.domain or ''} {row.benchmark or ''}")
    ]
    is_enough = len(chosen) >= FEWEST and len({one.is_correct for one in chosen}) == 2
    found = [(f"{name} rows", chosen)] if is_enough else []
    return [*found, ("all rows", scored.outcomes)]
