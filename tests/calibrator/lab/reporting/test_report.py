"""The HTML page and the model card: complete, safe, with the measured figures."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from playwright.sync_api import Browser

from calibrator import FakeScorer
from calibrator.errors import JudgingError
from calibrator.lab.judging.evaluation.evaluate import Evaluation, judge
from calibrator.lab.reporting.figures import (
    ForestRow,
    forest,
    reliability_diagram,
    roc_curves,
    separation,
    size_curve,
)
from calibrator.lab.reporting.model_card import BEGIN, BEGIN_OF, END, figures_of, update_card
from calibrator.lab.reporting.report import names_conclusion, render
from calibrator.lab.studies.probes import probe
from calibrator.lab.studies.studies import Study, StudyEntry
from calibrator.metrics.intervals import Interval
from calibrator.metrics.metrics import reliability
from calibrator.metrics.numbers import NO_FIGURE, chance_text, figure, p_text
from calibrator.rows.results import Method
from calibrator.rows.rows import Row, parse_row
from tests.builders.labelled_rows import labelled, noisy

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m\u202e|"


def evaluated(rows: list[Row], name: str = "mine@1234") -> Evaluation:
    return judge(
        rows,
        [
            Method(name, noisy(rows, 1), "served"),
            Method("TF-IDF", noisy(rows, 2, 0.1), "served", True),
            Method("length", noisy(rows, 3, 0.05), None, True),
        ],
        resamples=100,
        permutations=50,
    )


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    return evaluated(labelled(400, seed=1))


SIZE = Study(
    "size",
    "TF-IDF",
    [
        StudyEntry(f"{n} rows", n, 400, 0.5, a, a - 0.02, a + 0.02, a, 0.1)
        for n, a in [(500, 0.6), (1_000, 0.65), (5_000, 0.7)]
    ],
)


class Page(HTMLParser):
    """A parser of a page that checks that each tag is closed, and collects the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def test_the_page_is_self_contained(evaluation: Evaluation) -> None:
    """The page has no script, link or image, and light and dark colours in one style sheet."""
    text = render(evaluation, [SIZE])
    tags = {tag for tag, _ in Page(text).seen}
    assert not tags & {"script", "link", "img", "iframe", "object"}
    assert "http" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"\bon\w+=", text)


def test_the_page_has_every_figure(evaluation: Evaluation) -> None:
    """The page has all figures (U02-U04, U06, U07)."""
    page = Page(render(evaluation, [SIZE]))
    drawn = [attrs["aria-label"] for tag, attrs in page.seen if attrs.get("role") == "img"]
    assert drawn == [
        "all rows pooled, mean over benchmarks, within questions",
        "Reliability diagram of mine@1234",
        "Confidence of right and wrong replies, mine@1234",
        "Risk against coverage",
        "ROC curves",
        "AUROC",
        "AUROC of TF-IDF by training rows",
    ]


NAMES = "names only: model and benchmark"


def with_names(signal: float) -> Evaluation:
    """Evaluate a calibrator beside a table of names that knows `signal` of the labels."""
    rows = labelled(1_200, seed=1)
    methods = [
        Method("mine@1234+platt@5678abcd", noisy(rows, 1, 0.3), "served"),
        Method(NAMES, noisy(rows, 2, signal), None, True),
        Method("stated confidence and length", noisy(rows, 3, 0.05), None, True),
    ]
    return judge(rows, methods, resamples=200, permutations=50)


def test_a_table_of_names_beside_the_calibrator_has_its_conclusion() -> None:
    """The conclusion states in numbers how much of the ranking comes from the names."""
    some, same = names_conclusion(with_names(0.15)), names_conclusion(with_names(0.3))
    assert f'"{NAMES}", which never looks at a reply, has 0.' in some
    assert re.search(r"\d+ % of what the calibrator has over chance \(0\.\d{3}\)", some)
    assert re.search(
        r"Its lead from looking at the replies is 0\.\d{3} \(0\.\d{3} to 0\.\d{3}\)\.", some
    )
    assert same.endswith("is not clearly better.")
    assert some.strip() in Page(render(with_names(0.15))).text
    assert names_conclusion(evaluated(labelled(400, seed=1))) == ""


