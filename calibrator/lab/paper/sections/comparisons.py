"""The calibrator beside baselines on the same rows, with intervals of the differences.

Post-hoc baselines are fitted on one half of the questions and judged on the other (D09), as is
the calibrator. Stated confidences have their own table, for the rows that have some; the calibrator
reads those replies without them.
"""

from __future__ import annotations

import numpy as np

from calibrator.lab.judging.baselines.fitted import (
    NAMES_ONLY,
    STATED,
    length_baseline,
    with_stated_confidence,
)
from calibrator.lab.judging.evaluation.comparisons import compare, draw
from calibrator.lab.paper.sections.scored import LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, Drawing, TableContent, Value
from calibrator.lab.reporting.figures import ForestRow, forest, reliability_diagram, roc_curves
from calibrator.metrics.metrics import (
    Floats,
    Ints,
    auprc_incorrect,
    best_f1_incorrect,
    brier,
    ece,
    reliability,
    roc,
)
from calibrator.rows.results import Method
from calibrator.rows.rows import labels_of, question_numbers

OURS = "the calibrator"
COLUMNS = (
    Column("rows", "rows", "count"),
    Column("auroc", "AUROC"),
    Column("low", "from"),
    Column("high", "to"),
    Column("brier", "Brier"),
    Column("ece", "ECE"),
    Column("auprc", "AUPRC wrong"),
    Column("f1", "F1 wrong"),
)
ROW_OF = {
    OURS: "J09",
    "length": "J04",
    "stated confidence, raw": "J01",
    "stated confidence, Platt": "J02",
    "stated confidence, isotonic": "J03",
    "stated confidence and length": "J05",
}


def figures_of(scored: ScoredRows, y: Ints, p: Floats) -> dict[str, Value]:
    """Return the values of one line of the main table, for labels `y` and confidences `p`, (n,).

    The keys are those of `COLUMNS`: rows, AUROC with its BCa interval over replies (`low`, `high`),
    Brier, ECE, and AUPRC and best F1 of finding wrong replies.
    """
    found = scored.interval(y, p)
    return {
        "rows": len(y),
        "auroc": found.value,
        "low": found.low,
        "high": found.high,
        "brier": brier(y, p),
        "ece": ece(y, p),
        "auprc": auprc_incorrect(y, p),
        "f1": best_f1_incorrect(y, p),
    }


def _on_all(scored: ScoredRows) -> tuple[Ints, list[Method]]:
    """Return the labels of the judged half of the rows, (n,), and the methods to compare on it.

    The methods are the calibrator, the length baseline, and baselines that read only names;
    baselines are fitted on the other half of the questions.
    """
    fitted, judged = scored.halves
    train, test = scored.rows_at(fitted), scored.rows_at(judged)
    names = [Method(name, fit(train, test), None, True) for name, fit in NAMES_ONLY.items()]
    ours = Method(OURS, scored.confidence()[judged])
    return scored.labels[judged], [ours, scored.length, *names]


def _on_stated(scored: ScoredRows) -> tuple[ScoredRows, Ints, list[Method]]:
    """Return the rows that state a confidence, the positions of the judged half, and the methods.

    The methods are the calibrator, baselines of the stated confidence, and length, each scored on
    the judged half. Raises LacksError if too few rows state a confidence.
    """
    stated = scored.stated_rows
    fitted, judged = stated.halves
    train, test = stated.rows_at(fitted), stated.rows_at(judged)
    others = [Method(name, fit(train, test), None, True) for name, fit in STATED.items()]
    length = Method("length", length_baseline(train, test), None, True)
    return stated, judged, [Method(OURS, stated.confidence()[judged]), *others, length]


def main_table(scored: ScoredRows) -> TableContent:
    """Return the table for J04, J09, J14: calibrator, length and names on the judged half.

    A last line has the calibrator on all rows, and a drawing the ROC curves (U03).
    """
    table = TableContent(COLUMNS)
    labels, methods = _on_all(scored)
    for method in methods:
        row = ROW_OF.get(method.name, "")
        table.add(method.name, row, **figures_of(scored, labels, method.confidence))
    whole = figures_of(scored, scored.labels, scored.confidence())
    table.add(f"{OURS}, all rows", "J09", **whole)
    drawn = [(one.name, _points(labels, one.confidence)) for one in methods]
    names = [name for name, _ in drawn]
    caption = f"ROC curves: {'; '.join(names)}."
    table.drawings.append(Drawing("U03", roc_curves(drawn), caption, names))
    table.note = (
        "Fitted on half of the questions, judged on the others. Intervals: BCa over replies."
    )
    return table


