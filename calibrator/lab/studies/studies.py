"""Studies with parts left out of training, or with less of it (K04 to K06, K08).

A study is a plan of folds; a fold says which rows are trained on and which are judged. Any `Fit`,
which is fitted on rows and scores others, runs the plan: TF-IDF in seconds a fold, the calibrator
in minutes. Judged rows always belong to questions that no fold trains on.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import check_questions
from calibrator.metrics.disagreement import disagreement
from calibrator.metrics.intervals import RESAMPLES, auroc_interval
from calibrator.metrics.metrics import Floats, Ints, auroc, ece
from calibrator.metrics.rankings import Ranking, measure_ranking
from calibrator.recalibration.study import mend
from calibrator.rows.groups import printable_name
from calibrator.rows.kept_scores import kept_folds
from calibrator.rows.results import numbers, plain_json
from calibrator.rows.rows import Row, labels_of, question_numbers

FORMAT = 1
MIN_JUDGED = 100  # least judged rows of a fold
SIZES = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
FOLDS, BENCHMARKS_A_FOLD = 4, 5  # K05
SEED = 20_261_121

SHOWN = {"tfidf": "TF-IDF", "embedded": "embedded"}  # names of methods

StudyName = Literal["models", "families", "benchmarks", "benchmark-folds", "domains", "size"]
JUDGED_INSIDE = ("benchmark-folds", "domains")  # also judged on the rest (K05, K06)
Fit = Callable[[Ints, Ints], Floats]  # rows to train on, rows to score, by number -> P(correct)

# The makers of models, by the beginning of a model's name; the first match counts.
FAMILIES = {
    "openai": r"gpt|chatgpt|o[134](-|$)|text-davinci|code-davinci|bing-chat",
    "anthropic": r"claude",
    "google": r"gemini|gemma|palm",
    "meta": r"llama|ll3",
    "qwen": r"qwen|qwq",
    "mistral": r"mistral|mixtral|ministral|magistral|mathstral|codestral|open-mi[sx]tral",
    "deepseek": r"deepseek",
    "microsoft": r"phi-|wizard",
    "01-ai": r"yi-",
    "zhipu": r"glm|chatglm",
    "xai": r"grok",
    "cohere": r"command|c4ai|aya",
    "xiaomi": r"mimo",
    "nvidia": r"nemotron",
}
# Benchmarks that share their questions, or their kind, are left out together.
TOGETHER = ("BFCL", "MMLU")


def family(model: str | None) -> str | None:
    """Return the maker of a model by its name, such as `openai` for `gpt-4o`; None for others."""
    name = (model or "").lower()
    return next((maker for maker, names in FAMILIES.items() if re.match(names, name)), None)


def benchmark_family(benchmark: str | None) -> str | None:
    """Return `BFCL` or `MMLU` for benchmarks such as `MMLU-Pro`; others, also None, unchanged."""
    return next((b for b in TOGETHER if (benchmark or "").startswith(f"{b}-")), benchmark)


@dataclass(frozen=True, slots=True)
class Fold:
    """The rows that are trained on and those that are judged, by number."""

    label: str
    train: Ints
    judged: Ints


@dataclass(frozen=True, slots=True)
class StudyEntry:
    """The figures of one fold; `reference` is the AUROC of the fit on everything, on the same rows.

    `inside` is that of the fold's own fit on the test rows that were not left out (K05, K06).
    `ece_mended` is the ECE after Platt scaling on 100 labels of these rows, by the protocol of N01.
    """

    label: str
    trained: int
    rows: int
    accuracy: float
    auroc: float
    low: float
    high: float
    within: float
    ece: float
    ece_mended: float = math.nan
    reference: float = math.nan
    shift: float = math.nan  # mean change of the confidence against the reference (H17)
    inside: float = math.nan

    @property
    def gap(self) -> float:
        """`inside` less `auroc`: the loss on the part left out; nan where only that was judged."""
        return self.inside - self.auroc


@dataclass(frozen=True, slots=True)
class PooledRanking:
    """All judged rows of a study at once, each scored by the fit that did not see its group.

    `reference` is the ranking of the same rows by the fit on everything.
    """

    left_out: Ranking
    reference: Ranking


@dataclass(frozen=True, slots=True)
class Study:
    """A study's entries; `method` is what was fitted or asked each time."""

    name: str
    method: str
    entries: list[StudyEntry]
    together: PooledRanking | None = None  # where each judged row was left out once

    def mean(self, figure: str = "auroc") -> float:
        """Return the unweighted mean of a figure, such as `ece`, over entries that have it (H16).

        The result is nan where no entry has a finite value.
        """
        values = [value for one in self.entries if math.isfinite(value := getattr(one, figure))]
        return sum(values) / len(values) if values else math.nan


