"""Changes drawn at random: what is broken, and which tests are asked."""

from __future__ import annotations

from pathlib import Path

from scripts.checks.random_mutations import (
    Result,
    broken,
    drawn,
    nearest_tests,
    places_in,
    results_in,
    write,
)

SOURCE = '''
def least(values, most):
    """Return the least."""
    found = min(values)
    if found > most and values:
        raise ValueError(found)
    if not found:
        return None
    return found * 2
'''


def test_every_change_is_another_program() -> None:
    """Conditions, operators, numbers, returned values and statements are broken, each by itself;
    a docstring is none of them, nor is what returns nothing."""
    changed = [broken(SOURCE, place) for place in places_in("least.py", SOURCE)]
    assert sorted(what for _, what in changed) == [
        "line 4: dropped `found = min(values)`",
        "line 5: another operator in `found > most and values`",
        "line 5: the comparison turned round in `found > most`",
        "line 5: the opposite of `found > most and values`",
        "line 6: dropped `raise ValueError(found)`",
        "line 7: the opposite of `not found`",
        "line 9: a number one higher in `2`",
        "line 9: another operator in `found * 2`",
        "line 9: nothing returned in `return found * 2`",
    ]
    assert len({source for source, _ in changed}) == len(changed)
    for source, _ in changed:
        compile(source, "least.py", "exec")


def test_the_nearest_tests_come_first(tmp_path: Path) -> None:
    """A seed draws the same places again; tests named after a module come before others, and last
    those that have no more than its words."""
    (tmp_path / "proxy").mkdir()
    (tmp_path / "proxy" / "least.py").write_text(SOURCE)
    for package in ("calibrator", "policies", "pinocchio", "tests/proxy"):
        (tmp_path / package).mkdir(parents=True)
    (tmp_path / "tests" / "proxy" / "test_least.py").write_text("")
    (tmp_path / "tests" / "test_more.py").write_text("from proxy.least import least\n")
    (tmp_path / "tests" / "test_others.py").write_text("")
    (tmp_path / "tests" / "test_words.py").write_text("assert found == 2\n")
    places = drawn(tmp_path, 5, seed=1)
    assert places == drawn(tmp_path, 5, seed=1) != drawn(tmp_path, 5, seed=2)
    assert nearest_tests(tmp_path, places[0]) == [
        *("tests/proxy/test_least.py", "tests/test_more.py", "tests/test_words.py")
    ]


def test_places_are_drawn_again_where_other_code_changes(tmp_path: Path) -> None:
    """Lines above a place, other functions and other files neither rename it nor take its lot."""
    folder = tmp_path / "proxy"
    folder.mkdir()
    (folder / "least.py").write_text(SOURCE)
    before = {place.name for place in drawn(tmp_path, 4, seed=1)}
    (folder / "least.py").write_text(f"def one():\n    return 1\n\n{SOURCE}")
    (folder / "more.py").write_text(SOURCE)
    after = [place for place in drawn(tmp_path, 99, seed=1) if place.file == "proxy/least.py"]
    same = [place for place in after if place.name.startswith("least:")]
    assert {place.name for place in same[:4]} == before
    changes = [broken((folder / "least.py").read_text(), place)[0] for place in after]
    assert len({*changes}) == len(after) == len(same) + 2


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Each by its place; what is written again takes the place of what it was."""
    path = tmp_path / "results.jsonl"
    assert results_in(path) == {}
    seen = Result("proxy/least.py", "least: Return return found", "line 9", "killed", "tests/a.py")
    unseen = Result("proxy/least.py", "least: Constant 2", "line 9", "survived")
    write([unseen], path)
    write([seen, unseen], path)
    assert [*results_in(path).values()] == [seen, unseen]
