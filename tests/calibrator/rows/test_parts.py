"""Parts of files: cut the same each time, written whole or not at all, joined in order."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrator.errors import ClusterError, RowError
from calibrator.rows import shards as parts
from calibrator.rows.rows import read_lines, read_rows
from calibrator.rows.scores import scored_line
from calibrator.rows.shards import Options, ShardRun, begin, cut
from calibrator.scorer import Item, Score
from tests.builders.labelled_rows import raw_rows, write
from tests.running.live_proxy import WordScorer

LINES = st.sampled_from(
    [b"\n", b" \n", b"5\n", b'{"question": "q", "response": "p=0.25"}\n', b"\r\n"]
)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set parts of three lines, or fewer long ones."""
    monkeypatch.setattr(parts, "PART_LINES", 3)
    monkeypatch.setattr(parts, "PART_BYTES", 2_000)


def scored(run: ShardRun, scorer: WordScorer | None = None) -> WordScorer:
    """Score the missing parts of a run, as a worker would."""
    scorer = scorer or WordScorer()
    for source, (path, done) in enumerate(zip(run.files, run.finished_parts(), strict=True)):
        for part in cut(path, source, done):
            run.score(part, scorer)
    return scorer


def written(run: ShardRun, folder: Path) -> bytes:
    path = folder / "whole.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        run.write_all(stream)
    return path.read_bytes()


def in_one_go(paths: Sequence[Path]) -> tuple[bytes, list[str]]:
    """Return the rows and messages that `pinocchio score` makes of files."""
    scorer, lines, bad = WordScorer(), [], []
    for path in paths:
        for _, row in read_rows(path):
            if isinstance(row, RowError):
                bad.append(str(row))
            else:
                (found,) = scorer.score_batch([row.item("served")])
                lines.append(scored_line(row, found, scorer.name, "served", is_brief=False))
    return "".join(lines).encode(), bad


def started(folder: Path, *paths: Path) -> ShardRun:
    return begin(folder / "out.jsonl", paths, "words@1", Options())


@given(lines=st.lists(LINES, max_size=12), is_cut_off=st.booleans())
def test_parts_give_what_the_whole_gives(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], is_cut_off: bool
) -> None:
    """Parts give the rows, bad rows and line numbers of one go."""
    folder = tmp_path_factory.mktemp("parts")
    text = b"".join(lines)
    path, packed = folder / "rows.jsonl", folder / "packed.jsonl"
    path.write_bytes(text[:-1] if is_cut_off else text)
    packed.write_bytes(gzip.compress(text)[: -9 if is_cut_off else None])  # cut off within a row
    run = started(folder, path, packed)
    scored(run)
    bad, total = run.check()
    rows, messages = in_one_go([path, packed])
    assert (written(run, folder), [str(error) for error in bad]) == (rows, messages)
    assert total == rows.count(b"\n") + len(messages)


def test_a_part_is_bounded(tmp_path: Path) -> None:
    """A part is bounded in lines and bytes, and all parts together are the file."""
    path = write(
        tmp_path / "rows.jsonl", [{"n": "x" * n} for n in (5, 5, 5, 5, 1_990, 5, 3_000, 5)]
    )
    found = list(cut(str(path), 0))
    assert [len(list(part.lines())) - 1 for part in found] == [3, 2, 2, 1]
    assert b"".join(part.text for part in found) == path.read_bytes()
    assert [part.first_line for part in found] == [1, 4, 6, 8]
    assert [part.is_last for part in found] == [False, False, False, True]


