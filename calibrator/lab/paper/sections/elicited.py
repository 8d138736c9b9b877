"""Baselines that need answers of models: judges, samples of the model, log-probabilities.

The rows hold them as `judged`, `samples`, `logprobs`, `token_logprobs` and `top_logprobs`.
`pinocchio elicit` adds them (paper I06 to I15, J06, J08, M01, M02, M06, M07, T04).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from calibrator.lab.judging.baselines.samples import ReplySamples, likelihoods, token_certainty
from calibrator.lab.paper.sections.scored import FEWEST, LacksError, ScoredRows
from calibrator.lab.paper.sections.tables import Column, TableContent, Value
from calibrator.metrics.intervals import delong
from calibrator.metrics.metrics import Floats, auroc, brier, ece
from calibrator.rows.rows import Row

_COLUMNS = (
    Column("rows", "rows", "count"),
    Column("calls", "calls a reply", "count"),
    Column("auroc", "AUROC"),
    Column("low", "from"),
    Column("high", "to"),
    Column("brier", "Brier"),
    Column("ece", "ECE"),
    Column("ours", "the calibrator"),
    Column("p", "p of the difference", "p"),
)
SAMPLED: Mapping[str, Callable[[ReplySamples], float]] = {
    "semantic entropy": ReplySamples.semantic_entropy,
    "self-consistency, by meaning": ReplySamples.self_consistency,
    "self-consistency, by words": ReplySamples.exact_consistency,
    "NumSemSets": ReplySamples.sets,
    "Deg": ReplySamples.degree,
    "EigV": ReplySamples.eigenvalues,
    "SPUQ, agreement": ReplySamples.agreement,
    "LofreeCP, frequency": ReplySamples.frequency,
}
BUDGETS = (5, 10, 20, 40)  # numbers of samples (M02)


def elicited_table(scored: ScoredRows) -> TableContent:
    """Return the table for J06, J08, M01, M02, M07: baselines that ask models.

    Each is judged on the rows that hold its data, and so is the calibrator beside it. Raises
    LacksError if too few rows have any.
    """
    table = TableContent(_COLUMNS)
    _judges(scored, table)
    _samples(scored, table)
    _likelihoods(scored, table)
    if not table.lines:
        raise LacksError(
            f"fewer than {FEWEST} rows have `judged`, `samples` or `token_logprobs`; "
            "`pinocchio elicit` asks models for them"
        )
    table.note = (
        "Samples are compared by a lexical entailment of our own, not by DeBERTa-large-MNLI. "
        "Calls: how often a model is asked for one number; the calibrator asks none."
    )
    return table


def _rows_with(scored: ScoredRows, has: Callable[[Mapping[str, Any]], bool]) -> list[int]:
    """Return the positions of the rows whose raw values `has` accepts.

    Return [] if these are fewer than `FEWEST` or all have one label.
    """
    at = [i for i, row in enumerate(scored.rows) if has(row.raw)]
    is_mixed = len({scored.rows[i].correct for i in at}) == 2
    return at if len(at) >= FEWEST and is_mixed else []


def _add(
    table: TableContent,
    scored: ScoredRows,
    at: Sequence[int],
    label: str,
    found: Floats,
    calls: int,
    row: str,
) -> None:
    """Add a baseline's line, with the calibrator's AUROC on the same rows and DeLong's p.

    `at` are the rows' positions, `found` the baseline's values of these rows, (n,), `calls` the
    calls of a model for each reply, and `row` is such as `M01`. Brier and ECE are None unless all
    values are from 0 to 1.
    """
    places = np.array(at)
    y, ours = scored.labels[places], scored.confidence()[places]
    interval = scored.interval(y, found)
    is_probability = bool(found.min() >= 0 and found.max() <= 1)
    values: dict[str, Value] = {
        "rows": len(at),
        "calls": calls,
        "auroc": interval.value,
        "low": interval.low,
        "high": interval.high,
        "brier": brier(y, found) if is_probability else None,
        "ece": ece(y, found) if is_probability else None,
        "ours": auroc(y, ours),
        "p": delong(y, ours, found).p,
    }
    table.add(label, row, **values)


def _judges(scored: ScoredRows, table: TableContent) -> None:
    """Add a line (J06) for each model that judged enough rows, by the confidences that it gave."""
    judges = sorted({str(row.raw["judge"]) for row in scored.rows if row.raw.get("judge")})
    for judge in judges:
        if at := _rows_with(scored, partial(_is_judged_by, judge)):
            found = np.array([float(scored.rows[i].raw["judged"]) for i in at])
            _add(table, scored, at, f"judge {judge}", found, 1, "J06")


def _is_judged_by(judge: str, raw: Mapping[str, Any]) -> bool:
    """Return whether the raw row was judged by the model called `judge`."""
    return raw.get("judge") == judge


def samples_of(row: Row) -> list[str]:
    """Return the texts of a row's `samples`; [] if it has no list of them."""
    samples = row.raw.get("samples")
    return [str(each) for each in samples] if isinstance(samples, list) else []


def _samples(scored: ScoredRows, table: TableContent) -> None:
    """Add a line for each measure of agreement between samples, at several numbers of samples.

    The numbers are those of `BUDGETS` that every row has, and the most that every row has. Adds
    nothing if too few rows have samples.
    """
    at = _rows_with(
        scored, lambda raw: isinstance(raw.get("samples"), list) and bool(raw["samples"])
    )
    if not at:
        return
    most = min(len(samples_of(scored.rows[i])) for i in at)
    for budget in sorted({count for count in (*BUDGETS, most) if count <= most}):
        sampled = [
            ReplySamples(scored.rows[i].answer, samples_of(scored.rows[i])[:budget]) for i in at
        ]
        for name, measure in SAMPLED.items():
            found = np.array([measure(each) for each in sampled])
            row = "M02" if budget != min(most, BUDGETS[1]) else "M01"
            _add(table, scored, at, f"{name}, {budget} samples", found, budget, row)


def _likelihoods(scored: ScoredRows, table: TableContent) -> None:
    """Add lines (M07) for the mean, lowest and sum of the tokens' log-probabilities, and entropy.

    Each is added only if enough rows hold `token_logprobs`, or `top_logprobs` for the entropy.
    """
    at = _rows_with(scored, lambda raw: bool(raw.get("token_logprobs")))
    if at:
        each = [likelihoods(scored.rows[i].raw["token_logprobs"]) for i in at]
        for name in ("mean", "lowest", "sum"):
            found = np.array([one[name] for one in each])
            _add(table, scored, at, f"{name} log-probability", found, 1, "M07")
    at = _rows_with(scored, lambda raw: bool(raw.get("top_logprobs")))
    if at:
        found = np.array([token_certainty(scored.rows[i].raw["top_logprobs"]) for i in at])
        _add(table, scored, at, "token entropy", found, 1, "M07")
