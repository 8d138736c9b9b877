"""README and docs: the tests that they name exist, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from proxy.upstreams.demo.demo import EMBEDDED_AUROC

TESTS = Path(__file__).parent
ROOT = TESTS.parent
README = ROOT / "README.md"
PAGES = {path: path.read_text(encoding="utf-8") for path in (README, *ROOT.glob("docs/**/*.md"))}
FOLDERS = (".github", "calibrator", "deploy", "examples", "policies", "proxy")
LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"] + [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.md"))
    if "node_modules" not in path.parts
]
CHANGES = PAGES[ROOT / "docs" / "changes.md"]
QUALITY = PAGES[ROOT / "docs" / "quality.md"]
EMBEDDED = ROOT / "calibrator" / "checkpoints" / "embedded"
_TEST = re.compile(r"`(?:tests/[\w/]*)?(test_\w+\.py)(?:::(\w+))?`")
NAMED = sorted({named for text in PAGES.values() for named in _TEST.findall(text)})


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_test_that_a_page_names_is_there(file: str, name: str) -> None:
    """A test that a page names exists."""
    text = next(TESTS.rglob(file)).read_text(encoding="utf-8")
    assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def test_every_change_has_its_test() -> None:
    """Each row of the table of changes names a test."""
    rows = [line for line in CHANGES.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 10
    assert [row for row in rows if "`test_" not in row] == []


@pytest.mark.parametrize("path", LINKING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(path: Path) -> None:
    """Every link leads to an existing file or folder, and to an existing heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        place, _, heading = target.partition("#")
        found = (path.parent / place).resolve() if place else path
        assert found.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    """The README is short, and the index of the docs links every page."""
    text = PAGES[README]
    assert len(text.splitlines()) <= 120
    assert len(text.encode()) <= 8_000
    table = text[text.index("## What it does") : text.index("## How good")]
    assert len([line for line in table.splitlines() if line.startswith("| **")]) <= 10
    index_page = ROOT / "docs" / "README.md"
    index = PAGES[index_page]
    assert [
        path.name
        for path in PAGES
        if path not in (README, index_page)
        and f"({path.relative_to(index_page.parent).as_posix()})" not in index
    ] == []


def test_the_environment_that_the_readme_makes_is_not_part_of_the_clone() -> None:
    """git ignores the virtual environment that the README creates."""
    [folder] = set(re.findall(r"python3 -m venv (\S+)", PAGES[README]))
    ignored = subprocess.run(["git", "check-ignore", "-q", f"{folder}/"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def test_greeting_and_pages_state_the_same_figure_of_the_demo() -> None:
    """The greeting and the docs state the same figure of the demo."""
    stated = f"on the demo's own answers it has {EMBEDDED_AUROC:.2f}"
    assert stated in " ".join(QUALITY.split())


def test_readme_and_docs_state_the_figures_of_the_model_card() -> None:
    """README and docs state the model card's figures of the shipped checkpoint."""
    card = (EMBEDDED / "README.md").read_text(encoding="utf-8")
    name = re.search(r"calibrator `(embedded@\S+)`", card)
    assert name is not None
    row = re.search(rf"\| {re.escape(name[1])} \| (.*) \|", card)
    assert row is not None
    pooled, mean, _, within, _, ece, *_ = (cell.split(" ")[0] for cell in row[1].split(" | "))
    assert f"| {pooled}; {mean} (TF-IDF" in PAGES[README]
    assert f"ECE {ece}" in PAGES[README]
    assert f"| embedded calibrator | {pooled} | {mean} | {within} |" in QUALITY
    # The study was made with the same weights, before the evidence was added.
    assert "embedded@0b0fe558" in PAGES[ROOT / "docs" / "study.md"]
    assert "embedded@0b0fe558" in card

    beside = re.search(r"\| one, at random \| ([\d,]+) \| (\S+) > (\S+) \| (\S+) > (\S+) \|", card)
    assert beside is not None
    replies, alone, others, mean_alone, mean_others = beside.groups()
    stated = f"| {replies} replies read beside"
    [line] = [line for line in PAGES[README].splitlines() if line.startswith(stated)]
    assert f"{others}; {mean_others} (alone {alone}; {mean_alone})" in line
