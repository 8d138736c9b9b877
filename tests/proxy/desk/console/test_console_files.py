"""Files that the console ships: those of others are unchanged, and all are used."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
CONSOLE = ROOT / "proxy" / "desk" / "console"
VENDOR = CONSOLE / "static" / "vendor"
PUBLISHED = {  # of uPlot 1.6.32, `dist/` of the npm package
    "uplot-1.6.32.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uplot-1.6.32.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_library_is_what_was_published(name: str) -> None:
    """A library's file is byte for byte what was published, with its licence beside it."""
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == PUBLISHED[name]
    assert "MIT" in (VENDOR / "uplot-LICENSE.txt").read_text()


def test_every_file_is_used() -> None:
    """Every file is used by a template or a script, under its name."""
    sources = [*CONSOLE.glob("templates/*.html"), *CONSOLE.glob("*.py")]
    sources += [*CONSOLE.glob("static/*.js"), *(ROOT / "proxy/optional/chat").glob("*.py")]
    text = "\n".join(path.read_text() for path in sources)
    files = [path for path in CONSOLE.rglob("*") if path.suffix in (".html", ".js", ".css", ".svg")]
    unused = [path.name for path in files if path.name not in text]
    assert unused == []


def test_no_script_makes_code_of_text() -> None:
    """No file of our own has `eval`, `innerHTML` or a style attribute."""
    banned = re.compile(
        r"\beval\b|innerHTML|outerHTML|insertAdjacentHTML|document\.write|Function\("
    )
    for path in CONSOLE.glob("static/*.js"):
        assert not banned.search(path.read_text()), path.name
    for path in CONSOLE.glob("templates/*.html"):
        assert not re.search(r"\sstyle=|\son[a-z]+=|\|safe\b", path.read_text()), path.name
