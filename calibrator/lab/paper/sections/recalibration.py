"""The effect of labels: recalibration with a hundred, temperature, and stated confidence.

The paper's rows are N01 to N06 and K15.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrator.lab.paper.sections.scored import LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, TableContent
from calibrator.metrics.metrics import Floats, Ints, auroc, brier, ece
from calibrator.recalibration.curves import fit_logistic, fit_platt, logit, sigmoid
from calibrator.recalibration.fit import fit_isotonic, fit_temperature
from calibrator.recalibration.study import LABELS, SPLITS, MendedFigures, mean_of, mend, study
from calibrator.rows.groups import printable_name

LARGEST = 12
NO_PRIOR = (1e-9, 1e-9, 1e-9)
_MENDED = (
    Column("rows", "rows", "count"),
    Column("auroc", "AUROC"),
    Column("ece", "ECE"),
    Column("ece_plain", "Platt"),
    Column("ece_platt", "with a prior"),
    Column("ece_isotonic", "isotonic"),
    Column("ece_temperature", "temperature"),
    Column("ece_floor", "floor"),
    Column("auroc_isotonic", "AUROC, isotonic"),
)
_NOTE = (
    f"Fitted on {LABELS} labels, judged on the replies to other questions; means over {SPLITS} "
    "splits. Platt: maximum likelihood; with a prior: as `pinocchio recalibrate` fits it; floor: "
    "what exact confidences would show on so few rows."
)


def _add(table: TableContent, one: MendedFigures, label: str, row: str) -> None:
    """Add a line with one group's figures, before and after recalibration; `row` is like `N03`."""
    values = {column.key: getattr(one, column.key) for column in _MENDED}
    table.add(label, row, **values)


def recalibrated_models_table(scored: ScoredRows) -> TableContent:
    """Return the table for N02, N03: recalibration of each of the largest models.

    Then come their mean and that of all rows pooled. The mean is over all models with enough rows.
    Raises LacksError if no group has enough.
    """
    table = TableContent(_MENDED, note=_NOTE)
    with scored.watch("recalibrating by model", len(scored.groups(lambda row: row.model))) as bar:
        found = study(scored.rows, scored.confidence(), "model", bar.advance)
    for one in found[:LARGEST]:
        _add(table, one, printable_name(one.group), "N03")
    _add_pooled(table, scored, found)
    return table


def _add_pooled(table: TableContent, scored: ScoredRows, found: Sequence[MendedFigures]) -> None:
    """Add the mean over all groups `found` (N03), and the figures of all rows pooled (N02).

    Raises LacksError if no group has `2 * LABELS` rows with both labels.
    """
    pooled = mend("pooled", scored.labels, scored.confidence(), scored.questions)
    if pooled is None or not found:
        raise LacksError(f"no group has {2 * LABELS} rows, right and wrong ones")
    _add(table, mean_of(found), f"mean over {len(found)}", "N03")
    _add(table, pooled, "pooled", "N02")


def recalibrated_domains_table(scored: ScoredRows) -> TableContent:
    """Return the table for N05: recalibration of each of the largest domains.

    Then come their mean and that of all rows pooled. Training saw these domains; K06 leaves them
    out. Raises LacksError if no domain has enough rows.
    """
    table = TableContent(_MENDED, note=_NOTE)
    with scored.watch("recalibrating by domain", len(scored.groups(lambda row: row.domain))) as bar:
        found = study(scored.rows, scored.confidence(), "domain", bar.advance)
    for one in found[:LARGEST]:
        _add(table, one, printable_name(one.group), "N05")
    _add_pooled(table, scored, found)
    return table


_CURVES = (
    Column("rows", "rows", "count"),
    Column("auroc", "AUROC"),
    Column("brier", "Brier"),
    Column("ece", "ECE"),
    Column("factor", "factor or slope"),
)


def temperature_table(scored: ScoredRows) -> TableContent:
    """Return the table for K15, N04: temperature, Platt and isotonic curves compared.

    They are fitted on one half of the questions and judged on the other. A first line has the
    confidences unchanged. `factor` is the curve's slope on the logit, 1 unchanged and None for
    isotonic.
    """
    table = TableContent(_CURVES)
    fitted, judged = scored.halves
    y, p = scored.labels, scored.confidence()
    warm, plain = fit_temperature(y[fitted], p[fitted]), fit_platt(y[fitted], p[fitted])
    curves = {
        "as it is": (p[judged], 1.0, "K15"),
        "temperature": (warm.apply_all(p[judged]), warm.slope, "K15"),
        "Platt": (plain.apply_all(p[judged]), plain.slope, "N04"),
        "isotonic": (fit_isotonic(y[fitted], p[fitted]).apply_all(p[judged]), None, "N04"),
    }
    for label, (found, factor, row) in curves.items():
        _add_curve(table, label, row, y[judged], found, factor)
    table.note = "The factor on the logit is 1 / T. Platt and temperature keep the ranking."
    return table


def _add_curve(
    table: TableContent, label: str, row: str, y: Ints, p: Floats, factor: float | None = None
) -> None:
    """Add a line with AUROC, Brier and ECE of the labels `y` and confidences `p`, (n,) each.

    `factor` is the slope on the logit, or None where there is none; `row` is such as `N04`.
    """
    table.add(
        label, row, rows=len(y), auroc=auroc(y, p), brier=brier(y, p), ece=ece(y, p), factor=factor
    )


def stated_beside_table(scored: ScoredRows) -> TableContent:
    """Return the table for N06: Platt on the calibrator's number, and with the stated one.

    Both are fitted on half of the questions that state one and judged on the other; a first line
    has the number unchanged. `factor` is the weight of the calibrator's logit. Raises LacksError if
    too few rows state a confidence.
    """
    stated = scored.stated_rows
    fitted, judged = stated.halves
    y, p = stated.labels, stated.confidence()
    stated_numbers = np.array([row.verbalized_confidence or 0.0 for row in stated.rows])
    table = TableContent(_CURVES)
    _add_curve(table, "as it is", "N06", y[judged], p[judged])
    ones = np.ones(len(y))
    for label, columns in (
        ("Platt", (logit(p), ones)),
        ("Platt with the stated confidence", (logit(p), stated_numbers, ones)),
    ):
        features = np.stack(columns, axis=1)
        start = np.zeros(features.shape[1])
        trust, counts = NO_PRIOR[: features.shape[1]], np.ones(len(fitted))
        weights = fit_logistic(y[fitted], features[fitted], start, trust, counts)
        found = sigmoid(features[judged] @ np.array(weights))
        _add_curve(table, label, "N06", y[judged], found, float(weights[0]))
    return table
