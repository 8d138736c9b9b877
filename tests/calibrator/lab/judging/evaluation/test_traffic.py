"""Figures on real traffic: the rows, the measures, the edits of replies."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from calibrator import Item, Score
from calibrator.checkpoints.checkpoint import read_config
from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.evaluate import read_evaluation
from calibrator.lab.judging.evaluation.traffic import (
    Traffic,
    find_traffic,
    measure_traffic,
    probes_of,
    read_traffic,
    read_traffic_figures,
    replies_to_score,
)
from calibrator.lab.judging.evaluation.traffic.figures import (
    APPS,
    HAND_MADE,
    MEANS,
    SETS,
    ece_with_labels,
)
from calibrator.lab.judging.evaluation.traffic.measure import EVERY_SET, OTHER_SETS, UNSEEN_SETS
from calibrator.lab.judging.evaluation.traffic.probes import (
    APOLOGY,
    ATTACKS,
    EARLIER,
    OPENING,
    OTHER_CONTEXT,
)
from calibrator.lab.judging.evaluation.traffic.sets import TrafficSet, read_pairs
from calibrator.lab.judging.evaluation.traffic.tables import (
    TABLES,
    TITLE,
    overview_table,
    sets_table,
)
from calibrator.lab.reporting.model_card import BEGIN, END
from calibrator.lab.reporting.report import render
from calibrator.metrics.metrics import ece
from calibrator.recalibration.curves import logit, sigmoid
from calibrator.rows.rows import parse_row
from pinocchio.commands import cli
from tests.builders.tiny_checkpoint import save_tiny

Json = dict[str, Any]
CITIES = ("Arnheim", "Belfort", "Cremona", "Drammen", "Evora", "Falun")


def rows(name: str = "cities") -> list[Json]:
    """Return a right and a wrong reply to each of six questions, each with its own document."""
    return [
        {
            "id": f"{name}{at}{label}",
            "question_id": f"{name}{at}",
            "benchmark": name,
            "messages": [
                {
                    "role": "system",
                    "content": f"The bridge of {city} is {at + 2}0 metres long in all.",
                },
                {"role": "user", "content": f"How long is the bridge of {city}?"},
            ],
            "response": f"The bridge of {city} has a length of {at + (2 if label else 5)}0 metres.",
            "correct": label,
        }
        for at, city in enumerate(CITIES)
        for label in (1, 0)
    ]


def write(path: Path, lines: Sequence[Json]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


PAIRS = [
    {
        "kind": "facts",
        "question": "How high is K2?",
        "right": "8,611 m",
        "wrong": [["number", "8,116 m"], ["topic", "K2 is a hill of grass."]],
    },
    {
        "kind": "calls",
        "messages": [{"role": "user", "content": "Weather in Oslo?"}],
        "tools": [{"type": "function", "function": {"name": "weather"}}],
        "right": {"role": "assistant", "tool_calls": [{"function": {"name": "weather"}}]},
        "wrong": [["no call", "It is sunny."]],
    },
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Create a folder for `--traffic`: sets in it, handmade pairs beside it."""
    data = tmp_path / "data"
    write(data / "grounding" / "test" / "cities.jsonl.gz", rows())
    write(data / "grounding" / "test" / "rivers__nc.jsonl", rows("rivers"))
    pair = {"premise": "It rains.", "hypothesis": "It is dry.", "label": "contradict"}
    write(data / "grounding" / "test" / "pairs_weather.jsonl.gz", [pair])
    (tmp_path / "traffic").mkdir()
    (tmp_path / "traffic" / "handmade.json").write_text(json.dumps(PAIRS), encoding="utf-8")
    return data


@dataclass(frozen=True)
class Reading:
    """A scorer whose numbers are a function of the item, with the given support and basis."""

    confidence: Callable[[Item], float]
    support: Callable[[Item], float | None] = lambda _: None
    basis: tuple[str, ...] = ("likeness",)
    name: str = "made-up@1"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [self._score(item) for item in items]

    def _score(self, item: Item) -> Score:
        value = self.confidence(item)
        return Score(value, value, support=self.support(item), basis=self.basis)


def last_number_is_given(item: Item) -> float:
    """Look for the last number of the reply in the first message."""
    number = item.answer.split()[-2]
    return 0.9 if number in str(item.messages[0]["content"]).split() else 0.2


