"""Studies: leaving out, less training, changed inputs (paper K02-K06, K08, K10-K13)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrator import FakeScorer, Item, Score
from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.tfidf import WordPairCounts
from calibrator.lab.studies.probes import (
    PROBES,
    REDACTED,
    inject_hedges,
    probe,
    sample,
    strip_hedges,
)
from calibrator.lab.studies.sources import run_sources
from calibrator.lab.studies.studies import (
    BENCHMARKS_A_FOLD,
    FAMILIES,
    Study,
    StudyName,
    benchmark_family,
    family,
    plan,
    read_study,
    run,
    study_json,
)
from calibrator.metrics.metrics import Floats, Ints, auroc
from calibrator.rows.rows import Row, parse_row
from tests.builders.labelled_rows import labelled, labels

# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "maker"),
    [
        ("gpt-4o-mini", "openai"),
        ("o3-mini-2025-01-31", "openai"),
        ("text-davinci-003", "openai"),
        ("Claude-Fable-5", "anthropic"),
        ("gemini-2.5-pro", "google"),
        ("palm-2-l", "google"),
        ("llama-3.1-8b", "meta"),
        ("qwq-32b", "qwen"),
        ("open-mixtral-8x22b", "mistral"),
        ("deepseek-r1-think", "deepseek"),
        ("phi-4", "microsoft"),
        ("olmo-2-0325-32b", None),
        ("", None),
        (None, None),
    ],
)
def test_the_maker_is_read_from_the_name(model: str | None, maker: str | None) -> None:
    """The maker is read from the model's name, or is None."""
    assert family(model) == maker


def test_there_are_families_enough() -> None:
    """There are at least eight families."""
    assert len(FAMILIES) >= 8


def test_benchmarks_that_share_questions_go_together() -> None:
    """Benchmarks that share questions are one family."""
    assert benchmark_family("MMLU-Pro") == benchmark_family("MMLU-Pro-confidence") == "MMLU"
    assert benchmark_family("BFCL-simple") == "BFCL"
    assert benchmark_family("MMMU-Pro") == "MMMU-Pro"
    assert benchmark_family(None) is None


# --- plans --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def train() -> list[Row]:
    return labelled(900, seed=1)


@pytest.fixture(scope="module")
def test_rows() -> list[Row]:
    return labelled(600, seed=2)


@pytest.mark.parametrize("name", ["models", "families", "benchmarks", "domains"])
def test_what_is_left_out_is_judged_and_not_trained_on(
    name: StudyName, train: list[Row], test_rows: list[Row]
) -> None:
    """A fold judges the test rows left out and trains on all rows of other groups (K04, K06)."""
    rows = [*train, *test_rows]

    def group(row: Row) -> str | None:
        if name == "benchmarks":
            return benchmark_family(row.benchmark)
        if name == "domains":
            return row.domain
        return row.model if name == "models" else family(row.model)

    folds = plan(name, train, test_rows)
    assert len(folds) == len({group(row) for row in test_rows})
    for fold in folds:
        assert {group(rows[i]) for i in fold.judged} == {fold.label}
        assert fold.label not in {group(rows[i]) for i in fold.train}
        assert fold.judged.min() >= len(train) > fold.train.max()
        kept = [i for i in range(len(train)) if group(rows[i]) != fold.label]
        assert fold.train.tolist() == kept


def test_several_benchmarks_are_left_out_at_a_time() -> None:
    """Several benchmarks are left out at a time, each in one fold (K05)."""
    test = [
        parse_row(
            {"question": f"{n}", "response": "x", "correct": n % 2, "benchmark": f"b{n % 24}"}
        )
        for n in range(24 * 120)
    ]
    train = labelled(100, seed=1)
    folds = plan("benchmark-folds", train, test)
    names = [fold.label.split() for fold in folds]
    assert [len(one) for one in names] == [BENCHMARKS_A_FOLD] * 4
    assert len({name for fold in names for name in fold}) == 20


