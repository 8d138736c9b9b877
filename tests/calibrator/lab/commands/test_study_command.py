"""`pinocchio study` as a person runs it (paper K04, K05, K08, K10-K13)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from calibrator.embedded.calibrator import EmbeddedCalibrator
from calibrator.errors import install_command
from calibrator.lab.studies.studies import read_study
from calibrator.loading import load_scorer
from calibrator.rows.rows import parse_row
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@pytest.fixture
def test_file(tmp_path: Path) -> Path:
    """Write rows to judge, with rows to train on in the folder beside."""
    write(tmp_path / "train" / "rows.jsonl", raw_rows(600, seed=1))
    return write(tmp_path / "test" / "rows.jsonl", raw_rows(400, seed=2))


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("models", ["claude-large", "gpt-small", "llama-tiny"]),
        ("families", ["anthropic", "meta", "openai"]),
        ("benchmarks", ["BFCL", "arithmetic", "history"]),
        ("domains", ["facts", "math"]),
    ],
)
def test_leaving_out_prints_and_writes(
    test_file: Path, tmp_path: Path, name: str, left_out: list[str]
) -> None:
    """Leaving out prints a line for each group, their mean, and figures of all together (K04)."""
    output = tmp_path / "study.json"
    result = run("study", name, test_file, "-o", output)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        *left_out,
        "mean",
        "all",
        "left",
        "reference",
    ]
    found = read_study(output)
    assert [entry.label for entry in found.entries] == left_out
    assert (found.name, found.method) == (name, "TF-IDF")
    assert all(0.5 < entry.reference < 1 for entry in found.entries)
    assert found.together is not None
    figures = [f"{one:.3f}" for one in found.together.left_out.figures]
    assert lines[-2].split() == ["left", "out", "400", *figures]

    alone = run("study", name, test_file, "--only", left_out[0])
    assert [line.split()[0] for line in alone.stdout.splitlines()[1:3]] == [left_out[0], "mean"]


def test_a_study_looks_for_what_it_needs_before_it_begins(test_file: Path) -> None:
    """Without scikit-learn a study is refused before it reads a row."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from pinocchio.commands import cli\n"
        f"sys.argv = ['pinocchio', 'study', 'models', {str(test_file)!r}, '--train', "
        f"{str(test_file)!r}]\n"
        "cli()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    sentence = f"scikit-learn is not installed; it comes with: {install_command('train')}"
    assert (done.returncode, done.stderr) == (1, f"pinocchio: {sentence}\n")


def test_folds_are_kept(test_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run fits nothing again and writes the same entries."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(tmp_path / "kept"))
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run("study", "models", test_file, "-o", first).exit_code == 0
    fits = {path: path.stat().st_ino for path in (tmp_path / "kept" / "fits").iterdir()}
    assert len(fits) > 1
    assert run("study", "models", test_file, "-o", second).exit_code == 0
    assert {path: path.stat().st_ino for path in (tmp_path / "kept" / "fits").iterdir()} == fits
    assert first.read_text() == second.read_text()


def test_the_size_curve_grows(test_file: Path, tmp_path: Path) -> None:
    """The size study uses parts of the training rows, and all of them (K08)."""
    output = tmp_path / "study.json"
    assert run("study", "size", test_file, "-o", output).exit_code == 0
    assert [entry.trained for entry in read_study(output).entries] == [500, 600]


def test_probes_ask_the_calibrator(test_file: Path) -> None:
    """Probes need no training rows, and the sample may be bounded (K10-K13)."""
    result = run("study", "probes", test_file, "--rows", "100", "--calibrator", "fake:0.5")
    assert result.exit_code == 0
    assert "question: [QUESTION REDACTED]" in result.stdout
    assert {line.split("  ")[-1] for line in result.stdout.splitlines()[1:-1]} == {"0.000"}
    assert "nan" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models", "{alone}", "-o", "{alone}"], "it is an input as well"),
        (["models", "{alone}"], "there are no training rows; give them with --train"),
        (["models", "{alone}", "--train", "{alone}"], "are both trained on and judged"),
        (["models", "{alone}", "--train", "nowhere"], "No such file or directory"),
        (["nonsense", "{alone}"], "Invalid value"),
        (["size", "{alone}", "--only", "openai"], "--only is for models, families, benchmarks"),
    ],
)
def test_mistakes_are_reported(tmp_path: Path, arguments: list[str], message: str) -> None:
    """A mistake gives one sentence and exit status 2."""
    alone = write(tmp_path / "alone.jsonl", raw_rows(120, seed=1))
    result = run("study", *(argument.format(alone=alone) for argument in arguments))
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_calibrator_is_trained_on_the_folds_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibrator is trained on each fold's rows, with inspector and knowledge, once (K04)."""
    from calibrator.lab.studies.embedded_fit import EmbeddedFit, as_shipped
    from tests.calibrator.lab.training.tiny_runs import small_training, with_made_vectors

    rows = [parse_row(raw) for raw in raw_rows(144, seed=1)]
    shipped = as_shipped()
    parts = ("forest", "abilities", "inspector", "knowledge", "calls")
    assert all(getattr(shipped, f"has_{part}") for part in parts)
    with_made_vectors(monkeypatch)
    config = small_training()
    sentences: list[str] = []
    fit = EmbeddedFit(rows, tmp_path, config, sentences.append)
    is_left_out = np.array([row.model == "gpt-small" for row in rows])
    train, judged = np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)
    found = fit(train, judged)
    assert found.shape == (48,)
    assert ((found > 0) & (found < 1)).all()
    (folder,) = tmp_path.iterdir()
    learnt = (folder / "rows.jsonl").read_text()
    assert (learnt.count("\n"), "gpt-small" in learnt) == (96, False)
    assert any("without the part 'calls'" in sentence for sentence in sentences)

    scorer = load_scorer(str(folder / "run" / "checkpoint"), "cpu")
    assert isinstance(scorer, EmbeddedCalibrator)
    assert scorer.parts.forest is not None
    assert scorer.parts.abilities is not None
    assert scorer.parts.inspector is not None
    assert scorer.parts.knowledge is not None
    assert scorer.config.source_models == ("claude-large", "llama-tiny")

    assert (fit(train, judged) == found).all()
    assert sum(sentence.startswith("tower 1 of") for sentence in sentences) == 1
