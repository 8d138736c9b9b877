"""The check of names finds participles and classes that share a name, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checks.names import is_participle, participles, twice

SOURCE = """
class Given:
    def told(self): ...
    def tell(self): ...
    def __missing__(self, key): ...

if True:
    def _listed(): ...

def outer():
    def kept(): ...
"""


@pytest.mark.parametrize("name", ["told", "_told", "Given", "_Unseen", "checked", "noting"])
def test_participles(name: str) -> None:
    """A name that is one participle is found, whatever its case, private or not."""
    assert is_participle(name)


@pytest.mark.parametrize(
    "name", ["feed", "meaning", "told_twice", "ToldTwice", "read", "__missing__"]
)
def test_other_names(name: str) -> None:
    """Nouns, imperatives, names of several words and Python's own names are no findings."""
    assert not is_participle(name)


def test_file(tmp_path: Path) -> None:
    """The functions, methods and classes of a file are checked; nested functions are not."""
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    assert [line.split()[-1] for line in participles(path)] == ["Given", "told", "_listed"]


def test_classes_of_one_name(tmp_path: Path) -> None:
    """Two classes of one name at module level are found, with their places."""
    (tmp_path / "one.py").write_text("class A: ...\nclass B: ...\n")
    (tmp_path / "two.py").write_text("\nclass A: ...\nclass C:\n    class B: ...\n")
    assert [*twice(tmp_path)] == [f"A: {tmp_path}/one.py:1, {tmp_path}/two.py:2"]
