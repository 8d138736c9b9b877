"""`pinocchio score` and `train` as a person runs them, and the help of every command."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from calibrator.errors import install_command
from pinocchio.commands import cli
from tests.builders.labelled_rows import raw_rows, write
from tests.builders.pictures import PNG, data_url
from tests.builders.tiny_checkpoint import save_tiny
from tests.running.live_proxy import SightedScorer

Json = dict[str, Any]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def lines(text: str) -> list[Json]:
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write(tmp_path / "rows.jsonl", [{"question": "größe?", "response": "4", "n": 1.5}] * 2)


# --- score --------------------------------------------------------------------------------------


def test_score_adds_to_every_row(rows: Path) -> None:
    """`score` adds score, confidence and calibrator to each row and changes nothing else."""
    result = run("score", rows, "--calibrator", "fake:0.73")
    assert (result.exit_code, result.stderr) == (0, "")
    added = {"score": 0.73, "confidence": 0.73, "calibrator": "fake:0.73", "tags": "served"}
    added |= {"basis": ["likeness"], "act": "answer", "needs_facts": False, "familiar": True}
    assert lines(result.stdout) == [{"question": "größe?", "response": "4", "n": 1.5, **added}] * 2
    assert "größe" in result.stdout


def test_score_is_score_and_confidence_the_recalibrated_one(rows: Path, tmp_path: Path) -> None:
    """With a real checkpoint the confidence is the recalibrated score."""
    checkpoint = save_tiny(tmp_path / "tiny")
    result = run("score", rows, "--calibrator", checkpoint, "--device", "cpu")
    first, second = lines(result.stdout)
    assert first == second
    assert 0 < first["score"] != first["confidence"] < 1
    assert first["calibrator"].startswith("tiny@")


def test_score_writes_a_file(rows: Path, tmp_path: Path) -> None:
    """With -o the rows are written to the file, and no other file is left."""
    output = tmp_path / "out.jsonl"
    assert run("score", rows, "-o", output, "--calibrator", "fake:0.73").exit_code == 0
    assert len(lines(output.read_text(encoding="utf-8"))) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"rows.jsonl", "out.jsonl"}


def test_score_packs_what_it_calls_packed(rows: Path, tmp_path: Path) -> None:
    """An output whose name ends in .gz is gzipped and can be read again."""
    output = tmp_path / "out.jsonl.gz"
    assert run("score", rows, "--calibrator", "fake:0.73", "-o", output).exit_code == 0
    assert len(lines(gzip.decompress(output.read_bytes()).decode())) == 2
    again = run("score", output, "--calibrator", "fake:0.5", "-o", output)
    assert (again.exit_code, again.stderr) == (0, "")
    assert [line["score"] for line in lines(gzip.decompress(output.read_bytes()).decode())] == [
        0.5,
        0.5,
    ]


def test_score_writes_into_a_pipe(rows: Path, tmp_path: Path) -> None:
    """A pipe as output is written to and stays a pipe."""
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    assert run("score", rows, "--calibrator", "fake:0.73", "-o", pipe).exit_code == 0
    assert len(lines(reader.communicate(timeout=10)[0])) == 2
    assert pipe.is_fifo()


def test_score_may_write_over_its_input(rows: Path) -> None:
    """The input may be the output: it is read first and replaced as a whole."""
    before = rows.read_text(encoding="utf-8")
    with rows.open(encoding="utf-8") as reader:
        assert run("score", rows, "-o", rows, "--calibrator", "fake:0.73").exit_code == 0
        assert reader.read() == before
    assert [row["confidence"] for row in lines(rows.read_text(encoding="utf-8"))] == [0.73] * 2


def test_score_writes_over_its_input_only_where_nothing_is_lost(tmp_path: Path) -> None:
    """The input is not overwritten if a bad row would be lost."""
    path = write(tmp_path / "rows.jsonl", [{"question": "q", "response": "a"}, {"question": "q"}])
    before = path.read_bytes()
    result = run("score", path, "-o", path, "--calibrator", "fake:0.73")
    assert result.exit_code == 2
    assert f"would lose its bad rows ({path}:2: 'response' is missing)" in result.stderr
    assert path.read_bytes() == before


def test_a_folder_is_no_file_to_write(rows: Path, tmp_path: Path) -> None:
    """An output that ends with a slash is refused, and no file of that name is made."""
    result = run("score", rows, "-o", f"{tmp_path}/out/", "--calibrator", "fake:0.73")
    assert result.exit_code == 2
    assert "Invalid value for '-o'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_benchmark_s_name_changes_no_score(tmp_path: Path) -> None:
    """A benchmark's name changes no score, and the output has the tags in use."""
    checkpoint = save_tiny(tmp_path / "tiny")
    row = {"question": "q", "response": "a", "model": "known-model", "benchmark": "gpqa"}
    path = write(tmp_path / "rows.jsonl", [row, {**row, "benchmark": None}])
    for tags in ("served", "all"):
        arguments = ("score", path, "--calibrator", checkpoint, "--device", "cpu", "--tags", tags)
        first, second = lines(run(*arguments).stdout)
        assert first["score"] == second["score"]
        assert first["tags"] == tags