def only(name: str = "cities", licence: str = "") -> TrafficSet:
    return TrafficSet(SETS, name, [parse_row(row) for row in rows(name)], licence)


def test_a_folder_of_data_has_its_sets_and_the_pairs_beside_it(data: Path) -> None:
    """A folder's sets are in `grounding/test`, and the pairs are in it or beside it."""
    names = [path.name for path in find_traffic([data])]
    assert names == [
        *("cities.jsonl.gz", "pairs_weather.jsonl.gz", "rivers__nc.jsonl"),
        "handmade.json",
    ]
    inside = data / "traffic" / "handmade.json"
    inside.parent.mkdir()
    inside.write_text("[]", encoding="utf-8")
    assert find_traffic([data])[-1] == inside


def test_files_and_plain_folders_can_be_named(data: Path) -> None:
    """Files and other folders can be named, and each file counts once."""
    folder = data / "grounding" / "test"
    file = folder / "cities.jsonl.gz"
    assert find_traffic([file, folder]) == [file, *sorted(folder.iterdir())[1:]]
    assert find_traffic([data.parent / "traffic"]) == [data.parent / "traffic" / "handmade.json"]


def test_a_folder_without_traffic_is_refused(tmp_path: Path) -> None:
    """A folder without traffic is refused with what it needs."""
    with pytest.raises(JudgingError, match=r"has no traffic: it needs grounding/test/\*\.jsonl"):
        find_traffic([tmp_path])


def test_sets_are_read_with_why_training_may_not_see_them(data: Path) -> None:
    """Sets are read with the reason why training may not see them; entailment pairs are skipped."""
    sets, errors = read_traffic(find_traffic([data]))
    assert errors == []
    assert [(one.group, one.name, len(one.rows), one.licence) for one in sets] == [
        (APPS, "app replies", 600, ""),
        (SETS, "cities", 12, ""),
        (SETS, "rivers", 12, "nc"),
        (HAND_MADE, "handmade", 5, ""),
    ]


def test_large_sets_are_thinned_by_whole_questions(data: Path) -> None:
    """Large sets are thinned by whole questions, always the same ones."""
    paths = find_traffic([data])[:1]
    [_, some], _ = read_traffic(paths, most=5)
    [_, again], _ = read_traffic(paths, most=5)
    questions = [row.question_id for row in some.rows]
    assert len(questions) == 4
    assert all(questions.count(name) == 2 for name in questions)
    assert [row.id for row in some.rows] == [row.id for row in again.rows]


def test_bad_rows_are_reported_and_others_read(tmp_path: Path) -> None:
    """A bad row is reported with its line, and a row without a label is skipped."""
    broken: list[Json] = [
        {"question": "Q", "correct": 1},
        {"question": "Q", "response": "A"},
        *rows(),
    ]
    [_, found], errors = read_traffic([write(tmp_path / "broken.jsonl", broken)])
    assert (len(found.rows), [error.line for error in errors]) == (12, [1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON"),
        ("[]", "must be a list of at least one"),
        ('{"kind": "facts"}', "must be a list of at least one"),
        ('[{"kind": "facts", "question": "Q", "right": "A"}]', "item 0 is no hand-made pair: KeyE"),
        ('[{"kind": "facts", "question": "Q", "right": 1, "wrong": []}]', "item 0 is no hand-made"),
    ],
)
def test_other_files_of_pairs_are_refused(tmp_path: Path, text: str, message: str) -> None:
    """Another file of pairs is refused with the place of the mistake."""
    path = tmp_path / "pairs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(JudgingError, match=message):
        read_pairs(path)


def test_hand_made_replies_that_call_tools_are_read(data: Path) -> None:
    """Handmade pairs are read with their tools and calls."""
    found = read_pairs(data.parent / "traffic" / "handmade.json")
    assert [(row.benchmark, row.question_id, row.correct) for row in found] == [
        *[("facts", "handmade-0", label) for label in (1, 0, 0)],
        *[("calls", "handmade-1", label) for label in (1, 0)],
    ]
    assert found[0].messages == ()
    assert [row.tool_use is not None and row.tool_use.has_calls for row in found[3:]] == [1, 0]


