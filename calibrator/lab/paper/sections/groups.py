"""Figures by model, benchmark, tier and maker, and the worst errors.

Paper: J10 to J13, K01, H14, H16; S01, S02, S04 and O02 are errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibrator.lab.data.benchmarks.survey import survey
from calibrator.lab.judging.baselines.fitted import length_baseline
from calibrator.lab.paper.sections.scored import FEWEST, LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, TableContent, Value
from calibrator.lab.studies.failures import Failures, study_failures
from calibrator.lab.studies.studies import family
from calibrator.metrics.metrics import Ints, auroc, brier, ece
from calibrator.metrics.rankings import spearman
from calibrator.rows.groups import groups_of, printable_name
from calibrator.rows.results import Method, result_of
from calibrator.scorer import known_name

LISTED = 10  # ids of the worst errors of each kind

LARGEST = 30  # models that get their own line
_RANKED = (
    Column("rows", "rows", "count"),
    Column("right", "right"),
    Column("auroc", "AUROC"),
    Column("length", "length AUROC"),
    Column("brier", "Brier"),
    Column("ece", "ECE"),
)


def _ranking_figures(scored: ScoredRows, at: Ints) -> dict[str, Value]:
    """Return the figures of the rows at these positions, keyed like `_RANKED`.

    These are rows, share right, AUROC, AUROC of the reply's length, Brier and ECE. The length
    baseline is fitted on the same rows, as in the paper.
    """
    y, p, rows = scored.labels[at], scored.confidence()[at], scored.rows_at(at)
    return {
        "rows": len(at),
        "right": float(y.mean()),
        "auroc": auroc(y, p),
        "length": auroc(y, length_baseline(rows, rows)),
        "brier": brier(y, p),
        "ece": ece(y, p),
    }


def models_table(scored: ScoredRows) -> TableContent:
    """Return the table for J10: each of the largest models with its length baseline.

    The last two lines have means (H16) over all models with enough replies, not only those listed.
    Raises LacksError if no model has `FEWEST` replies, right and wrong ones.
    """
    table = TableContent(_RANKED)
    groups = scored.groups(lambda row: row.model)
    if not groups:
        raise LacksError(f"no model has {FEWEST} replies, right and wrong ones")
    for name, at in groups[:LARGEST]:
        table.add(printable_name(name), "J10", **_ranking_figures(scored, at))
    _add_means(table, "models", [_ranking_figures(scored, at) for _, at in groups])
    return table


def _add_means(content: TableContent, what: str, found: Sequence[dict[str, Value]]) -> None:
    """Add two lines (H16): the mean of the groups' figures, and the mean weighted by their rows.

    `what` names the groups, such as `models`; `found` has the figures of each, as
    `_ranking_figures` returns them. A figure that is None or 0 counts as 0.
    """
    names = ("right", "auroc", "length", "brier", "ece")
    table = np.array([[float(one[name] or 0.0) for name in names] for one in found])
    rows = np.array([float(one["rows"] or 0) for one in found])
    for label, weights in (("mean over", None), ("mean weighed by rows over", rows)):
        values = np.average(table, axis=0, weights=weights)
        each = dict(zip(names, map(float, values), strict=True))
        content.add(f"{label} {len(found)} {what}", "H16", rows=int(rows.sum()), **each)


def transfer_table(scored: ScoredRows) -> TableContent:
    """Return the table for K01: each maker's models, with figures of their replies.

    One column is the share of rows whose models training has seen. The share is None for a
    calibrator that knows no models by name. Otherwise a line has the rows of unseen models, if
    there are `FEWEST` with both labels. Means over makers follow. Raises LacksError if no maker has
    enough rows.
    """
    table = TableContent((*_RANKED, Column("seen", "of models in training", "share")))
    known = {name.lower() for name in scored.trained_models}
    seen = np.array([known_name(row.model, known) is not None for row in scored.rows])
    groups = scored.groups(lambda row: family(row.model))
    if not groups:
        raise LacksError(f"no maker's models have {FEWEST} replies, right and wrong ones")
    for name, at in groups:
        table.add(
            name,
            "K01",
            **_ranking_figures(scored, at),
            seen=float(seen[at].mean()) if known else None,
        )
    new = np.flatnonzero(~seen)
    if known and len(new) >= FEWEST and len(set(scored.labels[new])) == 2:
        table.add(
            "models that training has not seen", "K01", **_ranking_figures(scored, new), seen=0.0
        )
    _add_means(table, "makers", [_ranking_figures(scored, at) for _, at in groups])
    table.note = (
        "A transfer result is of models that training has not seen; for makers left out of "
        "training see K04."
    )
    return table


def benchmarks_table(scored: ScoredRows) -> TableContent:
    """Return the table for J12 and H14: each benchmark and their mean.

    A last line has Spearman's rho of accuracy and AUROC over them. Benchmarks without an AUROC are
    left out, the highest AUROC is first; `d` is Cohen's d. The table is empty if none is left.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("right", "right"),
            Column("auroc", "AUROC"),
            Column("d", "d"),
            Column("rho", "rho"),
            Column("p", "p", "p"),
        )
    )
    method, found = Method("", scored.confidence()), []
    for group in groups_of(scored.rows):
        if group.kind == "benchmark":
            found.append(result_of(group, method, scored.labels, scored.questions))
    found = [one for one in found if math.isfinite(one.auroc)]
    for one in sorted(found, key=lambda one: -one.auroc):
        line: dict[str, Value] = {"rows": one.rows, "right": one.accuracy, "auroc": one.auroc}
        table.add(one.group, "J12", **line, d=one.d)
    if not found:
        return table
    differences = [one.d for one in found if math.isfinite(one.d)]
    table.add(
        "mean over benchmarks",
        "J12",
        rows=round(np.mean([one.rows for one in found])),
        right=float(np.mean([one.accuracy for one in found])),
        auroc=float(np.mean([one.auroc for one in found])),
        d=float(np.mean(differences)) if differences else math.nan,
    )
    ranked = spearman([one.accuracy for one in found], [one.auroc for one in found])
    table.add("Spearman, accuracy and AUROC", "H14", rho=ranked.rho, p=ranked.p)
    return table