def test_a_fold_is_judged_inside_too(train: list[Row], test_rows: list[Row]) -> None:
    """A fold is also judged on the test rows that were not left out, but not for families (K05)."""
    rows, fits = [*train, *test_rows], list[tuple[Ints, Ints]]()

    def fit(trained: Ints, judged: Ints) -> Floats:
        fits.append((trained, judged))
        is_known = np.isin(
            [rows[i].domain for i in judged], list({rows[i].domain for i in trained})
        )
        y = labels([rows[i] for i in judged])
        return np.where(is_known, 0.2 + 0.6 * y, 0.5)

    found = run("domains", "a fit", fit, train, test_rows)
    assert [(one.auroc, one.inside, one.gap) for one in found.entries] == [(0.5, 1.0, 0.5)] * 2
    for trained, judged in fits[1:]:
        assert sorted(judged) == list(range(len(train), len(rows)))
        assert len(trained) < len(train)
    assert math.isnan(run("families", "a fit", fit, train, test_rows).mean("inside"))


def test_sources_are_judged_on_models_that_they_are_not(
    train: list[Row], test_rows: list[Row]
) -> None:
    """Sources are judged on models that they are not (K03).

    Each source alone is judged on the two others, all three on each, with the mean over models.
    """
    rows, fits = [*train, *test_rows], list[tuple[set[str | None], set[str | None]]]()

    def fit(trained: Ints, judged: Ints) -> Floats:
        fits.append(({rows[i].model for i in trained}, {rows[i].model for i in judged}))
        return np.where(np.arange(len(judged)) % 3, 0.5, labels([rows[i] for i in judged]))

    found = run_sources("single-sources", "a fit", fit, train, test_rows)
    assert [len(pool) for pool, _ in fits] == [1, 1, 1, 3]
    assert all(not pool & judged for pool, judged in fits[:3])
    assert fits[3][0] == fits[3][1]
    assert len(found.entries) == 3 * (2 + 1) + 3 + 1
    of_all = found.entries[-4:-1]
    assert found.entries[-1].auroc == pytest.approx(np.mean([one.auroc for one in of_all]))
    assert found.entries[-1].label == "all three, mean over 3 models"


def test_pools_of_sources_grow(train: list[Row]) -> None:
    """Pools grow to four, five and seven sources, judged on other models (K02).

    With fewer models the study says how many it needs.
    """
    raws = [row.raw | {"model": f"m{n % 9}"} for n, row in enumerate(labelled(2_000, seed=5))]
    test = [parse_row(raw) for raw in raws]
    learnt = [replace(row, model=f"m{n % 9}") for n, row in enumerate(train)]
    pools: list[set[str | None]] = []

    def fit(trained: Ints, judged: Ints) -> Floats:
        pools.append({learnt[i].model for i in trained})
        return np.linspace(0, 1, len(judged))

    found = run_sources("growing-sources", "a fit", fit, learnt, test)
    assert [len(pool) for pool in pools] == [4, 5, 7]
    assert pools[0] < pools[1] < pools[2]
    assert [one.label for one in found.entries if "mean over" in one.label] == [
        f"the {n} most capable, mean over 2 models" for n in (4, 5, 7)
    ]
    with pytest.raises(JudgingError, match="7 models with 100 rows to judge are needed"):
        run_sources("growing-sources", "a fit", fit, train, labelled(600, seed=2))


def test_sizes_grow_by_whole_questions(test_rows: list[Row]) -> None:
    """Each size has the smaller ones in whole questions, judged on all test rows (K08)."""
    train = labelled(2_400, seed=3)
    folds = plan("size", train, test_rows)
    assert [len(fold.train) for fold in folds] == [500, 1_000, 2_000, 2_400]
    for smaller, larger in itertools.pairwise(folds):
        assert set(smaller.train) < set(larger.train)
    assert all(len(fold.judged) == len(test_rows) for fold in folds)
    questions = [train[i].question_id for i in folds[0].train]
    assert len(set(questions)) <= len(questions) / 4 + 1


def test_a_question_on_both_sides_is_refused(train: list[Row]) -> None:
    """A question that is both trained on and judged is refused (D04)."""
    with pytest.raises(JudgingError, match="questions are both trained on and judged"):
        plan("models", train, train[:10])


def test_small_groups_are_refused(train: list[Row]) -> None:
    """A study without a group of a hundred rows is refused."""
    with pytest.raises(JudgingError, match="nothing to leave out"):
        plan("models", train, labelled(60, seed=2))


# --- running ------------------------------------------------------------------------------------


