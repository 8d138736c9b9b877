"""The report of an evaluation as one HTML page: figures first, tables after them.

The page is self-contained, has no script, follows the reader's light or dark setting, and every
name in it is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from calibrator.lab.judging.baselines.fitted import NAMES_ONLY
from calibrator.lab.judging.evaluation.comparisons import MethodComparison
from calibrator.lab.judging.evaluation.evaluate import Evaluation
from calibrator.lab.judging.evaluation.traffic import tables as traffic
from calibrator.lab.judging.sensitivity.tables import (
    EVERYDAY_NOTE,
    NOTE,
    SCORE_NOTE,
    TITLE,
    benchmarks_table,
    everyday_table,
    kinds_table,
)
from calibrator.lab.reporting.figures import (
    ForestRow,
    forest,
    forest_panels,
    reliability_diagram,
    risk_coverage_curves,
    roc_curves,
    separation,
    size_curve,
)
from calibrator.lab.reporting.page import cells_table, frame_figure, legend, page, section
from calibrator.lab.studies.studies import Study
from calibrator.metrics.intervals import Interval
from calibrator.metrics.numbers import bounds, chance_text, figure, p_text, percent
from calibrator.rows.groups import POOLED
from calibrator.rows.results import MEAN, Result

CURVES_SHOWN = 5
STUDY_TITLES = {
    "models": "Models left out of training, one at a time",
    "families": "Model families left out of training, one at a time",
    "benchmarks": "Benchmarks left out of training, one at a time",
    "benchmark-folds": "Five benchmarks left out of training at a time",
    "domains": "Domains left out of training, one at a time",
    "growing-sources": "Replies of more and more models in training",
    "single-sources": "Replies of one model in training",
    "elicitations": "One language model read in several ways",
    "size": "More training rows",
    "probes": "The same rows with something changed",
    "answer-swap": "Answers swapped between models, the name kept",
}

MARKS = {  # the reference of a study, where it is not a fit on everything
    "probes": "on the unchanged rows",
    "answer-swap": "the same answers under their own models' names",
    "elicitations": "the label tokens of the same model",
    "growing-sources": "",  # no reference
    "single-sources": "",
}


def render(evaluation: Evaluation, studies: Sequence[Study] = (), title: str | None = None) -> str:
    """Return the whole HTML page of an evaluation and of studies, without empty parts.

    `title` is the page's heading, by default `How good is NAME?` with the judged method's name.
    """
    heading = title or f"How good is {evaluation.judged}?"
    parts = [
        _head(evaluation, heading),
        _tiles(evaluation),
        _traffic(evaluation),
        _sensitivity(evaluation),
        _against_baselines(evaluation),
        _curves(evaluation),
        _benchmarks(evaluation),
        *map(_study, studies),
        _within_table(evaluation),
        _methods(evaluation),
        *(_groups(evaluation, kind) for kind in ("task", "tier", "domain", "benchmark", "model")),
        _reading_notes(evaluation),
    ]
    return page(heading, "".join(part for part in parts if part))


def _head(evaluation: Evaluation, heading: str) -> str:
    """Return the page's HTML header: the heading and, with rows, their number and accuracy."""
    if not evaluation.rows:
        return f"<header><h1>{escape(heading)}</h1></header>"
    return (
        f"<header><h1>{escape(heading)}</h1><p>Judged on {evaluation.rows:,} labelled replies to "
        f"{evaluation.questions:,} questions, {percent(evaluation.accuracy)} of them right. "
        "All methods are judged on the same rows.</p></header>"
    )


