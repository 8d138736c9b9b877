"""Tables whose lines are trainings, by what is left out, by sources, by rows (K02 to K08).

Fits are kept, so an interrupted table resumes at the fold that it had reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from calibrator.lab.paper.sections.scored import LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, Drawing, TableContent
from calibrator.lab.reporting.figures import size_curve
from calibrator.lab.studies.sources import MEAN, SourcesName, run_sources
from calibrator.lab.studies.studies import (
    SHOWN,
    Study,
    StudyEntry,
    StudyName,
    fit_of,
    run,
    shared_rows,
)
from calibrator.metrics.intervals import Interval
from calibrator.rows.rows import Row

_LEFT_OUT = (
    Column("trained", "trained on", "count"),
    Column("rows", "rows", "count"),
    Column("auroc", "AUROC"),
    Column("low", "over questions, from"),
    Column("high", "to"),
    Column("reference", "trained on all"),
    Column("change", "changed by"),
    Column("inside", "on what is not left out"),
    Column("gap", "gap"),
    Column("ece", "ECE"),
    Column("ece_mended", "after 100 labels"),
)


def _training_rows(scored: ScoredRows) -> Sequence[Row]:
    """Return the training rows. Raises LacksError if there are none."""
    found = scored.train()
    if not found:
        raise LacksError("there are no training rows; give them with --train")
    return found


def _study(scored: ScoredRows, name: StudyName) -> Study:
    """Run a study that leaves parts out of training, with progress shown, and return it.

    Fits are kept, so an interrupted study resumes. Raises LacksError without training rows.
    """
    train = _training_rows(scored)
    with scored.watch(f"fitting, {name}", 0) as bar:
        rows, shared = [*train, *scored.rows], shared_rows(name, train)
        fit = fit_of(scored.fit, rows, scored.folder, scored.device, bar.say, trained=shared)
        return run(name, SHOWN[scored.fit], fit, train, scored.rows, bar.say, bar.update)


def _line(table: TableContent, one: StudyEntry, row: str) -> None:
    """Add a line for one fit; `change` is its AUROC less that of the fit on everything.

    `row` is the row of the checklist, such as `K04`.
    """
    values = {
        key: getattr(one, key)
        for key in (*("trained", "rows", "auroc", "low", "high", "reference"), "inside", "gap")
    }
    table.add(
        one.label, row, **values, change=one.auroc - one.reference, ece=one.ece,
        ece_mended=one.ece_mended,
    )  # fmt: skip


def _left_out(scored: ScoredRows, name: StudyName, row: str) -> TableContent:
    """Return the table of a study that leaves out parts: a line for each fold, and the means.

    With two gaps or more a last line has their standard deviation; a gap is the loss of AUROC on
    the part left out. `row` is such as `K04`. Raises LacksError without training rows.
    """
    table, study = TableContent(_LEFT_OUT), _study(scored, name)
    for one in study.entries:
        _line(table, one, row)
    names = ("auroc", "reference", "inside", "gap", "ece", "ece_mended")
    means = {key: study.mean(key) for key in names}
    change = means["auroc"] - means["reference"]
    table.add(f"mean of {len(study.entries)}", row, **means, change=change)
    gaps = [one.gap for one in study.entries if math.isfinite(one.gap)]
    if len(gaps) > 1:
        table.add("their standard deviation", row, gap=float(np.std(gaps, ddof=1)))
    table.note = f"{study.method}, trained anew for each line."
    return table


def families_table(scored: ScoredRows) -> TableContent:
    """Return the table for K04: each maker's models left out of training, and judged.

    Raises LacksError without training rows.
    """
    return _left_out(scored, "families", "K04")


def folds_table(scored: ScoredRows) -> TableContent:
    """Return the table for K05: five benchmarks left out of training at a time, and judged.

    The same fit is also judged on the rows of the other benchmarks. Raises LacksError without
    training rows.
    """
    return _left_out(scored, "benchmark-folds", "K05")


def domains_table(scored: ScoredRows) -> TableContent:
    """Return the table for K06, N05: each domain left out of training, and judged.

    Columns have the ECE before and after a hundred labels. Raises LacksError without training rows.
    """
    return _left_out(scored, "domains", "K06")


def size_table(scored: ScoredRows) -> TableContent:
    """Return the table for K08, U07: the AUROC by number of training rows.

    A column has it as a share of the last one's. A drawing shows the curve. With three sizes or
    more the note has the slope for a factor of ten and R2 of a line on log10 of the rows. Raises
    LacksError without training rows.
    """
    table, study = (
        TableContent((*_LEFT_OUT[:5], Column("share", "of the last"))),
        _study(scored, "size"),
    )
    last = study.entries[-1].auroc
    for one in study.entries:
        table.add(
            one.label, "K08", trained=one.trained, rows=one.rows, auroc=one.auroc, low=one.low,
            high=one.high, share=one.auroc / last,
        )  # fmt: skip
    points = [(one.trained, Interval(one.auroc, one.low, one.high)) for one in study.entries]
    table.drawings.append(Drawing("U07", size_curve(points, study.method), study.method))
    if len(points) > 2:
        at, values = np.log10([size for size, _ in points]), [one.value for _, one in points]
        slope, _ = np.polyfit(at, values, 1)
        r2 = float(np.corrcoef(at, values)[0, 1] ** 2)
        table.note = f"A line on log10 of the rows: {slope:.3f} a factor of ten, R2 {r2:.2f}."
    return table


def _sources(scored: ScoredRows, name: SourcesName, row: str) -> TableContent:
    """Return the table of a study that trains on the replies of some models only.

    For `growing-sources` only the means over the judged models are listed, for `single-sources`
    each judged model too. `row` is such as `K02`. Raises LacksError without training rows.
    """
    train = _training_rows(scored)
    with scored.watch(f"fitting, {name}", 0) as bar:
        fit = fit_of(scored.fit, [*train, *scored.rows], scored.folder, scored.device, bar.say)
        study = run_sources(name, SHOWN[scored.fit], fit, train, scored.rows, bar.update)
    table = TableContent((*_LEFT_OUT[:3], Column("ece", "ECE")), note=f"{study.method}.")
    for one in study.entries:
        if name == "single-sources" or MEAN in one.label:
            table.add(
                one.label, row, trained=one.trained, rows=one.rows, auroc=one.auroc, ece=one.ece
            )
    return table


def growing_sources_table(scored: ScoredRows) -> TableContent:
    """Return the table for K02: replies of more and more models in training.

    They are judged on other models. Raises LacksError without training rows.
    """
    return _sources(scored, "growing-sources", "K02")


def single_sources_table(scored: ScoredRows) -> TableContent:
    """Return the table for K03: one model's replies in training, judged on two others'.

    A last fit has the replies of all three. Raises LacksError without training rows.
    """
    return _sources(scored, "single-sources", "K03")