def entry_of(
    label: str,
    trained: int,
    rows: Sequence[Row],
    confidence: Floats,
    reference: Floats | None = None,
    resamples: int = RESAMPLES,
) -> StudyEntry:
    """Return the figures of one fold's judged rows, for confidences (n,), as a study's entry.

    `trained` is the number of training rows. `low` and `high` are an interval over questions.
    `reference` (n,) are other confidences of the same rows; without them `reference` and `shift`
    are nan. `within` is nan if no question has right and wrong replies, `ece_mended` if there are
    too few rows.
    """
    y, questions = labels_of(rows), question_numbers(rows)
    interval = auroc_interval(y, confidence, questions, resamples)
    mixed = disagreement(y, confidence, questions, permutations=0)
    mended = mend(label, y, confidence, questions)
    return StudyEntry(
        label=label,
        trained=trained,
        rows=len(rows),
        accuracy=float(y.mean()),
        auroc=interval.value,
        low=interval.low,
        high=interval.high,
        within=mixed.auroc if mixed else math.nan,
        ece=ece(y, confidence),
        ece_mended=mended.ece_platt if mended else math.nan,
        reference=math.nan if reference is None else auroc(y, reference),
        shift=math.nan if reference is None else float(np.mean(confidence - reference)),
    )


def plan(
    name: StudyName, train: Sequence[Row], test: Sequence[Row], only: Collection[str] = ()
) -> list[Fold]:
    """Return the folds of a study: all, or those whose labels are in `only`.

    Labels joined by `+`, such as `openai+meta`, are left out together. Rows are numbered through
    `train`, then `test`. Raises JudgingError where there is nothing to leave out, for an unknown
    label, or where a question is in both `train` and `test`.
    """
    check_questions(train, test)
    if name == "size":
        return list(_sizes(train, test))
    keys = [_keys(name, row) for row in [*train, *test]]
    groups = _left_out(Counter(key[0] for key in keys[len(train) :] if key), name)
    if not groups:
        raise JudgingError(f"nothing to leave out: no group has {MIN_JUDGED} rows to judge")
    if only:
        single = Counter(key[-1] for key in keys[len(train) :] if key)
        known = groups | {
            printable_name(one): {one} for one, n in single.items() if n >= MIN_JUDGED
        }
        groups = {label: _together_in(label, known, list(groups)) for label in only}
    return [
        Fold(
            label,
            np.array([i for i in range(len(train)) if names.isdisjoint(keys[i])], dtype=np.int64),
            np.array([i for i in range(len(train), len(keys)) if not names.isdisjoint(keys[i])]),
        )
        for label, names in groups.items()
    ]


def _keys(name: StudyName, row: Row) -> tuple[str, ...]:
    """Return the groups by which a row can be left out, such as `("gpt-4o",)` for `models`.

    A benchmark that shares its questions with others comes first as their family, then by its own
    name. The result is () for a row that the study never leaves out.
    """
    keys: dict[str, tuple[str | None, ...]] = {
        "models": (row.model,),
        "families": (family(row.model),),
        "benchmarks": (benchmark_family(row.benchmark), row.benchmark),
        "benchmark-folds": (benchmark_family(row.benchmark),),
        "domains": (row.domain,),
    }
    return tuple(key for key in keys[name] if key)


