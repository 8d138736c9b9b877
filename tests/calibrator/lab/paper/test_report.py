"""`pinocchio study ROWS --out report/`: every table, beside the paper's numbers, resumable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from scipy.stats import linregress
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from calibrator import Item, Progress, Score
from calibrator.errors import JudgingError, OutputError
from calibrator.lab.commands.studies.report import files_in
from calibrator.lab.judging.baselines.samples import ReplySamples
from calibrator.lab.paper.catalogue import CATALOGUE, Entry
from calibrator.lab.paper.run import ReportRequest, make_report, paper_lines
from calibrator.lab.paper.sections.scored import Extent, ScoredRows
from calibrator.lab.paper.sections.tables import ReportTable, columns_of
from calibrator.lab.studies.probes import sample
from calibrator.rows.rows import Row, labels_of, parse_row
from pinocchio.commands import cli
from tests.builders.labelled_rows import labelled, raw_rows, write

QUICK = Extent(resamples=50, permutations=50, probed=120, swapped=300)
COMMAND = "pinocchio study rows --out report"


class WordScorer:
    """A scorer that prefers long replies with `certainly`, and stops after `most` batches."""

    name = "words@1"

    def __init__(self, most: int = 10**9) -> None:
        self.left = most

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        found = []
        for item in items:
            p = 0.2 + 0.45 * ("certainly" in item.answer) + min(len(item.answer), 150) / 500
            p -= 0.02 * (item.source_model is None) + 0.03 * (not item.question)
            found.append(Score(p, p))
        return found


@contextmanager
def silent(title: str, total: int) -> Iterator[Progress]:
    yield Progress(title, total, is_terminal=False)


def scored(rows: Sequence[Row], most: int = 10**9, train: Sequence[Row] = ()) -> ScoredRows:
    return ScoredRows(
        rows, WordScorer(most), silent, lambda: train, QUICK, frozenset({"gpt-small"})
    )


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return labelled(600, seed=2)


@pytest.fixture(scope="module")
def report(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a whole report, with the tables that train."""
    folder = tmp_path_factory.mktemp("report") / "whole"
    made = make_report(
        scored(rows, train=labelled(300, seed=1)), folder, ReportRequest(COMMAND, is_retrained=True)
    )
    assert {one.id for one in made} == {one.id for one in CATALOGUE}
    return folder


def table(report: Path, name: str) -> dict[str, dict[str, float]]:
    """Return our lines of a table, by label."""
    found = json.loads((report / "tables" / f"{name}.json").read_text())
    assert found["state"] == "made", found["note"]
    return {one["label"]: one["values"] for one in found["lines"] if not one["is_paper"]}


def test_every_table_of_the_catalogue_is_made(report: Path) -> None:
    """Every table is made, except those that need samples, judges or seven models."""
    states = {}
    for entry in CATALOGUE:
        found = json.loads((report / "tables" / f"{entry.id}.json").read_text())
        states[entry.id] = found["state"]
        assert found["command"].startswith(f"{COMMAND} --only {entry.id}")
        assert found["rows"]
    assert [name for name, state in states.items() if state != "made"] == [
        *("asked", "growing-sources"),
    ]


def test_each_line_names_its_row_of_the_checklist(report: Path) -> None:
    """Each line names its row of the checklist, except the baselines of names only."""
    for path in (report / "tables").glob("*.json"):
        for line in json.loads(path.read_text())["lines"]:
            is_ours = line["label"].startswith("names only")
            assert is_ours or re.fullmatch(r"[A-Z]\d\d", line["row"]), (path.name, line)


def test_the_main_table_is_judged_on_the_other_half(report: Path, rows: list[Row]) -> None:
    """The main table is judged on the half that no baseline was fitted on, as in scikit-learn.

    Rows J04, J09 and D09.
    """
    of = scored(rows)
    fitted, judged = of.halves
    y = labels_of(rows)
    assert not {rows[i].question_id for i in fitted} & {rows[i].question_id for i in judged}
    found = table(report, "main")
    expected = roc_auc_score(y[judged], of.confidence()[judged])
    assert found["the calibrator"]["auroc"] == pytest.approx(expected, abs=1e-6)
    tokens = np.log1p([[len(re.findall(r"\w+|[^\w\s]", row.answer))] for row in rows])
    length = LogisticRegression(max_iter=1_000).fit(tokens[fitted], y[fitted])
    p = length.predict_proba(tokens[judged])[:, 1]
    assert found["length"]["auroc"] == pytest.approx(roc_auc_score(y[judged], p), abs=1e-6)
    assert found["length"]["brier"] == pytest.approx(np.mean((p - y[judged]) ** 2), abs=1e-6)