def test_a_scorer_without_the_context_is_at_chance() -> None:
    """A scorer that reads the context has perfect figures, a blind one is at chance."""
    reader = Reading(last_number_is_given, lambda item: last_number_is_given(item), ("context",))
    figures = measure_traffic(reader, [only()], []).figures[0]
    assert (figures.rows, figures.questions, figures.accuracy) == (12, 6, 0.5)
    assert (figures.auroc, figures.in_order, figures.support_auroc) == (1, 1, 1)
    assert [figures.right, figures.wrong] == pytest.approx([0.9, 0.2])
    assert (figures.right_even, figures.wrong_sure) == (1, 0)
    assert (figures.context, figures.computed, figures.likeness) == (12, 0, 0)
    assert (figures.supported, figures.words, figures.words_in_order) == (12, 1, 1)
    blind = measure_traffic(Reading(lambda _: 0.85), [only()], []).figures[0]
    assert (blind.auroc, blind.in_order, blind.wrong_sure, blind.likeness) == (0.5, 0.5, 1, 12)
    assert math.isnan(blind.support_auroc)
    assert blind.ece == pytest.approx(0.35)


def test_tiny_sets_have_no_part_in_the_means() -> None:
    """A set of fewer than ten rows has its line, but does not count in the means."""
    tiny = replace(only("tiny"), rows=only("tiny").rows[:9])
    traffic = measure_traffic(Reading(lambda _: 0.5), [only(), tiny], [])
    assert [(one.kind, one.sets) for one in traffic.of_group(MEANS)] == [
        (EVERY_SET, 1),
        (OTHER_SETS, 1),
    ]
    assert len(traffic.of_group(SETS)) == 2


def test_unseen_sets_have_a_mean_of_their_own() -> None:
    """Unseen sets, by licence or by the checkpoint, have their own mean."""
    sets = [only(), only("rivers", "nc"), only("lakes")]
    traffic = measure_traffic(Reading(lambda _: 0.5), sets, [], left_out=["lakes"])
    means = {one.kind: (one.sets, one.rows) for one in traffic.of_group(MEANS)}
    assert means == {EVERY_SET: (3, 36), UNSEEN_SETS: (2, 24), OTHER_SETS: (1, 12)}
    names = [row[0] for row in sets_table(traffic)[1]]
    assert names == ["cities", "rivers (nc)", "lakes (left out)"]


def test_pairs_have_a_line_for_each_kind_and_one_for_all(data: Path) -> None:
    """Pairs have a line for each app or kind, and one for all."""
    sets, _ = read_traffic([data.parent / "traffic" / "handmade.json"])
    traffic = measure_traffic(Reading(lambda _: 0.5), sets, [])
    assert [(one.kind, one.rows) for one in traffic.of_group(APPS)] == [
        *[
            (app + part, 40)
            for part in ("", ", second set", ", third set")
            for app in ("support", "rag", "json", "code", "chat")
        ],
        ("all kinds", 600),
    ]
    assert [(one.kind, one.rows) for one in traffic.of_group(HAND_MADE)] == [
        *(("facts", 3), ("calls", 2)),
        ("all kinds", 5),
    ]


def test_another_context_changes_what_a_reader_says() -> None:
    """Another question's system message changes what a reader says, not a blind scorer."""
    sets = [only()]
    probes = [probe for probe in probes_of(sets) if probe.edit == OTHER_CONTEXT]
    assert len(probes) == 12
    for probe in probes:
        assert probe.after.messages[0] != probe.before.messages[0]
        assert probe.after.messages[1:] == probe.before.messages[1:]
        assert probe.after.question == probe.before.question
        assert probe.after.answer == probe.before.answer
    read = measure_traffic(Reading(last_number_is_given), sets, probes).changes
    assert [(one.edit, one.of, one.replies) for one in read] == [(OTHER_CONTEXT, SETS, 12)]
    assert read[0].changed >= 0.5
    [blind] = measure_traffic(Reading(lambda item: len(item.answer) / 99), sets, probes).changes
    assert (blind.mean, blind.absolute, blind.changed) == (0, 0, 0)