def _tiles(evaluation: Evaluation) -> str:
    """Return an HTML section with the judged method's main figures as tiles, each with a note.

    The note is an interval or a second figure. Figures that do not exist have no tile.
    """
    tiles = []
    if (pooled := evaluation.find(POOLED)) and math.isfinite(pooled.auroc):
        ends = bounds(pooled.question_low, pooled.question_high)
        tiles += [("AUROC, all rows", figure(pooled.auroc), ends)]
    if (mean := evaluation.find(MEAN)) and math.isfinite(mean.auroc):
        ends = bounds(mean.question_low, mean.question_high)
        tiles += [("AUROC, mean over benchmarks", figure(mean.auroc), ends)]
    if pooled and math.isfinite(seen := evaluation.sensitivity_on(pooled)):
        tiles += [("AUROC, right against made wrong", figure(seen), "mean over kinds, below")]
    for within in [one for one in evaluation.within if one.method == evaluation.judged]:
        ends = bounds(within.auroc.low, within.auroc.high)
        tiles += [("AUROC within a question", figure(within.auroc.value), ends)]
    if pooled:
        kept = f"keeps {percent(pooled.coverage_95)} at 95 % right"
        tiles += [
            (
                "calibration error (ECE)",
                figure(pooled.ece),
                f"Brier {figure(pooled.brier)}",
            ),
            ("kept at 90 % right", percent(pooled.coverage_90), kept),
        ]
    cells = "".join(
        f'<div class="tile"><span>{escape(name)}</span><strong>{escape(value)}</strong>'
        f"<small>{escape(note)}</small></div>"
        for name, value, note in tiles
    )
    return f'<section class="tiles">{cells}</section>'


def _traffic(evaluation: Evaluation) -> str:
    """Return the HTML section of real traffic: kinds beside baselines, then effects of edits.

    Sets, hand-made pairs and bases are folded tables. It is "" where no traffic was measured.
    """
    if (found := evaluation.traffic) is None:
        return ""
    body = cells_table(traffic.overview_table(found))
    if (changes := traffic.changes_table(found))[1]:
        body += f"<p>{escape(traffic.CHANGES_NOTE)}</p>{cells_table(changes)}"
    for summary, table in (
        ("Each set", traffic.sets_table(found)),
        ("Each kind of hand-made pairs", traffic.hand_made_table(found)),
        ("What the confidence is based on", traffic.basis_table(found)),
    ):
        if table[1]:
            html = cells_table(table)
            body += f"<details><summary>{escape(summary)}</summary>{html}</details>"
    return section(traffic.TITLE, body, traffic.NOTE)


def _sensitivity(evaluation: Evaluation) -> str:
    """Return the HTML section on how far the confidence falls once a reply is made wrong, or "".

    It is "" where none was measured. Tables without rows are left out.
    """
    found = evaluation.sensitivity
    if found is None:
        return ""
    kinds, everyday = kinds_table(found, is_explained=True), everyday_table(found)
    body = cells_table(kinds) if kinds[1] else ""
    body += f"<p>{escape(EVERYDAY_NOTE)}</p>{cells_table(everyday)}" if everyday[1] else ""
    if found.benchmarks:
        each = cells_table(benchmarks_table(found))
        body += f"<details><summary>Each benchmark</summary>{each}</details>"
    return section(TITLE, body, NOTE if kinds[1] else "")


def _against_baselines(evaluation: Evaluation) -> str:
    """Return the HTML section that compares the judged method with others; "" without comparisons.

    It has one figure for each set of rows, as all rows and those with a stated confidence.
    """
    judged = [one for one in evaluation.comparisons if one.method == evaluation.judged]
    figures = "".join(
        _comparison_figure(rows, [one for one in judged if one.rows == rows])
        for rows in dict.fromkeys(one.rows for one in judged)
    )
    return figures and section(
        "Does it beat simple baselines?",
        figures,
        "A leaderboard is not a calibrator: names-only tables know how good each model is on each "
        "benchmark and never look at a reply.",
    )