def tiers_table(scored: ScoredRows) -> TableContent:
    """Return the table for J13: easy, medium and hard benchmarks, and all rows.

    A tier is set by a benchmark's share of right replies, and left out if it has none. A line has
    its benchmarks, rows, share right and AUROC.
    """
    table = TableContent(
        (
            Column("benchmarks", "benchmarks", "count"),
            Column("rows", "rows", "count"),
            Column("right", "right"),
            Column("auroc", "AUROC"),
        )
    )
    tiers = {one.name: one.at for one in groups_of(scored.rows) if one.kind == "tier"}
    tiers["all"] = np.arange(len(scored.rows))
    for name in ("easy", "medium", "hard", "all"):
        if (at := tiers.get(name)) is not None:
            y, p = scored.labels[at], scored.confidence()[at]
            count = len({scored.rows[i].benchmark for i in at})
            line: dict[str, Value] = {"rows": len(at), "right": float(y.mean())}
            table.add(name, "J13", benchmarks=count, **line, auroc=auroc(y, p))
    return table


def data_table(scored: ScoredRows) -> TableContent:
    """Return the table for C07 to C10: what rows each benchmark has.

    Columns are its counts of rows, questions, models and rows with images. Further columns are its
    share of right replies, whether that is between 20 and 80 % ("yes" or "no"), and up to three
    domains.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("questions", "questions", "count"),
            Column("models", "models", "count"),
            Column("images", "with images", "count"),
            Column("right", "right"),
            Column("band", "20 to 80 %", "text"),
            Column("domains", "domains", "text"),
        )
    )
    for one in survey(scored.rows):
        table.add(
            printable_name(one.benchmark),
            "C07",
            rows=one.rows,
            questions=one.questions,
            models=one.models,
            images=one.image_rows,
            right=one.accuracy,
            band="yes" if one.is_in_band else "no",
            domains=", ".join(map(printable_name, one.domains[:3])),
        )
    return table


def failures_table(scored: ScoredRows) -> TableContent:
    """Return the table for S01, S02, S04: hard errors by benchmark, and of all rows.

    The benchmark with the most comes first. A hard error is a wrong reply with a confidence above
    .9 or a right one below .1. The note lists the ids of the `LISTED` worst of each kind.
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("right", "right"),
            Column("auroc", "AUROC"),
            Column("d", "d"),
            Column("sure_wrong", "wrong above .9", "count"),
            Column("unsure_right", "right below .1", "count"),
            Column("hard", "of the rows", "share"),
            Column("right_below", "of the right below .2", "share"),
            Column("wrong_above", "of the wrong above .8", "share"),
        )
    )
    found = study_failures(scored.rows, scored.confidence(), scored.scorer.name)
    for one in found.entries:
        _add_failures(table, one, printable_name(one.benchmark), "S02")
    _add_failures(table, found.all, "all", "S01")
    worst = [", ".join(each[:LISTED]) or "none" for each in (found.sure_wrong, found.unsure_right)]
    table.note = f"The worst by id. Wrong above .9: {worst[0]}. Right below .1: {worst[1]}."
    return table


def _add_failures(table: TableContent, one: Failures, label: str, row: str) -> None:
    """Add a line with the hard errors of one group; `row` is the checklist's row, such as `S02`."""
    table.add(
        label,
        row,
        rows=one.rows,
        right=one.accuracy,
        auroc=one.auroc,
        d=one.d,
        sure_wrong=one.sure_wrong,
        unsure_right=one.unsure_right,
        hard=(one.sure_wrong + one.unsure_right) / one.rows,
        right_below=one.right_below,
        wrong_above=one.wrong_above,
    )


def denied_table(scored: ScoredRows) -> TableContent:
    """Return the table for O02: replies that state 100 % but get a low confidence.

    It has a line for each limit (.01, .05, .1, .2): how many state it, get less than the limit, and
    are wrong; `share` is None if none gets less. The calibrator reads replies without their
    statement. Raises LacksError if too few rows state a confidence.
    """
    table = TableContent(
        (
            Column("sure", "state 100 %", "count"),
            Column("below", "of them below", "count"),
            Column("wrong", "of those wrong", "count"),
            Column("share", "wrong"),
        )
    )
    stated, p = scored.stated_rows, scored.stated_rows.confidence()
    for limit in (0.01, 0.05, 0.1, 0.2):
        sure = [
            (confidence, row.correct)
            for confidence, row in zip(p, stated.rows, strict=True)
            if (row.verbalized_confidence or 0.0) >= 1.0
        ]
        below = [correct for confidence, correct in sure if confidence < limit]
        wrong = sum(not correct for correct in below)
        table.add(
            f"below {limit}", "O02", sure=len(sure), below=len(below), wrong=wrong,
            share=wrong / len(below) if below else None,
        )  # fmt: skip
    return table