def test_lines_are_read_once_and_no_further_than_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that is too long ends its file with an error."""
    monkeypatch.setattr("calibrator.rows.rows.MAX_LINE_BYTES", 100)
    path = write(tmp_path / "rows.jsonl", [{"n": 1}, {"n": "x" * 200}, {"n": 2}])
    *_, (number, error) = read_lines(path)
    assert (number, isinstance(error, RowError)) == (2, True)
    (part,) = cut(str(path), 0)
    assert (part.text, part.error) == (b'{"n": 1}\n', error.message)  # type: ignore[union-attr]


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """An interrupted run scores only what is missing."""
    path = write(tmp_path / "rows.jsonl", raw_rows(10, seed=1))
    run = started(tmp_path, path)
    _, second, *_ = cut(run.files[0], 0)
    run.score(second, WordScorer())
    assert len(scored(started(tmp_path, path)).seen) == 10 - 3
    assert written(run, tmp_path) == in_one_go([path])[0]


def test_a_part_scored_twice_counts_once(tmp_path: Path) -> None:
    """A part that is scored twice counts once."""
    path = write(tmp_path / "rows.jsonl", raw_rows(5, seed=1))
    run = started(tmp_path, path)
    scored(run)
    before = written(run, tmp_path)
    for part in cut(run.files[0], 0):
        run.score(part, WordScorer())
    assert written(run, tmp_path) == before


class _FailingScorer(WordScorer):
    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        raise RuntimeError("out of memory")


def test_a_failed_part_leaves_nothing(tmp_path: Path) -> None:
    """A part whose scoring fails has no file and is reported as missing."""
    path = write(tmp_path / "rows.jsonl", raw_rows(5, seed=1))
    run = started(tmp_path, path)
    first, last = cut(run.files[0], 0)
    run.score(last, WordScorer())
    with pytest.raises(RuntimeError, match="out of memory"):
        run.score(first, _FailingScorer())
    assert sorted(p.name for p in Path(run.folder).iterdir()) == ["00000-000001.jsonl", "run.json"]
    with pytest.raises(
        ClusterError, match=r"parts of .*rows.jsonl are missing in .*out.jsonl.parts"
    ):
        run.check()


@pytest.mark.parametrize("is_gone", ["last", "all"])
def test_no_row_is_lost_in_silence(tmp_path: Path, is_gone: str) -> None:
    """Missing parts at the end of a file are reported."""
    run = started(tmp_path, write(tmp_path / "rows.jsonl", raw_rows(5, seed=1)))
    scored(run)
    for number in (1,) if is_gone == "last" else (0, 1):
        run.path_of(0, number).unlink()
    with pytest.raises(ClusterError, match="are missing"):
        run.check()


@pytest.mark.parametrize(
    ("change", "named"),
    [("calibrator", "calibrator"), ("tags", "tags"), ("files", "files"), ("names", "files")],
)
def test_parts_of_another_run_are_not_mixed_in(tmp_path: Path, change: str, named: str) -> None:
    """Parts of a run with other calibrator, tags or files are refused."""
    path = write(tmp_path / "rows.jsonl", raw_rows(5, seed=1))
    scored(started(tmp_path, path))
    if change == "files":
        write(path, raw_rows(6, seed=1))
    other = write(tmp_path / "other.jsonl", []) if change == "names" else path
    calibrator = "words@2" if change == "calibrator" else "words@1"
    options = Options(tags="all") if change == "tags" else Options()
    with pytest.raises(
        ClusterError, match=f"parts of a run with other {named}; remove that folder"
    ):
        begin(tmp_path / "out.jsonl", [other], calibrator, options)


def test_a_changing_file_is_reported(tmp_path: Path) -> None:
    """A file that changes during the run is reported."""
    path = write(tmp_path / "rows.jsonl", raw_rows(5, seed=1))
    run = started(tmp_path, path)
    scored(run)
    write(path, raw_rows(6, seed=1))
    with pytest.raises(ClusterError, match="files changed while rows were read; remove"):
        run.check()


def test_a_damaged_part_is_named(tmp_path: Path) -> None:
    """A damaged part is reported by its name."""
    run = started(tmp_path, write(tmp_path / "rows.jsonl", raw_rows(5, seed=1)))
    scored(run)
    run.path_of(0, 1).write_bytes(b"")
    with pytest.raises(ClusterError, match=r"00000-000001.jsonl is damaged; remove it"):
        run.check()


def test_bad_paths_are_reported_before_any_work(tmp_path: Path) -> None:
    """An output that cannot be written, or a missing input, is reported before any work."""
    path = write(tmp_path / "rows.jsonl", raw_rows(5, seed=1))
    with pytest.raises(IsADirectoryError):
        begin(tmp_path, [path], "words@1", Options())
    with pytest.raises(FileNotFoundError):
        started(tmp_path / "nowhere", path)
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        started(tmp_path, tmp_path / "none.jsonl")
    assert [found.name for found in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_finished_run_leaves_no_folder(tmp_path: Path) -> None:
    """A finished run removes its folder."""
    run = started(tmp_path, write(tmp_path / "rows.jsonl", raw_rows(5, seed=1)))
    scored(run)
    run.remove()
    assert not Path(run.folder).exists()


def test_brief_rows_need_no_id(tmp_path: Path) -> None:
    """Brief rows without an id get a digest, as in one go."""
    row = {"question": "q", "response": "p=0.25"}
    path = write(tmp_path / "rows.jsonl", [row, {**row, "id": 7}])
    run = begin(tmp_path / "out.jsonl", [path], "words@1", Options(is_brief=True))
    scored(run)
    bad, total = run.check()
    assert (bad, total) == ([], 2)
    first, second = written(run, tmp_path).splitlines()
    assert first.startswith(b'{"id": "sha256:')
    assert second.startswith(b'{"id": 7, "score": 0.25')