def stated_table(scored: ScoredRows) -> TableContent:
    """Return the table for J01 to J05: stated confidences beside the calibrator.

    The calibrator reads the same replies without them. Drawings are two reliability diagrams (U02:
    the calibrator and the first baseline) and the ROC curves (U03). Raises LacksError if too few
    rows state a confidence.
    """
    stated, judged, methods = _on_stated(scored)
    labels, table = stated.labels[judged], TableContent(COLUMNS)
    for method in methods:
        table.add(method.name, ROW_OF[method.name], **figures_of(stated, labels, method.confidence))
    for method in methods[:2]:
        bins = reliability(labels, method.confidence)
        caption = f"{method.name}: how often replies of each confidence are right."
        table.drawings.append(Drawing("U02", reliability_diagram(bins, method.name), caption))
    drawn = [(one.name, _points(labels, one.confidence)) for one in methods]
    names = [name for name, _ in drawn]
    caption = f"ROC curves: {'; '.join(names)}."
    table.drawings.append(Drawing("U03", roc_curves(drawn), caption, names))
    as_replied = with_stated_confidence(scored.rows)
    count = sum(a.answer != b.answer for a, b in zip(stated.rows, as_replied, strict=True))
    table.note = (
        f"{count:,} of {len(stated.rows):,} replies had the stated confidence in their text; the "
        "calibrator was shown them without it."
    )
    return table


def significance_table(scored: ScoredRows) -> TableContent:
    """Return the table for H05, H06, J15: the calibrator's lead in AUROC over each baseline.

    Each line has DeLong's interval and p, and an interval over questions by paired resamples.
    Baselines of stated confidence are left out if too few rows state one. A drawing shows the
    differences (U06).
    """
    table = TableContent(
        (
            Column("rows", "rows", "count"),
            Column("difference", "AUROC higher by"),
            Column("low", "DeLong, from"),
            Column("high", "to"),
            Column("p", "p", "p"),
            Column("question_low", "over questions, from"),
            Column("question_high", "to"),
        )
    )
    labels, methods = _on_all(scored)
    judged = scored.halves[1]
    forest_rows = _add_comparisons(table, scored, labels, scored.questions[judged], methods, "")
    try:
        stated, at, methods = _on_stated(scored)
    except LacksError:  # the table of stated confidences reports this
        pass
    else:
        questions = question_numbers(stated.rows)[at]
        forest_rows += _add_comparisons(
            table,
            stated,
            labels_of(stated.rows_at(at)),
            questions,
            methods,
            ", rows that state one",
        )
    svg = forest(forest_rows, "AUROC higher by", 0.0)
    caption = "AUROC of the calibrator less that of each baseline; 95 %, over questions."
    table.drawings.append(Drawing("U06", svg, caption))
    return table


def _add_comparisons(
    table: TableContent,
    scored: ScoredRows,
    labels: Ints,
    questions: Ints,
    methods: list[Method],
    where: str,
) -> list[ForestRow]:
    """Add a line for each baseline's difference in AUROC, and return the rows of a forest plot.

    The first of `methods` is the calibrator; `labels` and `questions` are (n,). `where` is put
    after a baseline's name, such as `, rows that state one`. The returned rows have the differences
    with their intervals over questions.
    """
    resamples = scored.extent.resamples
    drawn = [draw(one, labels, questions, [], resamples, 0) for one in methods]
    rows = []
    for one in compare("", methods, drawn, labels):
        label, found = f"{one.baseline}{where}", one.pooled.difference
        table.add(
            label,
            "J15" if one.baseline == "stated confidence and length" else "H05",
            rows=len(labels),
            difference=found.value,
            low=found.low,
            high=found.high,
            p=one.pooled.p,
            question_low=one.clustered.low,
            question_high=one.clustered.high,
        )
        rows.append(ForestRow(label, one.clustered))
    return rows


def _points(y: Ints, p: Floats, most: int = 200) -> list[tuple[float, float]]:
    """Return the ROC curve of confidences `p` and labels `y`, thinned to at most `most` points.

    A point is (share of the wrong replies above a threshold, share of the right ones).
    """
    wrong, right = roc(y, p)
    kept = np.unique(np.linspace(0, len(wrong) - 1, min(len(wrong), most)).round().astype(int))
    return [(float(wrong[i]), float(right[i])) for i in kept]