def test_score_reads_several_files_and_writes_what_evaluate_reads(tmp_path: Path) -> None:
    """`score --brief` writes ids and numbers of several files, in order."""
    files = [write(tmp_path / f"{n}.jsonl", raw_rows(3, seed=n)) for n in (1, 2)]
    result = run("score", *files, "--brief", "--calibrator", "fake:0.73")
    assert [row["id"] for row in lines(result.stdout)] == ["1-0", "1-1", "1-2", "2-0", "2-1", "2-2"]
    assert set(lines(result.stdout)[0]) == {"id", "score", "confidence", "calibrator", "tags"}


def test_brief_scores_need_no_id(tmp_path: Path) -> None:
    """With --brief a row without an id gets a digest by which `evaluate --scores` finds it."""
    row = {"question": "q", "response": "a", "correct": 1}
    rows = [{**row, "id": 7}, row, {**row, "response": "b", "id": None, "correct": 0}]
    path, scores = write(tmp_path / "rows.jsonl", rows), tmp_path / "scores.jsonl"
    options = ("--brief", "--calibrator", "fake:0.73", "-o", scores)
    assert run("score", path, *options).exit_code == 0
    found = [one["id"] for one in lines(scores.read_text())]
    assert found[0] == 7
    assert all(re.fullmatch("sha256:[0-9a-f]{24}", id) for id in found[1:])
    assert len(set(found)) == 3
    result = run("evaluate", path, "--scores", scores, "--json")
    assert (result.exit_code, lines(result.stdout)[-1]["rows"]) == (0, 3)


def test_score_reads_gzip(tmp_path: Path) -> None:
    """Gzipped rows are read, whatever the file's name."""
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"question": "q", "response": "a"}\n'))
    result = run("score", path, "--calibrator", "fake:0.73")
    assert (result.exit_code, len(lines(result.stdout))) == (0, 1)


def test_a_bad_row_is_named_and_the_others_are_scored(tmp_path: Path) -> None:
    """Each bad row gives a line on stderr and exit status 1; the good rows are scored."""
    good = {"question": "q", "response": "a"}
    path = write(tmp_path / "rows.jsonl", [good, {"question": "q"}, 5, good])
    output = tmp_path / "out.jsonl"
    result = run("score", path, "-o", output, "--calibrator", "fake:0.73")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{path}:2: 'response' is missing",
        f"{path}:3: a row must be a JSON object, not int",
        "pinocchio: 2 of 4 rows could not be used",
    ]
    assert len(lines(output.read_text())) == 2