@pytest.mark.parametrize("width", [1_280, 1_440])
def test_no_table_is_cut_off(browser: Browser, tmp_path: Path, width: int) -> None:
    """No table of the page is cut off on an ordinary screen."""
    page_file = tmp_path / "report.html"
    page_file.write_text(render(with_names(0.15)), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(page_file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    cut = page.evaluate(
        "[...document.querySelectorAll('.wide')].filter((e) => e.scrollWidth > e.clientWidth)"
        ".map((e) => `${e.scrollWidth} of ${e.clientWidth}: ${e.innerText.slice(0, 80)}`)"
    )
    count = page.locator(".wide").count()
    page.close()
    assert count >= 5
    assert cut == []


def test_the_page_has_the_measured_figures(evaluation: Evaluation) -> None:
    """The page has the evaluation's numbers."""
    pooled = evaluation.find("pooled")
    assert pooled is not None
    text = Page(render(evaluation)).text
    for value in (pooled.auroc, pooled.ece, pooled.brier, pooled.within):
        assert figure(value) in text
    assert "nan" not in re.sub(r"[\w-]*nan[\w-]+|[\w-]+nan", "", text)


def test_hostile_names_are_text(evaluation: Evaluation) -> None:
    """Hostile names of benchmarks, models and methods are text on page and card."""
    rows = [
        parse_row({**row.raw, "benchmark": HOSTILE, "model": HOSTILE, "domain": HOSTILE})
        if n % 2
        else row
        for n, row in enumerate(labelled(400, seed=1))
    ]
    found = evaluated(rows, name=HOSTILE)
    probes = probe(FakeScorer(0.5), rows[:50])
    text = render(found, [probes, Study(HOSTILE, HOSTILE, probes.entries)], title=HOSTILE)
    page = Page(text)
    assert "script" not in {tag for tag, _ in page.seen}
    assert "<script>alert(1)</script>" in page.text
    card = figures_of(found)
    for line in card.splitlines():
        if line.startswith("| <script"):
            assert line.count("|") in (8, 10)


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("label", [0, 1, None])
def test_any_evaluation_has_a_page(count: int, label: int | None) -> None:
    """Any evaluation has a page, also with one row, label or benchmark."""
    rows = [
        parse_row(
            {
                "question": str(n),
                "response": "",
                "correct": n % 2 if label is None else label,
                "benchmark": "b",
            }
        )
        for n in range(count)
    ]
    found = judge(rows, [Method("mine", np.linspace(0, 1, count))], resamples=50, permutations=10)
    assert f"{count} labelled" in Page(render(found)).text
    assert "accuracy" in figures_of(found)


def test_figures_are_xml(evaluation: Evaluation) -> None:
    """Every figure is well-formed XML, and its shapes are inside."""
    bins = reliability([0, 1, 1, 0], [0.1, 0.9, 0.8, 0.3])
    wide = ForestRow(HOSTILE.replace("\x1b", ""), Interval(0.7, 0.6, 0.8), 0.65, "p < 0.01")
    empty = ForestRow("none", Interval(float("nan"), float("nan"), float("nan")))
    for svg in (
        reliability_diagram(bins, "<&>"),
        separation(bins, "<&>"),
        roc_curves([("a & b", [(0, 0), (0.2, 0.8), (1, 1)])]),
        forest([wide, empty], "AUROC <", 0.5),
        size_curve([(500, Interval(0.6, 0.5, 0.7)), (5_000, Interval(0.7, 0.6, 0.8))], "x"),
    ):
        root = ElementTree.fromstring(svg)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        for shape in root.iter():
            for name, limit in (
                *(("x1", width), ("cx", width), ("x", width)),
                *(("y1", height), ("cy", height), ("y", height)),
            ):
                assert 0 <= float(shape.attrib.get(name, 0)) <= limit
            assert "nan" not in "".join(shape.attrib.values())


def test_a_line_of_a_forest_shows_its_interval_and_its_mark() -> None:
    """A line of a forest plot shows its interval and mark, and no interval without ends."""
    rows = [
        ForestRow("one", Interval(0.6, 0.5, 0.8), mark=0.7),
        ForestRow("open", Interval(0.6, math.nan, 0.8)),
    ]
    found = forest(rows, "AUROC", 0.5)
    [ends] = re.findall(r'<line class="whisker s0" x1="([\d.]+)" y1="\S+" x2="([\d.]+)"', found)
    [mark] = re.findall(r'<line class="tickmark s1" x1="([\d.]+)"', found)
    assert float(ends[0]) < float(mark) < float(ends[1])
    assert found.count('<circle class="mark s0"') == 2


def test_p_values_have_the_precision_that_they_have() -> None:
    """Tiny p values are bounded and not written as 0 (H05)."""
    assert [p_text(p) for p in (0.0, 5e-5, 0.0012, 0.2, 1.0)] == [
        "p < 0.0001",
        "p < 0.0001",
        "p = 0.0012",
        "p = 0.20",
        "p = 1.00",
    ]


def test_a_permutation_test_is_not_surer_than_its_permutations() -> None:
    """The smallest p of a permutation test is a bound (L03)."""
    found = [chance_text(p) for p in (1 / 10_001, 1 / 1_001, 0.2, float("nan"))]
    assert found == ["p ≤ 0.0001", "p ≤ 0.001", "p = 0.20", NO_FIGURE]


# --- the model card -----------------------------------------------------------------------------


def test_a_card_gets_its_figures(evaluation: Evaluation, tmp_path: Path) -> None:
    """A card gets its figures between its marks, also a second time; the rest stays."""
    card = tmp_path / "README.md"
    card.write_text(f"# Card\n\n{BEGIN}\nold 0.999\n{END}\n\nKnown failures.\n", encoding="utf-8")
    update_card(card, evaluation, [SIZE])
    first = card.read_text(encoding="utf-8")
    update_card(card, evaluation, [SIZE])
    assert card.read_text(encoding="utf-8") == first
    assert first.startswith(f"# Card\n\n{BEGIN}\n")
    assert first.endswith(f"{END}\n\nKnown failures.\n")
    assert "0.999" not in first
    for one in evaluation.of_kind("benchmark"):
        assert f"| {one.group} | {one.rows:,} | {figure(one.accuracy)} |" in first
    assert "More training rows" in first


def test_a_part_of_a_card_has_figures_of_its_own(evaluation: Evaluation, tmp_path: Path) -> None:
    """A part of a card has its own marks and figures."""
    card = tmp_path / "README.md"
    own, calls = f"{BEGIN}\nown\n{END}", f"{BEGIN_OF.format('calls')}\nold\n{END}"
    card.write_text(f"{own}\n\n{calls}\n", encoding="utf-8")
    update_card(card, evaluation, of="calls")
    text = card.read_text(encoding="utf-8")
    assert text.startswith(f"{own}\n")
    assert "old" not in text
    assert f"{evaluation.rows:,} replies" in text.partition(BEGIN_OF.format("calls"))[2]


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{BEGIN}\n{END}\n" * 2])
def test_a_card_without_a_place_is_left_alone(
    text: str, evaluation: Evaluation, tmp_path: Path
) -> None:
    """A card without its two marks is refused and unchanged."""
    card = tmp_path / "README.md"
    card.write_text(text)
    with pytest.raises(JudgingError, match="needs these two lines"):
        update_card(card, evaluation)
    assert card.read_text() == text


def test_what_is_near_chance_is_named() -> None:
    """The card names benchmarks where the calibrator does not beat chance."""
    rows = labelled(600, seed=1)
    p = noisy(rows, 1, 0.5)
    for i, row in enumerate(rows):
        if row.benchmark == "history":
            p[i] = 0.5
    found = judge(rows, [Method("mine", p, "served")], resamples=100, permutations=10)
    (line,) = [line for line in figures_of(found).splitlines() if "No better than chance" in line]
    assert line.endswith("** history.")