def test_stated_confidences_are_scikit_learns(report: Path, rows: list[Row]) -> None:
    """Stated confidences are scikit-learn's: raw, Platt and isotonic (I01, I02, I03)."""
    stated = scored(rows).stated_rows
    fitted, judged = stated.halves
    y = labels_of(stated.rows)
    x = np.array([[row.verbalized_confidence or 0.0] for row in stated.rows])
    platt = LogisticRegression(max_iter=1_000).fit(x[fitted], y[fitted]).predict_proba(x[judged])
    rising = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")
    steps = rising.fit(x[fitted, 0], y[fitted]).predict(x[judged, 0])
    found = table(report, "stated")
    for name, p in (("raw", x[judged, 0]), ("Platt", platt[:, 1]), ("isotonic", steps)):
        line = found[f"stated confidence, {name}"]
        assert line["auroc"] == pytest.approx(roc_auc_score(y[judged], p), abs=1e-6)
        assert line["brier"] == pytest.approx(np.mean((p - y[judged]) ** 2), abs=1e-6)


def test_the_papers_numbers_stand_marked_beside_ours(report: Path) -> None:
    """The paper's numbers are marked as its own, and suspect ones too (2-V)."""
    page = (report / "index.html").read_text()
    assert "the paper: Pinocchio" in page
    assert "V29: 1,006 rows where its test set has 478" in page
    markdown = (report / "report.md").read_text()
    [line] = [each for each in markdown.splitlines() if "the paper: healthcare, cost" in each]
    assert line.split(" | ")[-1].strip(" |") == "V31"
    assert "11,654" in line