def test_half_a_surrogate_pair_survives_scoring(tmp_path: Path) -> None:
    """Half a surrogate pair is scored and written as it was read."""
    path, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    path.write_text('{"question": "q \\ud83d", "response": "\\udc00 ü"}\n')
    checkpoint = save_tiny(tmp_path / "tiny")
    for to in ([], ["-o", output]):
        result = run("score", path, *to, "--calibrator", checkpoint, "--device", "cpu")
        assert result.exit_code == 0, result.stderr
        (row,) = lines(result.stdout or output.read_text(encoding="utf-8"))
        assert (row["question"], row["response"]) == ("q \ud83d", "\udc00 ü")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl", "--calibrator", "fake:0.73"], "nowhere.jsonl cannot be read: No such"),
        (["{rows}", "--calibrator", "fake:2"], "a fake scorer is fake:P with P from 0 to 1"),
        (["{rows}", "--calibrator", "./nowhere"], "there is no checkpoint folder 'nowhere'"),
        (["{rows}", "--calibrator", "{tiny}", "--device", "gpu"], "device 'gpu' cannot be used"),
        (["{rows}", "--calibrator", "fake:0.73", "-o", "/nowhere/o"], "there is no folder /now"),
        (["{rows}", "--calibrator", "fake:0.73", "-o", "{folder}"], "Is a directory"),
        (["{rows}", "--calibrator", "fake:0.73", "-o", "."], "cannot write to .: Is a directory"),
        (["{rows}", "--brief", "-o", "{rows}"], "rows.jsonl: it is an input as well"),
        (["{rows}", "{rows}", "-o", "{rows}"], "rows.jsonl: it is an input as well"),
        (["{rows}", "-o", "{link}", "--brief"], "link.jsonl: it is an input as well"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(
    rows: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    """A wrong name gives one sentence, exit status 2 and no output."""
    places = {"rows": rows, "tiny": tmp_path / "tiny", "folder": tmp_path / "folder"}
    places["folder"].mkdir()
    places["link"] = tmp_path / "link.jsonl"
    places["link"].symlink_to(rows)
    before = rows.read_bytes()
    save_tiny(places["tiny"])
    result = run("score", *(argument.format(**places) for argument in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("pinocchio: ")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.partial"))
    assert rows.read_bytes() == before


def test_a_failure_leaves_the_old_output_alone(rows: Path, tmp_path: Path) -> None:
    """A failure leaves the old output unchanged."""
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    assert run("score", rows, "-o", output, "--calibrator", "./nowhere").exit_code == 2
    output.with_name("out.jsonl.partial").mkdir()  # makes writing fail
    assert run("score", rows, "-o", output, "--calibrator", "fake:0.73").exit_code == 2
    assert output.read_text() == "old"


def test_rows_with_images_are_scored_by_who_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A calibrator for text refuses a row with an image, or ignores the image with an option (B01).

    One that reads images gets them.
    """
    row = {"id": 1, "question": "Q", "images": [data_url(PNG)], "response": "p=0.9"}
    path = write(tmp_path / "rows.jsonl", [row, {"id": 2, "question": "Q", "response": "p=0.2"}])
    refused = run("score", path, "--brief", "--calibrator", "fake:0.73")
    assert refused.exit_code == 1
    assert "1: the question has an image; this calibrator reads text only" in refused.stderr
    assert [line["id"] for line in lines(refused.stdout)] == [2]
    ignored = run("score", path, "--brief", "--calibrator", "fake:0.73", "--ignore-images")
    first, second = lines(ignored.stdout)
    assert (ignored.exit_code, first["confidence"]) == (0, 0.73)
    assert (first["status"], first["reason"]) == ("truncated", "image")
    assert "status" not in second
    scorer = SightedScorer()
    monkeypatch.setattr("calibrator.loading.load_scorer", lambda *_, **__: scorer)
    found = lines(run("score", path, "--brief").stdout)
    assert [line["confidence"] for line in found] == [0.9, 0.2]
    assert sorted(item.images for item in scorer.seen) == [(), (PNG,)]


def test_labelled_rows_with_images_are_judged_by_who_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`evaluate` and `recalibrate` give images to a calibrator that reads them; others refuse."""
    rows = [
        {"id": n, "question": f"Q{n}", "response": f"p=0.{n % 9 + 1}", "correct": n % 2,
         "benchmark": "b", "images": [data_url(PNG)]}
        for n in range(40)
    ]  # fmt: skip
    path, output = write(tmp_path / "rows.jsonl", rows), tmp_path / "found.json"
    scorer = SightedScorer()
    with monkeypatch.context() as patch:
        patch.setattr("calibrator.loading.load_scorer", lambda *_, **__: scorer)
        assert run("evaluate", path, "--json").exit_code == 0
        assert run("recalibrate", path, "-o", output).exit_code == 0
    assert [item.images for item in scorer.seen] == [(PNG,)] * 40  # kept for the second command
    for command in (["evaluate", path], ["recalibrate", path, "-o", output]):
        blind = run(*command, "--calibrator", "fake:0.73")
        assert blind.exit_code != 0
        assert "no labelled row" in blind.stderr


# --- train --------------------------------------------------------------------------------------


def test_training_on_nothing_is_a_sentence(tmp_path: Path) -> None:
    """Training without a usable row is refused; files marked __nc do not count."""
    marked = write(tmp_path / "marked__nc.jsonl", raw_rows(20, seed=1))
    result = run("train", marked, "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert result.stderr == "pinocchio: every file is marked __nc and never trained on\n"


# --- the whole command --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        *([name, "--help"] for name in ("score", "serve")),
        *(
            pytest.param([name, "--help"], marks=pytest.mark.slow)
            for name in ("evaluate", "recalibrate", "study")
        ),
    ],
)
def test_help_is_quick(command: list[str]) -> None:
    """Help loads no heavy library such as torch or litellm."""
    code = (
        "import sys; from pinocchio.__main__ import main\n"
        f"sys.argv = ['pinocchio', *{command!r}]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "heavy = {'torch', 'transformers', 'litellm', 'sklearn', 'numpy', 'aiohttp'}\n"
        "heavy |= {'sqlalchemy', 'ray'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: pinocchio" in done.stdout


def test_training_without_its_extra_says_what_to_install(rows: Path, tmp_path: Path) -> None:
    """Without torch `pinocchio train` names the extra to install, with exit status 1."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pinocchio.__main__ import main\n"
        f"sys.argv = ['pinocchio', 'train', {str(rows)!r}, '-o', {str(tmp_path / 'run')!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    sentence = f"torch is not installed; it comes with: {install_command('train')}"
    assert (done.returncode, done.stderr) == (1, f"pinocchio: {sentence}\n")


@pytest.mark.parametrize(
    "part", [("--with", "forest"), ("--with", "inspector"), ("--without", "forest")]
)
def test_training_looks_for_what_it_needs_before_it_begins(
    rows: Path, tmp_path: Path, part: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training looks for scikit-learn before it begins, and writes nothing without it."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    result = run("train", rows, "-o", tmp_path / "run", *part)
    sentence = f"scikit-learn is not installed; it comes with: {install_command('train')}"
    assert (result.exit_code, result.stderr) == (1, f"pinocchio: {sentence}\n")
    assert not (tmp_path / "run").exists()


def test_scoring_with_a_fake_needs_no_torch(rows: Path) -> None:
    """Scoring with a fake calibrator does not load torch."""
    code = (
        "import sys; from pinocchio.__main__ import main\n"
        f"sys.argv = ['pinocchio', 'score', {str(rows)!r}, '--calibrator', 'fake:0.73']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["confidence"] for row in lines(done.stdout)] == [0.73, 0.73]
