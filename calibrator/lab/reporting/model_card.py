"""The figures of a model card, written from an evaluation so that none is typed by hand.

They are between two comments of the card; the text around them is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.evaluate import Evaluation
from calibrator.lab.judging.evaluation.traffic import Traffic
from calibrator.lab.judging.evaluation.traffic import tables as traffic
from calibrator.lab.judging.sensitivity import Sensitivity
from calibrator.lab.judging.sensitivity.tables import (
    EVERYDAY_NOTE,
    NOTE,
    SCORE_NOTE,
    TITLE,
    Table,
    everyday_table,
    kinds_table,
)
from calibrator.lab.reporting.report import STUDY_TITLES
from calibrator.lab.studies.studies import Study
from calibrator.metrics.numbers import NO_FIGURE, bounds, figure, p_text
from calibrator.rows.groups import POOLED
from calibrator.rows.results import MEAN, Result

BEGIN = "<!-- figures: written by `pinocchio evaluate --card`, not by hand -->"
END = "<!-- end of figures -->"
# For figures of other rows, in a part of the card with a name.
BEGIN_OF = "<!-- figures of {}: written by `pinocchio evaluate --card`, not by hand -->"
_STUDY_FIGURES = ("auroc", "reference", "within", "ece", "ece_mended")
COMPARED = ("TF-IDF", "length")  # baselines with a column in the table of benchmarks


def update_card(
    path: Path, evaluation: Evaluation, studies: Sequence[Study] = (), of: str = ""
) -> None:
    """Replace the figures of the card at `path`, a Markdown file, between their two comments.

    `of` names a part of the card with figures of other rows, which are replaced instead. Raises
    JudgingError where the card has no place for these figures, or several.
    """
    text, begin = path.read_text(encoding="utf-8"), BEGIN_OF.format(of) if of else BEGIN
    marked = re.compile(f"{re.escape(begin)}.*?{re.escape(END)}", re.DOTALL)
    if len(marked.findall(text)) != 1:
        raise JudgingError(f"{path} needs these two lines, once, around its figures: {begin} {END}")
    figures = f"{begin}\n{figures_of(evaluation, studies)}{END}"
    path.write_text(marked.sub(lambda _: figures, text), encoding="utf-8")


def figures_of(evaluation: Evaluation, studies: Sequence[Study] = ()) -> str:
    """Return the figures of an evaluation and of studies as Markdown: sentences and tables.

    Parts that were not measured are left out. An evaluation without rows has only real traffic.
    """
    if not evaluation.rows:
        return f"calibrator `{evaluation.judged}`\n\n{_traffic(evaluation.traffic)}\n"
    parts = [
        f"{evaluation.rows:,} replies to {evaluation.questions:,} questions, "
        f"{figure(evaluation.accuracy)} of them correct; calibrator `{evaluation.judged}`.",
        _traffic(evaluation.traffic),
        _sensitivity(evaluation.sensitivity),
        _methods(evaluation),
        _benchmarks(evaluation),
        _near_chance(evaluation),
        _tasks(evaluation),
        *map(_study, studies),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _row(*cells: str) -> str:
    """Return the cells as one line of a Markdown table; a `|` in a cell becomes `/`."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table without a final newline, from its head and its rows of cells."""
    return "\n".join([_row(*head), f"|{'---|' * len(head)}", *(_row(*row) for row in rows)])


def _traffic(found: Traffic | None) -> str:
    """Return the Markdown tables of real traffic that have rows, with notes; "" for None.

    They are in the order of `traffic.TABLES`: kinds, effects of edits, sets, hand-made pairs,
    bases.
    """
    if found is None:
        return ""
    parts = [f"**{traffic.TITLE}** {traffic.NOTE}"]
    for table in traffic.TABLES:
        head, rows = table(found)
        is_changes = table is traffic.changes_table
        parts += [traffic.CHANGES_NOTE] if is_changes and rows else []
        parts += [_table(head, rows)] if rows else []
    return "\n\n".join(parts)


def _sensitivity(found: Sensitivity | None) -> str:
    """Return the Markdown tables of corruptions and of everyday answers, with notes; "" for None.

    A table without rows is left out, with its note.
    """
    if found is None:
        return ""
    explained = kinds_table(found, is_explained=True)
    parts = [f"**{TITLE}** {NOTE}"] if explained[1] else []
    for table, note in (
        (explained, ""),
        (everyday_table(found), EVERYDAY_NOTE),
    ):
        parts += [note, _plain_table(table)] if table[1] else []
    return "\n\n".join(part for part in parts if part)


def _plain_table(table: Table) -> str:
    """Return a Markdown table from a pair of head and rows."""
    head, rows = table
    return _table(head, rows)


def _sensitivity_cells(evaluation: Evaluation, one: Result | None) -> list[str]:
    """Return a list of one cell: the sensitivity on the group of `one`; [] where none was measured.

    The cell is a dash for a method other than the judged one, and for None.
    """
    if evaluation.sensitivity is None:
        return []
    has_one = one is not None and one.method == evaluation.judged
    return [figure(evaluation.sensitivity_on(one) if one and has_one else math.nan)]