def test_a_study_measures_what_leaving_out_costs(train: list[Row], test_rows: list[Row]) -> None:
    """Each fold has its AUROC with its interval, beside the AUROC of a fit on everything (K04)."""
    fits: list[tuple[Ints, Ints]] = []

    def fit(trained: Ints, judged: Ints) -> Floats:
        """Knows the labels when it has seen everything, else half of the time."""
        fits.append((trained, judged))
        y = labels([[*train, *test_rows][i] for i in judged])
        keen = 1.0 if len(trained) == len(train) else 0.4
        return np.asarray(keen * y + (1 - keen) * np.random.default_rng(1).random(len(y)))

    sentences: list[str] = []
    found = run("models", "made up", fit, train, test_rows, sentences.append)
    assert len(fits) == 4
    assert len(sentences) == 3
    for entry in found.entries:
        assert entry.reference == 1.0
        assert entry.low < entry.auroc < min(entry.high, 0.99)
        assert entry.trained == 600
        assert entry.ece_mended < entry.ece  # 200 rows each: the protocol of N01 runs
    assert found.mean() == pytest.approx(np.mean([entry.auroc for entry in found.entries]))


def test_what_was_left_out_is_ranked_together(
    train: list[Row], test_rows: list[Row], tmp_path: Path
) -> None:
    """The judged rows of all folds have three figures together, which survive the file (K04).

    Folds with different levels rank well within a benchmark and worse pooled.
    """
    rows = [*train, *test_rows]

    def fit(trained: Ints, judged: Ints) -> Floats:
        y, is_whole = labels([rows[i] for i in judged]), len(trained) == len(train)
        level = {"history": 0.0, "arithmetic": 0.2, "BFCL-simple": 0.4}
        shifts = [0.0 if is_whole else level[rows[i].benchmark or ""] for i in judged]
        return np.asarray(0.1 + 0.1 * y + shifts)

    found = run("benchmarks", "a fit", fit, train, test_rows)
    assert found.together is not None
    left_out, reference = found.together.left_out, found.together.reference
    assert (left_out.rows, left_out.over_benchmarks, left_out.within_questions) == (600, 1.0, 1.0)
    assert 0.5 < left_out.pooled < 0.9
    assert reference.figures == (1.0, 1.0, 1.0)
    (tmp_path / "study.json").write_text(study_json(found))
    assert read_study(tmp_path / "study.json").together == found.together

    one = run("benchmarks", "a fit", fit, train, test_rows, only=["history"])
    assert [entry.label for entry in one.entries] == ["history"]
    assert one.together is not None
    assert one.together.left_out.figures == (1.0, 1.0, 1.0)
    with pytest.raises(JudgingError, match="'histories' is not one of what is left out: BFCL, ari"):
        plan("benchmarks", train, test_rows, ["histories"])
    assert run("size", "a fit", fit, train, test_rows).together is None


def test_several_are_left_out_by_one_fit(train: list[Row], test_rows: list[Row]) -> None:
    """`history+BFCL` is one fold without both; one benchmark of a family can be left out."""
    own = [row.benchmark for row in train]
    train = [*train, *(replace(row, benchmark="BFCL-parallel") for row in train[:40])]
    rows = [*train, *test_rows]
    (fold,) = plan("benchmarks", train, test_rows, ["history+BFCL"])
    assert fold.label == "history+BFCL"
    assert {rows[i].benchmark for i in fold.train} == {"arithmetic"}
    assert {rows[i].benchmark for i in fold.judged} == {"history", "BFCL-simple"}
    (alone,) = plan("benchmarks", train, test_rows, ["BFCL-simple"])
    assert {rows[i].benchmark for i in alone.train} == {"history", "arithmetic", "BFCL-parallel"}
    assert len(alone.train) == len(train) - own.count("BFCL-simple")
    with pytest.raises(JudgingError, match="'xai' is not one of what is left out"):
        plan("benchmarks", train, test_rows, ["history+xai"])


def test_more_rows_help(test_rows: list[Row]) -> None:
    """TF-IDF gains with more rows (K08)."""
    train = labelled(2_400, seed=3)
    counts = WordPairCounts([*train, *test_rows])
    found = run("size", "TF-IDF", lambda a, b: counts.scores(a, b, "served"), train, test_rows)
    first, *_, last = (entry.auroc for entry in found.entries)
    assert 0.6 < first < last
    assert all(math.isnan(entry.reference) for entry in found.entries)


def test_a_study_survives_its_file(train: list[Row], test_rows: list[Row], tmp_path: Path) -> None:
    """A study survives its file, NaN too, and another file is refused."""
    found = probe(FakeScorer(0.5), test_rows[:50])
    path = tmp_path / "study.json"
    path.write_text(study_json(found))
    assert study_json(read_study(path)) == study_json(found)
    assert "NaN" not in path.read_text()
    path.write_text("{}")
    with pytest.raises(JudgingError, match=r"study\.json is no study"):
        read_study(path)
    assert math.isnan(Study("models", "none", []).mean())


