"""Tables of a sensitivity, as rows of text for a terminal, a page and a model card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from calibrator.lab.data.corruptions import KINDS
from calibrator.lab.judging.sensitivity.everyday import FORMS, NO_NAME, EverydayFigures
from calibrator.lab.judging.sensitivity.figures import MIN_PAIRS, KindFigures, Sensitivity
from calibrator.metrics.numbers import figure

Table = tuple[list[str], list[list[str]]]  # head and rows, the same number of cells in each

TITLE = "What happens to the number when the reply is no longer right?"
NOTE = (
    "Right replies of the judged rows against the same replies made wrong in one respect, with "
    "names as served; means over the benchmarks to at least "
    f"{MIN_PAIRS} replies of which a kind applies. AUROC 0.5 and a fall of 0: it does not look."
)
EVERYDAY_NOTE = (
    "Sixty everyday questions with a right and a plausible wrong answer each, never trained on; "
    "with names: the mean over three source models."
)
SCORE_NOTE = (
    "Sensitivity: the mean over kinds of corruption of the AUROC of right against made wrong."
)


def kinds_table(sensitivity: Sensitivity, *, is_explained: bool = False) -> Table:
    """Return the head and lines of the table of corruptions: each kind's means over benchmarks.

    Below the kinds for text and those for calls there is a line with their mean. Kinds that apply
    to too few replies of every benchmark are left out. `is_explained` shows a description in the
    place of the kind's short name.
    """
    first = "right replies against" if is_explained else "made wrong by"
    head = [first, "benchmarks", "pairs", "AUROC", "in order", "right", "made wrong", "fall"]
    rows = []
    measured = [one for one in sensitivity.means if one.benchmarks]
    for is_call, group in groupby(measured, key=lambda one: one.is_call):
        of_task = list(group)
        rows += [_kind_row(one, is_explained=is_explained) for one in of_task]
        name = "mean over kinds, calls" if is_call else "mean over kinds"
        rows.append([name, "", "", *_means(of_task)])
    return head, rows


def _kind_row(one: KindFigures, *, is_explained: bool) -> list[str]:
    """Return the cells of a kind's line.

    `is_explained` shows the kind's description instead of its name.
    """
    name = KINDS.get(one.kind, f"call: {one.kind}") if is_explained else one.kind
    return [name, f"{one.benchmarks}", f"{one.pairs:,}", *_means([one])]


def _means(each: Sequence[KindFigures]) -> list[str]:
    """Return the mean of each figure over these kinds as text, in the order of columns."""
    names = ("auroc", "in_order", "right", "corrupted", "fall")
    return [figure(_mean([getattr(one, name) for one in each])) for name in names]


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the finite values, or nan without any."""
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def everyday_table(sensitivity: Sensitivity) -> Table:
    """Return the head and lines of the table of everyday answers.

    For each form (`short`, `sentence`, `both`) there is a line without a model's name, and one with
    the mean over the models' names.
    """
    head = ["everyday answers", "names", "pairs", "AUROC", "in order", "right", "wrong"]
    rows = []
    for form in FORMS:
        each = [one for one in sensitivity.everyday if one.form == form]
        unnamed = [one for one in each if one.model == NO_NAME]
        named = [one for one in each if one.model != NO_NAME]
        rows += [
            _everyday_row(form, label, of) for label, of in _label_groups(unnamed, named) if of
        ]
    return head, rows


def _label_groups(
    unnamed: list[EverydayFigures], named: list[EverydayFigures]
) -> list[tuple[str, list[EverydayFigures]]]:
    """Return the two groups of figures with their labels, `none` and such as `mean of 3`."""
    return [("none", unnamed), (f"mean of {len(named)}", named)]


def _everyday_row(form: str, label: str, each: Sequence[EverydayFigures]) -> list[str]:
    """Return the cells of one line: the form, the label, the number of pairs, and figures.

    `each` are the figures of one or more names, whose means are shown; the number is the first
    one's.
    """
    names = ("auroc", "in_order", "right", "wrong")
    cells = [figure(_mean([getattr(one, name) for one in each])) for name in names]
    return [form, label, f"{each[0].pairs}", *cells]


def benchmarks_table(sensitivity: Sensitivity) -> Table:
    """Return the head and a line for each benchmark with the AUROC of every kind, and their mean.

    A dash is where a kind applies to too few of the benchmark's replies.
    """
    kinds = [one.kind for one in sensitivity.means if one.benchmarks]
    rows = []
    for benchmark in sensitivity.benchmarks:
        cells = []
        for kind in kinds:
            one = sensitivity.find(kind, benchmark)
            cells.append(figure(one.auroc if one and one.pairs >= MIN_PAIRS else math.nan, 2))
        rows.append([benchmark, *cells, figure(sensitivity.score(benchmark), 2)])
    return ["AUROC", *kinds, "mean"], rows