def _comparison_figure(rows: str, found: Sequence[MethodComparison]) -> str:
    """Return an HTML figure of AUROC differences with one line for each baseline.

    Its panels are all rows, the mean over benchmarks, and within questions. `rows` is the name of
    the compared rows, which all of `found` have. The caption names the baselines with p of 0.001 or
    more.
    """
    which = "all rows" if rows == POOLED else rows
    panels = [
        ("all rows pooled", [ForestRow(one.baseline, one.clustered) for one in found]),
        ("mean over benchmarks", [ForestRow(one.baseline, one.mean) for one in found]),
        ("within questions", [ForestRow(one.baseline, one.within) for one in found]),
    ]
    unclear = [f"{one.baseline} ({p_text(one.pooled.p)})" for one in found if one.pooled.p >= 1e-3]
    tested = "DeLong's test of the pooled difference: p < 0.001"
    tested += f", but for {'; '.join(unclear)}." if unclear else " for each."
    return frame_figure(
        forest_panels(panels, 0.0),
        f"How much higher the calibrator's AUROC is, on {which}. Right of the line it ranks "
        f"better; intervals are 95 %, over questions. {tested}",
    )


def _curves(evaluation: Evaluation) -> str:
    """Return the HTML section of four figures: reliability, separation, risk-coverage and ROC.

    The first two are of the judged method, the others of the first `CURVES_SHOWN` methods. It is ""
    without curves.
    """
    if not evaluation.curves:
        return ""
    curves = evaluation.curves[:CURVES_SHOWN]
    judged = curves[0]
    figures = [
        frame_figure(
            reliability_diagram(judged.bins, judged.method),
            "On the diagonal, 70 % sure means right 70 times in 100. The bars count the replies.",
        ),
        frame_figure(
            separation(judged.bins, judged.method),
            "The further apart right and wrong replies are, the better it tells them apart.",
        ),
        frame_figure(
            risk_coverage_curves([(one.method, one.risk_coverage) for one in curves]),
            "Keep only the surest replies: how many of those are wrong? Dashed: 5 % and 10 %.",
        ),
        frame_figure(
            roc_curves([(one.method, one.roc) for one in curves]),
            "The area under a curve is its AUROC; the diagonal is chance.",
        ),
    ]
    names = legend([one.method for one in curves])
    return section(
        "Can its numbers be believed?",
        f'<div class="pair">{"".join(figures[:2])}</div>{names}'
        f'<div class="pair">{"".join(figures[2:])}</div>',
    )


def _benchmarks(evaluation: Evaluation) -> str:
    """Return the HTML section with each benchmark's AUROC, highest first; "" for fewer than two.

    Marks are the AUROCs of the first TF-IDF baseline on the same rows, if there is one.
    """
    found = [one for one in evaluation.of_kind("benchmark") if math.isfinite(one.auroc)]
    if len(found) < 2:
        return ""
    # The first of several TF-IDF baselines was given the same names.
    rival = next((name for name in evaluation.baselines if name.startswith("TF-IDF")), None)
    marks = {r.group: r.auroc for r in evaluation.of_kind("benchmark", rival)} if rival else {}
    rows = [
        ForestRow(
            one.group,
            Interval(one.auroc, one.question_low, one.question_high),
            marks.get(one.group, math.nan),
            f"n {one.rows:,}",
        )
        for one in sorted(found, key=lambda one: -one.auroc)
    ]
    caption = "Dots: the calibrator with its 95 % interval over questions."
    if rival:
        caption += f" Upright marks: {rival} on the same rows."
    return section(
        "Where does it rank well, and where not?", frame_figure(forest(rows, "AUROC", 0.5), caption)
    )


def _study(study: Study) -> str:
    """Return the HTML section of one study with its figure.

    For the study `size` it is a curve by training rows; for others a forest plot of AUROC with
    marks at the reference, and a folded table.
    """
    title = STUDY_TITLES.get(study.name, study.name)
    if study.name == "size":
        points = [(one.trained, Interval(one.auroc, one.low, one.high)) for one in study.entries]
        drawn = frame_figure(
            size_curve(points, study.method), f"{study.method}; 95 % over questions."
        )
        return section(title, f'<div class="pair">{drawn}</div>')
    rows = [
        ForestRow(
            one.label, Interval(one.auroc, one.low, one.high), one.reference, f"n {one.rows:,}"
        )
        for one in study.entries
    ]
    mark = MARKS.get(study.name, "with everything in training")
    caption = f"{study.method}; mean {figure(study.mean())}."
    caption += f" Upright marks: {mark}." if mark else ""
    return section(title, frame_figure(forest(rows, "AUROC", 0.5), caption) + _study_table(study))


