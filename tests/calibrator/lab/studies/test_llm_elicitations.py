"""Ways to read P(correct) from one adapter, judged side by side (K14, K15, I16)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from calibrator import CheckpointError, Item, load_scorer
from calibrator.checkpoints.checkpoint import read_config
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.lab.studies.elicitations import McDropout, load_unmerged
from calibrator.lab.studies.probes import probe
from calibrator.lab.studies.studies import read_study
from calibrator.llm.exporting import export_weights
from calibrator.llm.layers.replace import text_model_of
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.rows.rows import parse_row
from calibrator.rows.selection import share_of
from pinocchio.commands import cli
from tests.builders.sums import sums
from tests.builders.tiny_models import OfFamily, write_tiny_adapter

ITEMS = [Item(f"Ann Bob {a}+1", str(n)) for a in (0, 1) for n in range(3)]


@pytest.fixture(scope="module")
def checkpoint(tiny_bases: OfFamily, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write an adapter on a base, to be served without images."""
    folder = tmp_path_factory.mktemp("adapted") / "tiny"
    return write_tiny_adapter(folder, tiny_bases("qwen3_vl"), "qwen3_vl", images=None)


def config_in(folder: Path) -> LlmConfig:
    found = read_config(folder)
    assert isinstance(found, LlmConfig)
    return found


def test_a_score_is_one_forward_pass(checkpoint: Path) -> None:
    """A score takes one forward pass of the base (A02)."""
    scorer = load_scorer(str(checkpoint), "cpu")
    assert isinstance(scorer, LlmCalibrator)
    passes: list[int] = []
    text_model_of(scorer.model.model).register_forward_hook(lambda *_: passes.append(1))
    scorer.score_batch(ITEMS[:1])
    assert len(passes) == 1


def test_a_larger_budget_shows_more_of_an_answer(checkpoint: Path) -> None:
    """A budget of 1,600 characters gives other scores than 800, where the prompt cuts (K13)."""
    scorer = load_scorer(str(checkpoint), "cpu")
    long = [(n, "Bob " * 200 + f"{n % 2} " * 60) for n in range(6)]
    rows = [
        parse_row({"question": f"Ann {n}+1", "response": text, "correct": n % 2})
        for n, text in long
    ]
    shifts = {
        entry.label: entry.shift
        for entry in probe(scorer, rows).entries
        if entry.label.startswith("answer: first")
    }
    assert shifts["answer: first 800 characters"] == 0.0
    assert abs(shifts["answer: first 1,600 characters"]) > 1e-6
    assert shifts["answer: first 1,600 characters"] == shifts["answer: first 3,000 characters"]


def test_every_way_is_judged_on_the_same_rows(checkpoint: Path, tmp_path: Path) -> None:
    """`pinocchio study elicitations` has an entry for each way (K14, K15, I16).

    A temperature changes the confidence and never the ranking.
    """
    rows = sums(240)
    for name, is_test in (("train", False), ("test", True)):
        side = [row for row in rows if (share_of(row["question"]) < 0.4) == is_test]
        path = tmp_path / name / "rows.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps(row) + "\n" for row in side))
    output = tmp_path / "study.json"
    command = ["study", "elicitations", str(tmp_path / "test" / "rows.jsonl")]
    options = ["--calibrator", str(checkpoint), "-o", str(output)]
    result = CliRunner().invoke(cli, [*command, *options])
    assert result.exit_code == 0, result.stderr
    study = read_study(output)
    found = {entry.label: entry for entry in study.entries}
    assert list(found) == [
        *("labels", "labels, temperature", "MC dropout, 5 passes"),
        *("state", "state and labels", "token entropy"),
    ]
    assert study.method == config_in(checkpoint).version
    assert found["labels, temperature"].auroc == pytest.approx(found["labels"].auroc, abs=1e-9)
    assert found["labels, temperature"].ece != found["labels"].ece
    assert found["MC dropout, 5 passes"].auroc != found["labels"].auroc
    assert found["state"].auroc > 0.5  # a random base's states tell the digits apart a little


def test_mc_dropout_is_the_mean_of_passes_that_differ(checkpoint: Path) -> None:
    """MC dropout is the mean of different passes, repeatable by its seed (I16)."""
    calibrator, adapted = load_unmerged(config_in(checkpoint), checkpoint, "cpu")
    plain = [score.score for score in calibrator.score_batch(ITEMS)]
    merged = [score.score for score in load_scorer(str(checkpoint), "cpu").score_batch(ITEMS)]
    assert plain == pytest.approx(merged, abs=1e-5)

    def means(passes: int, seed: int) -> list[float]:
        scorer = McDropout(calibrator, adapted, passes, seed)
        return [score.score for score in scorer.score_batch(ITEMS)]

    assert means(1, 0) == means(1, 0)
    assert means(1, 0) != pytest.approx(means(1, 1), abs=1e-4)
    spread = [np.std([means(n, seed) for seed in range(6)], axis=0).mean() for n in (1, 20)]
    assert spread[1] < spread[0] / 2
    assert [score.score for score in calibrator.score_batch(ITEMS)] == plain  # dropout is off again


def test_merged_weights_have_no_dropout(checkpoint: Path, tmp_path: Path) -> None:
    """Merged weights have no adapter, so MC dropout is refused (I16)."""
    whole = tmp_path / "whole"
    export_weights(str(checkpoint), whole)
    with pytest.raises(CheckpointError, match="no adapter of its own"):
        load_unmerged(config_in(whole), whole, "cpu")