def _heads(evaluation: Evaluation) -> list[str]:
    """Return `["sensitivity"]`, the head of that column, or [] where none was measured."""
    return ["sensitivity"] if evaluation.sensitivity else []


def _auroc_with_bounds(one: Result | None) -> str:
    """Return an AUROC with its 95 % interval over questions, such as `0.731 (0.712 to 0.745)`.

    It is the AUROC alone where it has no interval, and a dash for None.
    """
    if one is None:
        return NO_FIGURE
    if not math.isfinite(one.question_low):
        return figure(one.auroc)
    return f"{one.auroc:.3f} ({bounds(one.question_low, one.question_high)})"


def _methods(evaluation: Evaluation) -> str:
    """Return a Markdown table with a line for each method measured on all rows, and a note.

    The judged method is the first. The last column is DeLong's p of the difference between the
    judged method and this one, empty without such a comparison.
    """
    p = {c.baseline: c.pooled.p for c in evaluation.comparisons if c.method == evaluation.judged}
    rows = []
    for name in evaluation.methods:
        pooled, mean = evaluation.find(POOLED, name), evaluation.find(MEAN, name)
        if pooled is not None:
            rows.append(
                (
                    name,
                    _auroc_with_bounds(pooled),
                    _auroc_with_bounds(mean),
                    *_sensitivity_cells(evaluation, pooled),
                    figure(pooled.within),
                    figure(pooled.brier),
                    figure(pooled.ece),
                    p_text(p[name]) if name in p else "",
                )
            )
    head = ("method", "AUROC pooled", "mean over benchmarks", *_heads(evaluation))
    note = "Intervals: 95 %, over questions. p: DeLong's paired test against the calibrator."
    if evaluation.sensitivity:
        note += f" {SCORE_NOTE}"
    return _table((*head, "within questions", "Brier", "ECE", "against it"), rows) + f"\n\n{note}"


def _benchmarks(evaluation: Evaluation) -> str:
    """Return a Markdown table with a line for each benchmark and one for their mean.

    Its last columns are the AUROCs of the first baselines whose names begin as `COMPARED` says.
    """
    others = [
        name
        for start in COMPARED
        if (name := next((n for n in evaluation.baselines if n.startswith(start)), None))
    ]
    rows = []
    for one in [*evaluation.of_kind("benchmark"), *evaluation.of_kind("mean")]:
        rivals = [evaluation.find(one.group, name) for name in others]
        rows.append(
            (
                one.group,
                f"{one.rows:,}",
                figure(one.accuracy),
                _auroc_with_bounds(one),
                *_sensitivity_cells(evaluation, one),
                figure(one.within),
                figure(one.brier),
                figure(one.ece),
                *(figure(rival.auroc if rival else math.nan) for rival in rivals),
            )
        )
    head = ("benchmark", "rows", "accuracy", "AUROC", *_heads(evaluation), "within", "Brier", "ECE")
    return _table((*head, *(f"{name} AUROC" for name in others)), rows)


def _near_chance(evaluation: Evaluation) -> str:
    """Return a sentence that names the benchmarks whose AUROC may be chance; "" if there are none.

    Those are the ones whose interval over questions begins at 0.5 or below.
    """
    found = [
        one.group
        for one in evaluation.of_kind("benchmark")
        if math.isfinite(one.question_low) and one.question_low <= 0.5
    ]
    return (
        f"**No better than chance, as far as these rows show:** {', '.join(found)}."
        if found
        else ""
    )


def _tasks(evaluation: Evaluation) -> str:
    """Return a Markdown table of text replies and tool calls; "" for fewer than two kinds of task.

    It has AUROC and the shares of replies that can be kept with 90, 95 and 99 % of them right.
    """
    found = evaluation.of_kind("task")
    if len(found) < 2:
        return ""
    rows = [
        (
            one.group,
            f"{one.rows:,}",
            _auroc_with_bounds(one),
            *_sensitivity_cells(evaluation, one),
            *(figure(v) for v in (one.coverage_90, one.coverage_95, one.coverage_99)),
        )
        for one in found
    ]
    head = ("", "rows", "AUROC", *_heads(evaluation), "kept at 90 % right", "at 95 %", "at 99 %")
    return _table(head, rows)


def _study(study: Study) -> str:
    """Return a study as Markdown: its title with the method, and a table.

    The table has a line for each entry, and last the means.
    """
    rows = [
        (
            one.label,
            f"{one.rows:,}",
            f"{figure(one.auroc)} ({bounds(one.low, one.high)})",
            figure(one.reference),
            figure(one.within),
            figure(one.ece),
            figure(one.ece_mended),
        )
        for one in study.entries
    ]
    means = ("mean", "", *(figure(study.mean(name)) for name in _STUDY_FIGURES))
    title = STUDY_TITLES.get(study.name, study.name)
    head = ("", "rows", "AUROC", "nothing changed", "within", "ECE", "ECE after 100 labels")
    return f"**{title}** ({study.method})\n\n{_table(head, [*rows, means])}"