def _study_table(study: Study) -> str:
    """Return a folded HTML table with a line for each entry of a study.

    It has the figures for which a forest plot has no room, such as the rows trained on and ECE.
    """
    columns = (
        ("rows trained on", "trained", 0),
        ("rows", "rows", 0),
        ("right", "accuracy", 3),
        ("AUROC", "auroc", 3),
        ("reference", "reference", 3),
        ("inside", "inside", 3),
        ("within", "within", 3),
        ("mean shift", "shift", 3),
        ("ECE", "ece", 3),
        ("ECE after 100 labels", "ece_mended", 3),
    )
    head = "".join(f"<th>{title}</th>" for title, _, _ in columns)
    lines = "".join(
        f"<tr><th>{escape(one.label)}</th>"
        + "".join(f"<td>{figure(getattr(one, name), n)}</td>" for _, name, n in columns)
        + "</tr>"
        for one in study.entries
    )
    return (
        '<details><summary>Figures</summary><div class="wide"><table>'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{lines}</tbody></table></div></details>"
    )


_COLUMNS = (
    ("rows", "rows", 0),
    ("accuracy", "right", 3),
    ("auroc", "AUROC", 3),
    ("", "95 % over replies", 0),
    ("", "over questions", 0),
    ("within", "within", 3),
    ("brier", "Brier", 3),
    ("ece", "ECE", 3),
    ("auprc", "AUPRC wrong", 3),
    ("f1", "F1 wrong", 3),
    ("d", "d", 2),
    ("aurc", "AURC", 3),
    ("coverage_90", "kept at 90 %", 3),
    ("coverage_95", "at 95 %", 3),
    ("coverage_99", "at 99 %", 3),
)


