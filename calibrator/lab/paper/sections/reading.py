"""Tests of what the calibrator reads: changed rows, swapped answers, replies to one question.

Probes and swaps score rows again; the other table uses the existing scores (K10 to K13, L01 to
L04).
"""

from __future__ import annotations

from calibrator.lab.paper.sections.scored import LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, TableContent
from calibrator.lab.studies.answer_swap import answer_pairs, answer_swap
from calibrator.lab.studies.probes import AS_SERVED, PROBES, probe, sample
from calibrator.lab.studies.studies import Study
from calibrator.metrics.disagreement import disagreement

_PROBED = (
    Column("rows", "rows", "count"),
    Column("auroc", "AUROC"),
    Column("low", "over questions, from"),
    Column("high", "to"),
    Column("change", "AUROC changed by"),
    Column("shift", "mean shift"),
    Column("ece", "ECE"),
)
_ROWS = {"names": "K10", "question": "K11", "answer": "K13", "hedges": "K12"}


def row_of(label: str) -> str:
    """Return the row of the checklist of a probe's label, such as `K10` for `names: none`.

    It is `H17` for `as served`. Raises KeyError for an unknown label.
    """
    return "H17" if label == AS_SERVED else _ROWS[label.partition(":")[0]]


def _lines(study: Study, table: TableContent, row: str = "") -> TableContent:
    """Add a line for each entry of a study, and return `table` itself.

    `change` is the AUROC less that of the reference. `row` is the checklist's for all lines; with
    "" each line has that of its probe.
    """
    for one in study.entries:
        table.add(
            one.label,
            row or row_of(one.label),
            rows=one.rows,
            auroc=one.auroc,
            low=one.low,
            high=one.high,
            change=one.auroc - one.reference,
            shift=one.shift,
            ece=one.ece,
        )
    return table


def probes_table(scored: ScoredRows) -> TableContent:
    """Return the table for B11, K10 to K13: rows scored with something changed in them.

    Changed are names, question, words of doubt, or the length of the reply. At most
    `scored.extent.probed` rows are used, always the same ones.
    """
    rows = sample(scored.rows, scored.extent.probed)
    with scored.watch("probing", len(rows) * len(PROBES)) as bar:
        study = probe(scored.scorer, rows, bar.advance)
    table = _lines(study, TableContent(_PROBED))
    table.note = f"{len(rows):,} rows, always the same ones."
    return table


def swap_table(scored: ScoredRows) -> TableContent:
    """Return the table for L04: answers scored under the names of other models.

    These replied to the same question. Raises JudgingError if no question has a right and a wrong
    reply of two models.
    """
    most = scored.extent.swapped
    with scored.watch("swapping answers", len(answer_pairs(scored.rows, most))) as bar:
        study = answer_swap(scored.scorer, scored.rows, most, bar.advance)
    table = _lines(study, TableContent(_PROBED), "L04")
    table.note = "Changed by: against the same answers under their own models' names."
    return table


def disagreement_table(scored: ScoredRows) -> TableContent:
    """Return the table for L01 to L03: how replies to one question are ranked.

    It has one line, on the questions with right and wrong replies. It has the mean AUROC within
    questions, the share of pairs in order, the pooled AUROC, and p by permutations. Raises
    LacksError if no question has both.
    """
    table = TableContent(
        (
            Column("questions", "questions", "count"),
            Column("rows", "replies", "count"),
            Column("auroc", "mean within"),
            Column("pairs", "pairs in order"),
            Column("p_auroc", "p", "p"),
            Column("pooled", "pooled AUROC"),
            Column("p_pooled", "p", "p"),
        )
    )
    most, p = scored.extent.permutations, scored.confidence()
    found = disagreement(scored.labels, p, scored.questions, permutations=most)
    if found is None:
        raise LacksError("no question has right and wrong replies")
    table.add(
        "as served",
        "L02",
        questions=found.questions,
        rows=found.replies,
        auroc=found.auroc,
        pairs=found.pairs,
        p_auroc=found.p_auroc,
        pooled=found.pooled,
        p_pooled=found.p_pooled,
    )
    table.note = (
        f"p of {scored.extent.permutations:,} permutations of labels within questions; the least "
        "there can be is one over one more than that."
    )
    return table