# --- probes -------------------------------------------------------------------------------------


def test_hedges_are_taken_out() -> None:
    """Words of doubt are removed with their comma, and the rest stays (K12)."""
    text = "I think it is 4. Maybe, it is 5; possibly 6. A maybeless wordthink stays."
    assert strip_hedges(text) == "it is 4. it is 5; 6. A maybeless wordthink stays."


def test_hedges_are_put_in() -> None:
    """Words of doubt are added to every third sentence, and removing them gives the text (K12)."""
    text = "One is 1. Two is 2. Three is 3. Four is 4."
    assert inject_hedges(text) == "Maybe, One is 1. Two is 2. Three is 3. I think, Four is 4."
    assert strip_hedges(inject_hedges(text)) == text
    assert inject_hedges("") == ""
    assert inject_hedges("a. " * 300_000).count("Maybe, ") == 100_000 // 3 + 1


class Reader:
    """A scorer that looks at one thing, to show what a probe takes away."""

    name = "reader"

    def __init__(self, look: str) -> None:
        self.look = look
        self.items: list[Item] = []

    def score_batch(self, items: list[Item]) -> list[Score]:
        self.items += items
        seen = {
            "question": lambda item: item.question,
            "answer": lambda item: item.answer,
            "names": lambda item: f"{item.source_model}{item.benchmark}",
        }[self.look]
        found = [0.9 if "certainly" in seen(item) else 0.1 for item in items]
        return [Score(one, one) for one in found]


def telling() -> list[Row]:
    """Return rows whose label follows from the question and the answer's second word.

    Half the rows are right.
    """
    rows = []
    for n in range(60):
        word = "certainly" if n % 2 else "never"
        rows.append(
            parse_row(
                {
                    "question": f"{word} {n}?",
                    "response": f"{'x' * 250} {word}" if n % 3 else f"{word} {'x' * 250}",
                    "correct": n % 2,
                    "model": f"m-{word}",
                    "benchmark": "b",
                }
            )
        )
    return rows


@pytest.mark.parametrize(
    ("look", "takes_away"),
    [
        ("question", {"question: empty", f"question: {REDACTED}"}),
        ("names", {"names: none"}),
        ("answer", {"answer: empty"}),
    ],
)
def test_a_probe_takes_away_what_it_says(look: str, takes_away: set[str]) -> None:
    """A scorer of one thing is at chance if a probe takes it away, else unchanged (K10, K11)."""
    found = probe(Reader(look), telling())  # type: ignore[arg-type]
    assert [entry.label for entry in found.entries] == list(PROBES)
    for entry in found.entries:
        if entry.label in takes_away:
            assert (entry.auroc, entry.reference) == (0.5, 1.0)
            assert entry.shift == pytest.approx(-0.4)
        elif not entry.label.startswith("answer: first"):
            assert entry.auroc == 1.0


def test_a_shorter_answer_reveals_less() -> None:
    """The first 200 characters of an answer reveal less than 400 (K13)."""
    found = {entry.label: entry for entry in probe(Reader("answer"), telling()).entries}  # type: ignore[arg-type]
    short = found["answer: first 200 characters"]
    assert 0.5 < short.auroc < 1.0
    assert short.shift < 0
    assert found["answer: first 400 characters"].auroc == 1.0


def test_the_sample_is_always_the_same(train: list[Row]) -> None:
    """A sample is always the same rows in their order, and few rows are all taken."""
    chosen = sample(train, 100)
    assert chosen == sample(train, 100)
    assert len({row.raw["id"] for row in chosen}) == 100
    places = [train.index(row) for row in chosen]
    assert places == sorted(places)
    assert sample(train, 10_000) == train


def test_names_of_the_probes_are_those_of_the_paper(train: list[Row]) -> None:
    """The probes are the paper's: names, question, hedges and answer (K10-K13)."""
    assert {label.split(":")[0] for label in PROBES} == {
        "as served",
        "names",
        "question",
        "answer",
        "hedges",
    }
    item = PROBES["names: model and benchmark"](train[0])
    assert (item.source_model, item.benchmark) == (train[0].model, train[0].benchmark)
    y, p = labels(train), np.array([len(r.answer) for r in train])
    assert auroc(y, p) > 0.6