def _together_in(label: str, known: Mapping[str, set[str]], labels: Sequence[str]) -> set[str]:
    """Return the groups of a label, or of several labels joined by `+`.

    `known` has the groups of each label, `labels` those to name in the error. Raises JudgingError
    for an unknown label.
    """
    if label in known:
        return known[label]
    parts = label.split("+")
    if unknown := [part for part in parts if part not in known]:
        raise JudgingError(f"{unknown[0]!r} is not one of what is left out: {', '.join(labels)}")
    return set().union(*(known[part] for part in parts))


def _left_out(counts: Counter[str], name: StudyName) -> dict[str, set[str]]:
    """Return the groups that each fold leaves out, by its label.

    These are the single groups with `MIN_JUDGED` rows, or for K05 up to four folds of up to five
    benchmarks, by lot. `counts` are the test rows of each group.
    """
    large = sorted(name for name, rows in counts.items() if rows >= MIN_JUDGED)
    if name != "benchmark-folds":
        return {printable_name(one): {one} for one in large}
    random.Random(SEED).shuffle(large)
    size = min(BENCHMARKS_A_FOLD, len(large) // 2)
    folds = [large[k * size : (k + 1) * size] for k in range(FOLDS)]
    return {" ".join(map(printable_name, sorted(fold))): set(fold) for fold in folds if fold}


def _sizes(train: Sequence[Row], test: Sequence[Row]) -> Iterator[Fold]:
    """Yield folds with growing parts of the training rows, and a last one with all.

    Parts have the sizes of `SIZES` and are filled question by question, in a random order that is
    always the same. Each fold is judged on all test rows.
    """
    questions = question_numbers(train)
    order = np.random.default_rng(SEED).permutation(int(questions.max()) + 1)
    by_question = np.argsort(order[questions], kind="stable")
    judged = np.arange(len(train), len(train) + len(test))
    for size in [size for size in SIZES if size < len(train)]:
        yield Fold(f"{size:,} rows", np.sort(by_question[:size]), judged)
    yield Fold(f"{len(train):,} rows", np.arange(len(train)), judged)


def run(
    name: StudyName,
    method: str,
    fit: Fit,
    train: Sequence[Row],
    test: Sequence[Row],
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    only: Collection[str] = (),
) -> Study:
    """Fit and judge every fold, beside one fit on everything as the reference; return the study.

    The study `size` leaves nothing out and has no reference. `method` is the name to print, `say`
    gets a sentence for each fold, `progress` the number of fits done and the total. `only` names
    folds by their labels. Raises JudgingError as `plan` does.
    """
    rows, folds = [*train, *test], plan(name, train, test, only)
    fits = len(folds) + (name != "size")
    progress(0, fits)
    whole = np.full(len(rows), math.nan)
    if name != "size":
        whole[len(train) :] = fit(np.arange(len(train)), np.arange(len(train), len(rows)))
        progress(1, fits)
    entries, apart = [], np.full(len(rows), math.nan)
    for fold in folds:
        found, inside = _fit_fold(name, fit, fold, rows, len(train))
        reference = None if name == "size" else whole[fold.judged]
        judged, apart[fold.judged] = [rows[i] for i in fold.judged], found
        entry = entry_of(fold.label, len(fold.train), judged, found, reference)
        entries.append(replace(entry, inside=inside))
        say(f"{fold.label}: AUROC {entries[-1].auroc:.3f} on {len(judged)} rows")
        progress(fits - len(folds) + len(entries), fits)
    return Study(
        name, method, entries, None if name == "size" else _rank_pooled(rows, apart, whole)
    )


def _rank_pooled(rows: Sequence[Row], apart: Floats, whole: Floats) -> PooledRanking:
    """Return the rankings of all judged rows, by the folds' confidences and by the fit on all.

    `apart` and `whole` are their confidences, (n,) as `rows`; rows with nan in `apart` were not
    judged.
    """
    at = np.flatnonzero(~np.isnan(apart))
    judged = [rows[i] for i in at.tolist()]
    names = [row.benchmark or "" for row in judged], [row.question_id for row in judged]
    y = labels_of(judged)
    return PooledRanking(
        measure_ranking(y, apart[at], *names), measure_ranking(y, whole[at], *names)
    )


def _fit_fold(
    name: StudyName, fit: Fit, fold: Fold, rows: Sequence[Row], trained: int
) -> tuple[Floats, float]:
    """Fit a fold; return (confidences of its judged rows, AUROC on the other test rows).

    `trained` is the number of training rows, which come first in `rows`. The AUROC is nan where the
    study does not judge other rows or there are none.
    """
    if name not in JUDGED_INSIDE:
        return fit(fold.train, fold.judged), math.nan
    others = np.setdiff1d(np.arange(trained, len(rows)), fold.judged)
    found = fit(fold.train, np.concatenate([fold.judged, others]))
    inside = found[len(fold.judged) :]
    y = labels_of([rows[i] for i in others]) if len(others) else np.array([])
    return found[: len(fold.judged)], auroc(y, inside) if len(others) else math.nan


def study_json(study: Study) -> str:
    """Return a study as indented JSON with its mean AUROC, which `read_study` reads."""
    values = {"format": FORMAT, **plain_json(asdict(study)), "mean": plain_json(study.mean())}
    return json.dumps(values, indent=1, allow_nan=False)


def read_study(path: Path) -> Study:
    """Read a study from a file that holds JSON of `study_json`; the file may lack `together`.

    Raises JudgingError if the file holds anything else; OSError where it cannot be read.
    """
    try:
        values: dict[str, Any] = numbers(json.loads(path.read_text(encoding="utf-8")))
        if values["format"] != FORMAT:
            raise ValueError(f"this version reads format {FORMAT}")
        entries = [StudyEntry(**one) for one in values["entries"]]
        together = values.get("together")  # absent in older files
        if isinstance(together, dict):
            rankings = {key: Ranking(**one) for key, one in together.items()}
            return Study(
                str(values["name"]), str(values["method"]), entries, PooledRanking(**rankings)
            )
        return Study(str(values["name"]), str(values["method"]), entries)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JudgingError(f"{path} is no study that this version wrote: {error}") from error


def shared_rows(name: str, train: Sequence[Row]) -> int:
    """Return how many training rows the fits of a study may read together: all of `train`, or 0.

    It is 0 for the study `size` and for those that leave nothing out, such as `single-sources`.
    """
    return len(train) if name in get_args(StudyName) and name != "size" else 0


def fit_of(
    method: str,
    rows: Sequence[Row],
    folder: Path,
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
    *,
    is_renewed: bool = False,
    trained: int = 0,
) -> Fit:
    """Return a function that fits on some of the rows and returns P(correct) of others.

    It takes two arrays of row numbers as `plan` gives them: to train on, to score. `method` is
    "tfidf", with logistic regression, or else the calibrator is trained as shipped, and its runs go
    to `folder`. The first `trained` of the rows are read once for all its fits; with 0 each fit
    reads its own. Earlier results for the same rows are reused unless `is_renewed`.
    """
    if method == "tfidf":
        from calibrator.lab.judging.baselines.tfidf import WordPairCounts  # needs scikit-learn

        say(f"counting the words of {len(rows)} rows")
        counts = WordPairCounts(rows)

        def words(train: Ints, judged: Ints) -> Floats:
            """Return P(correct) of the `judged` rows by TF-IDF fitted on the rows `train`."""
            return counts.scores(train, judged, "served")

        return kept_folds(words, rows, method, device, is_renewed=is_renewed)
    from calibrator.lab.studies.embedded_fit import EmbeddedFit, as_shipped  # needs torch

    fit = EmbeddedFit(rows, folder, as_shipped(), say, trained)
    return kept_folds(fit, rows, method, device, f"{trained} shared", is_renewed=is_renewed)