def test_right_replies_get_openings_and_wrong_ones_are_attacked() -> None:
    """Right replies get openings and wrong ones attacks, without losing a word."""
    probes = [probe for probe in probes_of([only()]) if probe.edit != OTHER_CONTEXT]
    wrong = {row["response"] for row in rows() if not row["correct"]}
    assert {probe.edit for probe in probes} == {OPENING, APOLOGY, *ATTACKS}
    for probe in probes:
        assert (probe.before.answer in wrong) == (probe.edit in ATTACKS)
        if probe.edit == EARLIER:
            assert probe.after.answer == probe.before.answer
            assert probe.after.messages[2] == {"role": "assistant", "content": probe.before.answer}
        else:
            assert probe.before.answer in probe.after.answer
            assert probe.after.answer != probe.before.answer
            assert probe.after.messages is probe.before.messages


def test_data_and_code_are_not_edited() -> None:
    """JSON, code and other languages are not edited."""
    replies = ('{"length": "twenty metres of bridge"}', "```sh\nls -l /the/bridge/of/arnheim\n```")
    texts = (*replies, "Die Brücke von Arnheim hat eine Länge von zwanzig Metern.", "Yes.")
    for text in texts:
        [row] = [parse_row({**rows()[0], "response": text})]
        probes = probes_of([TrafficSet(SETS, "odd", [row])])
        assert [probe.edit for probe in probes] == []


def test_our_own_replies_get_every_wording() -> None:
    """Each of our own right replies in prose gets all openings and apologies."""
    sets, _ = read_traffic([])
    probes = probes_of(sets)
    counts = {edit: sum(probe.edit == edit for probe in probes) for edit in (OPENING, APOLOGY)}
    assert counts[OPENING] == counts[APOLOGY] >= 400
    total = len({id(item) for probe in probes for item in (probe.before, probe.after)})
    assert replies_to_score(sets, probes) == 600 + total


def test_changes_have_their_sign_size_and_tail() -> None:
    """A change has its mean, absolute size and tail."""
    sets = [only()]
    easily = Reading(lambda item: 0.5 + 0.25 * ("according" in item.answer.lower()))
    changes = measure_traffic(easily, sets, probes_of(sets)).changes
    moved = [one for one in changes if one.absolute]
    assert [one.edit for one in moved] == ["says it is according to the document"]
    assert 0 < moved[0].mean == moved[0].absolute <= moved[0].high == 0.25
    assert moved[0].changed == pytest.approx(moved[0].mean / 0.25)


def measured(data: Path) -> Traffic:
    sets, _ = read_traffic(find_traffic([data]))
    return measure_traffic(Reading(lambda item: 0.5), sets, probes_of(sets), ["cities"])


def test_what_is_written_is_read_again(data: Path) -> None:
    """All figures survive JSON, also missing ones."""
    traffic = measured(data)
    again = read_traffic_figures(asdict(traffic))
    assert repr(again) == repr(traffic)
    lines = [json.loads(json.dumps(line, allow_nan=False)) for line in traffic.lines()]
    assert {line["kind"] for line in lines} == {"traffic", "traffic change"}
    one = next(line for line in lines if line.get("traffic") == "cities")
    assert (one["group"], one["is_left_out"], one["support_auroc"]) == ("sets", True, None)


