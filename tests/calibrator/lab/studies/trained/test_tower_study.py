"""The study of the tower: rows that are left out are not trained on; each group is judged."""

from __future__ import annotations

import numpy as np
import pytest
import typer

from calibrator.lab.judging.baselines.tfidf import WordPairCounts
from calibrator.lab.studies.trained import tower_study
from calibrator.lab.studies.trained.tower_study import (
    FAMILIES,
    HELD_SHARE,
    LEFT_OUT_SHARE,
    Kind,
    TowerStudy,
    change_setting,
    name_numbers,
)
from calibrator.lab.training.stages.forest import ForestConfig
from calibrator.lab.training.stages.tower import TowerConfig
from calibrator.rows.rows import Row, parse_row
from calibrator.rows.selection import share_of

MODELS, BENCHMARKS = ("claude-x", "gpt-1", "phi-2"), ("GSM8K", "TriviaQA", "other")
VECTORS = np.random.default_rng(9).normal(size=(30_522, 8)).astype(np.float32)
SMALL = TowerConfig(members=1)
BUSH = ForestConfig(trees=5, leaf_rows=5, topics=(2, 2, 2, 2, 2), grams=100)


def rows() -> list[Row]:
    """Return replies to 200 questions; an answer is right if it says so in words."""
    return [
        parse_row(
            {
                "question_id": f"q{n}",
                "benchmark": BENCHMARKS[n % 3],
                "question": f"What is {n}?",
                "response": f"It is {n}, surely." if (n + m) % 2 else str(n),
                "model": model,
                "correct": (n + m) % 2,
            }
        )
        for n in range(200)
        for m, model in enumerate(MODELS)
    ]


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the least number of judged replies from 100 to 10: here each maker has some 20."""
    monkeypatch.setattr(tower_study, "MIN_JUDGED", 10)


@pytest.fixture(scope="module")
def study() -> TowerStudy:
    return TowerStudy(rows(), seed=1)


def rows_by_group(text: str) -> dict[str, int]:
    """Return the number of rows of each group, by its name."""
    return {
        line[2:30].strip(): int(line[30:].split()[0])
        for line in text.splitlines()
        if "rows" in line
    }


def test_all_groups_are_judged_at_once(
    study: TowerStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    """All groups are judged at once: known ones, families and benchmarks left out."""
    study.all_at_once(SMALL, leave_out=True)
    share = np.array([share_of(row.question_id) for row in study.rows])
    of_family = np.array([(row.model or "").startswith(FAMILIES) for row in study.rows])
    of_benchmark = np.array([row.benchmark != "other" for row in study.rows])
    held = share < HELD_SHARE
    assert rows_by_group(capsys.readouterr().out) == {
        "known": (held & ~of_family & ~of_benchmark).sum(),
        "known, no names": (held & ~of_family & ~of_benchmark).sum(),
        "families left out": (held & of_family & ~of_benchmark).sum(),
        "benchmarks left out": ((share < LEFT_OUT_SHARE) & of_benchmark & ~of_family).sum(),
    }


@pytest.mark.parametrize(
    ("kind", "names"),
    [(Kind.FAMILIES, "openai anthropic microsoft"), (Kind.BENCHMARKS, "GSM8K TriviaQA")],
)
def test_each_group_is_left_out_alone(
    kind: Kind, names: str, study: TowerStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each family or benchmark is left out alone, and then all rows are judged."""
    study.each_alone(SMALL, kind)
    counts = rows_by_group(capsys.readouterr().out)
    assert counts[f"all {kind}"] == sum(counts[name] for name in names.split()) > 0


def test_makers_of_few_replies_stay_in(study: TowerStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makers of few replies are not left out, and without others the study is refused."""
    monkeypatch.setattr(tower_study, "MIN_JUDGED", 100)
    with pytest.raises(typer.BadParameter, match="there are no families to leave out"):
        study.each_alone(SMALL, Kind.FAMILIES)


def test_rows_to_judge_take_the_place_of_held_ones(
    study: TowerStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--judge` these rows are judged and never fitted on."""
    judged = [row for row in study.rows if row.benchmark == "other"]
    beside = TowerStudy([row for row in study.rows if row.benchmark != "other"], 1, None, judged)
    assert (beside.share[-len(judged) :] < HELD_SHARE).all()
    assert (beside.share[: -len(judged)] > LEFT_OUT_SHARE).all()
    beside.each_alone(SMALL, Kind.FAMILIES)
    counts = rows_by_group(capsys.readouterr().out)
    assert counts["anthropic"] == counts["microsoft"] == len(judged) / 3


def test_the_floor_is_judged_on_the_same_rows(
    study: TowerStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--floor` TF-IDF is fitted and judged on the same rows, with the same names."""
    beside = TowerStudy(study.rows, study.seed, floor=True)
    beside.all_at_once(SMALL, leave_out=True)
    beside.each_alone(SMALL, Kind.FAMILIES)
    counts = rows_by_group(capsys.readouterr().out)
    ours = {name: count for name, count in counts.items() if "TF-IDF" not in name}
    assert counts == ours | {f"{name}, TF-IDF": count for name, count in ours.items()}
    assert {"known", "families left out", "anthropic", "all families"} <= set(ours)
    at = study.share < HELD_SHARE
    named, bare = beside.word_scores(~at, [(at, True), (at, False)])
    chosen, rest = np.flatnonzero(~at), np.flatnonzero(at)
    counted = WordPairCounts(study.rows)
    assert 1 / (1 + np.exp(-named)) == pytest.approx(counted.scores(chosen, rest, "served"))
    assert 1 / (1 + np.exp(-bare)) == pytest.approx(counted.scores(chosen, rest, "none"))
    assert not np.allclose(named, bare)


def test_the_forest_is_added_to_the_towers(
    study: TowerStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits come from towers and forest together, with and without names."""
    monkeypatch.setattr(tower_study, "piece_vectors", lambda _: VECTORS)
    at = study.share < HELD_SHARE
    groups = [(at, False), (at, True)]
    plain = study.scores(SMALL, ~at, groups)
    both = TowerStudy(study.rows, study.seed, BUSH)
    found = both.scores(SMALL, ~at, groups)
    forest = both._forest(BUSH, np.flatnonzero(~at), names := name_numbers(study.models, ~at))
    rows = [study.read[i] for i in np.flatnonzero(at)]
    for number, own_names in enumerate((names[at] * 0, names[at])):
        expected = BUSH.share * (plain[number] + forest.read(rows, own_names))
        assert found[number] == pytest.approx(expected, abs=1e-3)
    assert np.abs(found[0] - plain[0]).max() > 0.01


def test_a_model_that_is_left_out_has_no_name() -> None:
    """A model that is left out, or has few rows, has the number 0."""
    models = np.array(["a"] * 30 + ["b"] * 30 + ["c"] * 5)
    chosen = np.array([True] * 30 + [False] * 30 + [True] * 5)
    assert name_numbers(models, chosen).tolist() == [1] * 30 + [0] * 35


def test_settings_are_those_of_the_tower() -> None:
    """A setting has its field's type, and an unknown one is refused with the known ones."""
    assert change_setting(TowerConfig(), "members=1").members == 1
    assert not change_setting(TowerConfig(), "has_traits=false").has_traits
    with pytest.raises(typer.BadParameter, match="'width' is not one of members, folds"):
        change_setting(TowerConfig(), "width=3")