def _table(first: str, rows: Iterable[tuple[str, Result]]) -> str:
    """Return an HTML table of results, one line for each pair of a label and a result.

    `first` is the head of the labels' column; the others are `_COLUMNS`.
    """
    head = "".join(f"<th>{escape(title)}</th>" for _, title, _ in _COLUMNS)
    lines = "".join(
        f"<tr><th>{escape(label)}</th>{''.join(f'<td>{cell}</td>' for cell in _cells(one))}</tr>"
        for label, one in rows
    )
    return (
        f'<div class="wide"><table><thead><tr><th>{escape(first)}</th>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cells(one: Result) -> list[str]:
    """Return a result's figures as text, in the order of `_COLUMNS`.

    A figure that is nan is a dash; an interval that is nan is "".
    """
    ends = {
        "95 % over replies": bounds(one.low, one.high),
        "over questions": bounds(one.question_low, one.question_high),
    }
    return [
        ends[title]
        if not name
        else f"{one.rows:,}"
        if name == "rows"
        else figure(getattr(one, name), digits)
        for name, title, digits in _COLUMNS
    ]


def _within_table(evaluation: Evaluation) -> str:
    """Return the HTML section about ranking replies to one question, a line for each method.

    It is "" where no method was measured within questions.
    """
    lines = "".join(
        f"<tr><th>{escape(one.method)}</th><td>{figure(one.auroc.value)}</td>"
        f"<td>{bounds(one.auroc.low, one.auroc.high)}</td><td>{figure(one.pairs)}</td>"
        f"<td>{figure(one.pooled)}</td><td>{chance_text(one.p_auroc)}</td></tr>"
        for one in evaluation.within
    )
    if not lines:
        return ""
    first = evaluation.within[0]
    head = ("method", "mean AUROC", "95 % over questions", "pairs in order", "pooled", "chance")
    return section(
        "Among replies to one question",
        f'<div class="wide"><table><thead><tr>{"".join(f"<th>{one}</th>" for one in head)}</tr>'
        f"</thead><tbody>{lines}</tbody></table></div>",
        f"{first.questions:,} questions have right and wrong replies, {first.replies:,} in all: "
        "how hard a question is cannot help there. Chance: p of permuting labels within questions."
        + names_conclusion(evaluation),
    )


def names_conclusion(evaluation: Evaluation) -> str:
    """Return a sentence that compares the best names-only baseline with the calibrator, or "".

    Both AUROCs are within questions. It says which part of the calibrator's lead over 0.5 that
    baseline has, or that the calibrator is not clearly better. It begins with a space. It is ""
    without such a baseline, or where the calibrator's AUROC is not above 0.5.
    """
    found = {one.method: one.auroc.value for one in evaluation.within}
    judged = found.get(evaluation.judged, math.nan)
    tables = [name for name in evaluation.baselines if name in NAMES_ONLY and name in found]
    if not tables or not judged > 0.5:
        return ""
    best = max(tables, key=lambda name: found[name])
    value, (low, high) = found[best], _ends_of_difference(evaluation, best)
    names = f' "{best}", which never looks at a reply, has {figure(value)}'
    if not low > 0:
        return f"{names}: the calibrator, with {figure(judged)}, is not clearly better."
    share = max(0.0, (value - 0.5) / (judged - 0.5))
    ends = bounds(low, high)
    return (
        f"{names}: {percent(share)} of what the calibrator has over chance ({figure(judged)}). Its "
        f"lead from looking at the replies is {figure(judged - value)} ({ends})."
    )


def _ends_of_difference(evaluation: Evaluation, baseline: str) -> tuple[float, float]:
    """Return the ends (low, high) of how much higher the judged method's AUROC within questions is.

    It is compared with `baseline` on all rows; without such a comparison the ends are infinite.
    """
    for one in evaluation.comparisons:
        if (one.rows, one.method, one.baseline) == (POOLED, evaluation.judged, baseline):
            return one.within.low, one.within.high
    return -math.inf, math.inf


def _methods(evaluation: Evaluation) -> str:
    """Return an HTML section of tables of all methods, one for all rows, means and the like; or "".

    There is a table for each pooled set of rows and for the mean over benchmarks. It is "" without
    results.
    """
    groups = dict.fromkeys(r.group for r in evaluation.results if r.kind in ("pooled", "mean"))
    tables = [
        f"<h3>{escape(group)}</h3>"
        + _table("method", [(r.method, r) for r in evaluation.results if r.group == group])
        for group in groups
    ]
    return section("All methods", "".join(tables)) if tables else ""


def _groups(evaluation: Evaluation, kind: str) -> str:
    """Return a folded HTML table of the judged method on each group of a kind, most rows first.

    `kind` is such as `benchmark` or `model`. It is "" for fewer than two groups.
    """
    found = evaluation.of_kind(kind)
    if len(found) < 2:
        return ""
    found = sorted(found, key=lambda one: -one.rows)
    title = {"task": "Text and tool calls", "tier": "By difficulty of the benchmark"}.get(
        kind, f"By {kind}"
    )
    return (
        f"<details><summary>{escape(title)} <small>{len(found)}</small></summary>"
        f"{_table(kind, [(one.group, one) for one in found])}</details>"
    )


def _reading_notes(evaluation: Evaluation) -> str:
    """Return the page's HTML footer, which explains the figures to its reader.

    It explains the sensitivity only where one was measured.
    """
    seen = f" {escape(SCORE_NOTE)}" if evaluation.sensitivity else ""
    return (
        "<footer><p>AUROC: the chance that a right reply has the higher confidence than a wrong "
        "one; 0.5 is chance. Within: the same among replies to one question. AUPRC and F1 are of "
        "finding wrong replies. Kept: the largest share of replies that a threshold keeps at that "
        f"accuracy, found on these very rows, so no guarantee.{seen}</p></footer>"
    )