def test_tables_have_a_cell_for_every_column(data: Path) -> None:
    """Each table has a cell for every column, and a dash for a missing figure."""
    traffic = measured(data)
    for table in TABLES:
        head, lines = table(traffic)
        assert lines
        assert {len(line) for line in lines} == {len(head)}
        assert "nan" not in str(lines)
        empty = table(replace(traffic, figures=traffic.figures[:1], changes=[]))
        assert {len(line) for line in empty[1]} <= {len(empty[0])}
    last = overview_table(traffic)[1][-1]
    assert last[0] == "always saying 0.5"
    assert last[3:6] == ["0.50", "0.50", "0.00"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_the_command_measures_traffic_alone(data: Path, tmp_path: Path) -> None:
    """The command measures traffic alone, prints it, writes it and shows it on the page."""
    output, report = tmp_path / "all.json", tmp_path / "page.html"
    options = ("--traffic", data, "--calibrator", "fake:0.7", "-o", output, "--report", report)
    result = run("evaluate", *options)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "fake:0.7, real traffic"
    assert lines[2].split()[:5] == ["app:", "support", "40", "0.50", "0.50"]
    assert any(line.startswith("rivers (nc)") for line in lines)
    traffic = read_evaluation(output).traffic
    assert traffic is not None
    assert [one.kind for one in traffic.of_group(SETS)] == ["cities", "rivers"]
    page = report.read_text(encoding="utf-8")
    assert page.index(TITLE) < page.index("<table>") < page.index("app: support")
    assert "0 labelled replies" not in page


def test_the_command_measures_traffic_beside_labelled_rows(data: Path, tmp_path: Path) -> None:
    """With labelled rows the figures of traffic come first in output, page and card."""
    rows_file = write(tmp_path / "rows.jsonl", rows("lakes"))
    output, card = tmp_path / "all.json", tmp_path / "README.md"
    options = ("--traffic", data / "grounding", "--calibrator", "fake:0.7", "-o", output)
    files = data / "grounding" / "test" / "cities.jsonl.gz"
    result = run("evaluate", rows_file, "--traffic", files, *options[2:])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.index("real traffic") < result.stdout.index("pooled")
    card.write_text(f"# A card\n{BEGIN}\n{END}\n", encoding="utf-8")
    assert run("evaluate", output, "--card", card).exit_code == 0
    tables = [part for part in card.read_text(encoding="utf-8").split("\n\n") if part[0] == "|"]
    assert tables[0].startswith("| kind of traffic | rows | right | AUROC | in order | ECE |")
    assert "| app: support | 40 | 0.50 |" in tables[0]
    text = render(read_evaluation(output))
    assert text.index(TITLE) < text.index("<table>")
    plain = render(replace(read_evaluation(output), traffic=None))
    assert TITLE not in plain


def test_the_command_prints_json_lines(data: Path) -> None:
    """--json prints an object for each kind and each edit."""
    result = run("evaluate", "--traffic", data, "--calibrator", "fake:0.7", "--json")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    assert {line["kind"] for line in lines} == {"traffic", "traffic change"}
    [support] = [line for line in lines if line.get("traffic") == "support"]
    assert (support["method"], support["rows"], support["right_even"]) == ("fake:0.7", 40, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give files with labelled rows, --traffic with a folder, or both"),
        (("--traffic", "DATA", "--sensitivity"), "--sensitivity needs files with labelled rows"),
        (("--traffic", "DATA", "--train", "x.jsonl"), "--train needs files with labelled rows"),
        (("--traffic", "nowhere"), "nowhere"),
    ],
)
def test_an_impossible_request_is_refused(
    data: Path, arguments: tuple[str, ...], message: str
) -> None:
    """An impossible request is refused in one sentence before any scoring."""
    result = run("evaluate", *(str(data) if one == "DATA" else one for one in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_scores_of_a_file_are_refused(data: Path, tmp_path: Path) -> None:
    """Traffic needs a calibrator; scores of a file are refused."""
    rows_file = write(tmp_path / "rows.jsonl", rows("lakes"))
    scores = tmp_path / "scores.jsonl"
    run("score", rows_file, "-o", scores, "--brief", "--calibrator", "fake:0.7")
    result = run("evaluate", rows_file, "--scores", scores, "--traffic", data)
    assert result.exit_code == 2
    assert "--traffic needs a calibrator to score replies" in result.stderr


def test_sets_that_a_checkpoint_names_are_left_out(data: Path, tmp_path: Path) -> None:
    """Sets in `left_out` of calibrator.json are marked."""
    folder = save_tiny(tmp_path / "tiny")
    path = folder / "calibrator.json"
    assert read_config(folder).left_out == ()  # type: ignore[union-attr]
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**values, "left_out": ["cities"]}), encoding="utf-8")
    result = run("evaluate", "--traffic", data, "--calibrator", folder, "--json")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    marks = {one["traffic"]: one["is_left_out"] for one in lines if one.get("group") == "sets"
             and one["kind"] == "traffic"}  # fmt: skip
    assert marks == {"cities": True, "rivers": False}


def test_labels_of_a_set_bring_its_level_down() -> None:
    """A hundred labels of a set correct confidences that are too low by the same log-odds."""
    draw = np.random.default_rng(3)
    chance = draw.uniform(0.2, 0.95, 600)
    labels = (draw.uniform(size=600) < chance).astype(np.int64)
    confidences = sigmoid(logit(chance) - 1.5)
    questions = [f"question {at // 2}" for at in range(600)]
    assert ece(labels, confidences) > 0.25
    assert ece_with_labels(labels, confidences, questions) < 0.12
    assert math.isnan(ece_with_labels(labels[:150], confidences[:150], questions[:150]))