def test_every_number_of_the_paper_has_a_column(report: Path) -> None:
    """Every number of the paper has a column in one of our tables."""
    text = files("calibrator.lab.paper").joinpath("numbers.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["tables"].keys() <= {one.id for one in CATALOGUE}
    for entry in CATALOGUE:
        found = json.loads((report / "tables" / f"{entry.id}.json").read_text())
        keys = {each["key"] for each in found["columns"]}
        for line in paper_lines(entry.id):
            assert set(line.values) <= keys, (entry.id, line.label)


def test_rows_are_scored_with_and_without_names(report: Path, rows: list[Row]) -> None:
    """The same rows are scored with and without names (B11, K10)."""
    found = table(report, "probes")
    assert found["names: none"]["shift"] == pytest.approx(-0.02, abs=1e-9)
    assert found["names: model and benchmark"]["shift"] == 0.0
    assert found["question: empty"]["shift"] == pytest.approx(-0.03, abs=1e-9)
    chosen = sample(rows, QUICK.probed)
    p = [WordScorer().score_batch([row.item("none")])[0].score for row in chosen]
    expected = roc_auc_score(labels_of(chosen), p)
    assert found["names: none"]["auroc"] == pytest.approx(expected, abs=1e-6)


def test_recalibration_is_plain_and_with_a_prior(report: Path) -> None:
    """Recalibration is shown with and without a prior, and only isotonic changes the ranking.

    Rows N02 to N04.
    """
    found = table(report, "recalibrated-models")
    assert found["pooled"]["ece_plain"] != found["pooled"]["ece_platt"]
    assert {"ece", "ece_isotonic", "auroc_isotonic"} <= set(found["mean over 3"])
    curves = table(report, "temperature")
    for name in ("temperature", "Platt"):
        assert curves[name]["auroc"] == pytest.approx(curves["as it is"]["auroc"], abs=1e-12)


def test_a_stated_confidence_can_stand_beside(report: Path, rows: list[Row]) -> None:
    """With the stated confidence as a second feature the fit is scikit-learn's (N06)."""
    stated = scored(rows).stated_rows
    fitted, judged = stated.halves
    p = stated.confidence()
    stated_values = [row.verbalized_confidence or 0.0 for row in stated.rows]
    features = np.stack([np.log(p / (1 - p)), stated_values], axis=1)
    model = LogisticRegression(C=1e12, max_iter=5_000, tol=1e-10)
    model.fit(features[fitted], stated.labels[fitted])
    expected = model.predict_proba(features[judged])[:, 1]
    line = table(report, "stated-beside")["Platt with the stated confidence"]
    assert line["brier"] == pytest.approx(
        np.mean((expected - stated.labels[judged]) ** 2), abs=1e-6
    )


def test_reviews_are_counted_by_both_definitions(report: Path) -> None:
    """Reviews are counted by both definitions: of all replies, and of those delivered (O04)."""
    line = table(report, "workflows")["all"]
    assert line["saved"] == pytest.approx(line["random"] - line["system"])
    assert line["saved_delivered"] == pytest.approx(1 - line["delivered"])
    assert line["delivered"] > line["system"]


def test_times_of_tables_are_kept(report: Path) -> None:
    """The seconds of each table are in times.json, not in the report (T02, T03)."""
    times = json.loads((report / "times.json").read_text())
    assert set(times) == {one.id for one in CATALOGUE}
    assert all(seconds >= 0 for seconds in times.values())


def test_asked_baselines_are_in_a_table(tmp_path: Path) -> None:
    """Baselines from samples, judges and log-probabilities are in a table.

    Rows M01, M02, M07, T04 and J06.
    """
    rng = np.random.default_rng(0)
    raws = []
    for raw in raw_rows(160, seed=4):
        right, logprobs = raw["correct"], (-rng.random(6)).tolist()
        texts = ["yes" if rng.random() < 0.3 + 0.5 * right else f"n{n}" for n in range(6)]
        judged = {"judged": 0.3 + 0.4 * right, "judge": "j"}
        tops = [[value] for value in logprobs]
        raws.append(
            raw | judged | {"samples": texts, "token_logprobs": logprobs, "top_logprobs": tops}
        )
    rows = [parse_row(raw) for raw in raws]
    make_report(scored(rows), tmp_path / "r", ReportRequest(COMMAND, ["asked"]))
    found = table(tmp_path / "r", "asked")
    y = labels_of(rows)
    assert (found["judge j"]["auroc"], found["judge j"]["calls"]) == (1.0, 1)
    entropies = [ReplySamples(row.answer, raw["samples"]).semantic_entropy()
                 for row, raw in zip(rows, raws, strict=True)]  # fmt: skip
    line = found["semantic entropy, 6 samples"]
    assert line["auroc"] == pytest.approx(roc_auc_score(y, entropies), abs=1e-6)
    assert found["semantic entropy, 5 samples"]["calls"] == 5
    lowest = [min(raw["token_logprobs"]) for raw in raws]
    assert found["lowest log-probability"]["auroc"] == pytest.approx(roc_auc_score(y, lowest))
    assert found["token entropy"]["rows"] == 160


def test_drawings_are_whole_svg_files(report: Path) -> None:
    """The figures U01 to U07 are whole SVG files, and the page has no script."""
    drawn = sorted((report / "figures").glob("*.svg"))
    assert {path.name[:3] for path in drawn} == {f"U0{n}" for n in range(1, 8)}
    for path in drawn:
        assert ElementTree.fromstring(path.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert "<script" not in (report / "index.html").read_text()


def test_curves_of_several_methods_have_a_legend(report: Path) -> None:
    """A figure with several curves names each colour in its legend."""
    [page] = report.glob("*.html")
    figures = re.findall(r"<figure>.*?</figure>", page.read_text(), re.DOTALL)
    curves = [each for each in figures if "ROC curves:" in each]
    assert curves
    for figure in curves:
        legend = figure.partition('<ul class="legend">')[2].partition("</ul>")[0]
        drawn = set(re.findall(r'class="curve (s\d)"', figure.partition("<ul")[0]))
        assert legend.count("<li>") >= len(drawn) > 1


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: str(entry.id))
def test_a_table_without_rows_of_ours_is_as_readable(entry: Entry) -> None:
    """Columns of a table with the paper's lines only have titles, and counts are whole numbers."""
    lines = paper_lines(entry.id)
    for column in columns_of(lines):
        assert column.title not in {"auroc", "ece", "brier", "auprc", "f1", "low", "high"}
        assert "_" not in column.title
        for value in (line.values[column.key] for line in lines if column.key in line.values):
            assert not re.fullmatch(r"[\d,]{3,}\.000", column.text(value))


def test_workflows_have_the_mean_over_models_too(report: Path) -> None:
    """The workflow table has the mean over models, beside the pooled figures."""
    found = table(report, "workflows")
    models = [name for name in found if name != "all" and not name.startswith("mean over")]
    mean = found[f"mean over {len(models)} models"]
    assert len(models) > 1
    for key in ("auprc", "f1", "green"):
        assert mean[key] == pytest.approx(np.mean([found[name][key] for name in models]))
    assert mean["rows"] == sum(found[name]["rows"] for name in models)


@pytest.mark.parametrize(("batches", "left"), [(0, 4), (20, 3), (70, 2)])
def test_an_interrupted_report_goes_on_to_the_same_files(
    rows: list[Row], tmp_path: Path, batches: int, left: int
) -> None:
    """An interrupted report continues to the same files, except for the times."""
    some = ReportRequest(COMMAND, ["main", "probes", "swap", "failures"])
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    with pytest.raises(KeyboardInterrupt):
        make_report(scored(rows[:400], batches), broken, some)
    made: list[str] = []
    make_report(scored(rows[:400]), broken, some, made.append)
    make_report(scored(rows[:400]), whole, some)
    assert len(made) == left
    names = sorted(str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file())
    for name in names:
        if name != "times.json":
            assert (broken / name).read_bytes() == (whole / name).read_bytes(), name


def test_other_rows_make_every_table_again(rows: list[Row], tmp_path: Path) -> None:
    """Other rows make every table again, and a folder with other files is refused."""
    request, lines = ReportRequest(COMMAND, ["failures"]), list[str]()
    make_report(scored(rows[:200]), tmp_path / "r", request)
    [first] = [one for one in make_report(scored(rows[:200]), tmp_path / "r", request, lines.append)
               if one.id == "failures"]  # fmt: skip
    assert lines == []
    again = make_report(scored(rows[:300]), tmp_path / "r", request, lines.append)
    assert "made anew" in lines[0]
    assert _rows(again) == 300 != first.lines[-2].values["rows"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="it holds something else"):
        make_report(scored(rows[:200]), other, request)


def _rows(tables: list[ReportTable]) -> object:
    [one] = [each for each in tables if each.id == "failures"]
    return next(line.values["rows"] for line in one.lines if line.label == "all")


def test_the_line_over_sizes_is_that_of_its_points(
    rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note on sizes has the slope and the fit of the line through its points (K08)."""
    monkeypatch.setattr("calibrator.lab.studies.studies.SIZES", (60, 150))
    request = ReportRequest(COMMAND, only=["size"], is_retrained=True)
    tables = make_report(scored(rows[:300], train=labelled(300, seed=1)), tmp_path / "r", request)
    [made] = [each for each in tables if each.id == "size"]
    own = [one.values for one in made.lines if not one.is_paper]
    assert [each["trained"] for each in own] == [60, 150, 300]
    sizes, auroc = ([float(each[key] or 0) for each in own] for key in ("trained", "auroc"))
    line = linregress(np.log10(sizes), auroc)
    fitted_line = re.search(r"rows: (\S+) a factor of ten, R2 (\S+)\.$", made.note)
    assert fitted_line is not None, made.note
    assert [*map(float, fitted_line.groups())] == pytest.approx(
        [line.slope, line.rvalue**2], abs=6e-3
    )


def test_what_cannot_be_made_says_why(tmp_path: Path) -> None:
    """A table that cannot be made says why."""
    raws = [{**raw, "verbalized_confidence": None} for raw in raw_rows(200, seed=3)]
    rows = [row for row in labelled(200, seed=3) if row.verbalized_confidence is None]
    assert len(raws) > len(rows) > 0
    made = {
        one.id: one for one in make_report(scored(rows), tmp_path / "r", ReportRequest(COMMAND))
    }
    assert "state a confidence" in made["stated"].note
    assert made["size"].state == "training"
    assert "--retrain" in (tmp_path / "r" / "index.html").read_text()


def test_an_unknown_table_is_refused(rows: list[Row], tmp_path: Path) -> None:
    """An unknown table is refused with the known names."""
    with pytest.raises(JudgingError, match="no table is called 'mian'; there are main, stated"):
        make_report(scored(rows), tmp_path / "r", ReportRequest(COMMAND, ["mian"]))
    assert not (tmp_path / "r").exists()


def test_the_command_makes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command makes a report of a folder with `test/` and prints how to make the rest."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(tmp_path / "kept"))
    data = tmp_path / "data"
    write(data / "test" / "rows.jsonl", raw_rows(200, seed=2))
    assert list(files_in([data])) == [data / "test" / "rows.jsonl"]
    out = tmp_path / "report"
    arguments = ["study", str(data), "--out", str(out), "--quick", "--calibrator", "fake:0.6"]
    done = CliRunner().invoke(cli, [*arguments, "--only", "failures", "--only", "tiers"])
    assert done.exit_code == 0, done.stderr
    assert "2 of 29 tables" in done.stdout
    assert "with --retrain also: Replies of more and more models" in done.stdout
    words = json.loads((out / "tables" / "tiers.json").read_text())["command"]
    assert words == f"pinocchio study {data} --out {out} --calibrator fake:0.6 --only tiers"
    assert "Made with --quick" in (out / "report.md").read_text()
    again = CliRunner().invoke(cli, ["study", str(data / "nowhere"), "--out", str(out)])
    assert (again.exit_code, "No such file" in again.stderr) == (2, True)
