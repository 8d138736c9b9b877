"""Kept scores and fits: an interrupted command continues from them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from calibrator import FieldDoubt, Item, Score, UnsupportedSentence
from calibrator.loading import load_scorer
from calibrator.rows.kept_scores import (
    JUDGING_ROOMS,
    KeptScores,
    cache_folder,
    cache_scores,
    code_digest,
    digest_of_rows,
    kept_fit,
    reused_sentence,
)
from calibrator.rows.scores import score_items
from calibrator.scorer import with_answer_characters
from pinocchio.commands import cli
from tests.builders.labelled_rows import labelled, raw_rows, write
from tests.builders.tiny_checkpoint import save_tiny
from tests.running.live_proxy import environment
from tests.running.warm_cli import WarmProcess, run_warm

MANY = 2_000  # rows: seconds of scoring, so that a signal comes in the middle


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set an empty folder of cached scores for each test."""
    monkeypatch.setenv("PINOCCHIO_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


@dataclass
class Counting:
    """A scorer that records its questions and stops after `limit` items."""

    name: str = "counting@1"
    limit: int = 10**9
    asked: list[str] = field(default_factory=list)

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        if len(self.asked) + len(items) > self.limit:
            raise KeyboardInterrupt
        self.asked += [item.question for item in items]
        fields = (FieldDoubt("day", "a placeholder", 0, 1 / 3),)
        return [
            Score(len(i.question) / 1_000, 1 / 3, because=("a fact",), fields=fields) for i in items
        ]


ITEMS = [Item("q" * n, "a") for n in range(1, 101)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@dataclass
class Bounded(Counting):
    """A scorer with a bound on the characters of an answer."""

    def with_answer_characters(self, characters: int) -> Bounded:
        return Bounded(f"bounded-{characters}@1", asked=self.asked)


def test_another_budget_has_scores_of_its_own() -> None:
    """A scorer with another bound is another one, with its own kept scores (K13)."""
    kept = KeptScores(Bounded("bounded@1"), "cpu")
    raised = with_answer_characters(kept, 1_600)
    assert (kept.name, raised.name) == ("bounded@1", "bounded-1600@1")
    score_items(kept, ITEMS[:3])
    assert isinstance(raised, KeptScores)
    assert raised.known_scores(ITEMS[:3]) == {}
    plain = KeptScores(Counting(), "cpu")
    assert with_answer_characters(plain, 1_600) is plain


def test_code_that_only_shows_numbers_has_no_part_in_them() -> None:
    """Code that only shows numbers does not change the digest of kept scores."""
    assert code_digest() != code_digest(is_whole=True)
    assert {"calibrator/commands/", "calibrator/lab/paper/"} <= set(JUDGING_ROOMS)
    scoring = "calibrator/embedded/", "calibrator/features/", "calibrator/text/"
    assert not any(room.startswith(JUDGING_ROOMS) for room in scoring)


def test_an_interrupted_run_goes_on(folder: Path) -> None:
    """An interrupted run goes on without scoring again, with the same numbers."""
    first = Counting(limit=70)
    with pytest.raises(KeyboardInterrupt):
        score_items(KeptScores(first, "cpu"), ITEMS)
    second = Counting()
    progress: list[int] = []
    again = KeptScores(second, "cpu")
    scores = score_items(again, ITEMS, progress.append)
    assert 0 < len(first.asked) < 100
    assert sorted(first.asked + second.asked) == sorted(item.question for item in ITEMS)
    assert scores == Counting().score_batch(ITEMS)
    assert (progress[0], sum(progress), again.reused) == (len(first.asked), 100, len(first.asked))
    assert reused_sentence(again).startswith(f"{len(first.asked)} scores were kept from an earlier")


def test_no_text_is_kept(folder: Path) -> None:
    """The files have digests and numbers, and no text."""
    score_items(KeptScores(Counting(), "cpu"), [Item("a secret question", "a secret answer")])
    (path,) = (folder / "scores").iterdir()
    assert "secret" not in path.read_text() + path.name


@dataclass
class Finding:
    """A scorer that fills all fields of a score."""

    name: str = "finding@1"

    def score_batch(self, items: Sequence[Item]) -> list[Score]:
        return [
            Score(
                *(0.25, 0.125, True, ("a fact",), 0.5, ("agrees",), 0.75, "finding@1+judge@2"),
                fields=(FieldDoubt("day", "a placeholder", 0, None),),
                support=0.0625,
                unsupported=(UnsupportedSentence("It is 60 days.", ("60",), "contradicted"),),
                basis=("context", "computed"),
                act="refusal",
                needs_facts=True,
                is_unfamiliar=True,
                unread="context_not_read",
            )
            for _ in items
        ]


def test_all_fields_of_a_score_are_kept() -> None:
    """All fields of a score are kept."""
    first = score_items(KeptScores(Finding(), "cpu"), ITEMS[:2])
    again = KeptScores(Finding(), "cpu")
    assert list(again.known_scores(ITEMS[:2]).values()) == first == Finding().score_batch(ITEMS[:2])


@pytest.mark.parametrize(
    ("name", "device", "item"),
    [
        ("counting@2", "cpu", ITEMS[0]),
        ("counting@1", "cuda", ITEMS[0]),
        ("counting@1", "cpu", Item("q", "a", source_model="m")),
        ("counting@1", "cpu", Item("q", "a", images=(b"x",))),
        ("counting@1", "cpu", Item("q", "a", messages=[{"role": "user", "content": "q"}])),
    ],
)
def test_other_versions_devices_and_rows_are_scored(name: str, device: str, item: Item) -> None:
    """Another version, device or row is scored again."""
    score_items(KeptScores(Counting(), "cpu"), ITEMS)
    other = Counting(name)
    score_items(KeptScores(other, device), [item])
    assert len(other.asked) == 1


def test_a_damaged_line_is_scored_again(folder: Path) -> None:
    """Only a damaged line is scored again."""
    score_items(KeptScores(Counting(), "cpu"), ITEMS)
    (path,) = (folder / "scores").iterdir()
    path.write_bytes(path.read_bytes()[:-10])
    other = Counting()
    score_items(KeptScores(other, "cpu"), ITEMS)
    assert len(other.asked) == 1
    assert KeptScores(Counting(), "cpu").known_scores(ITEMS).keys() == set(range(100))


def test_unused_files_go(folder: Path) -> None:
    """Files are removed after a month without use."""
    old = folder / "scores" / "old.jsonl"
    old.parent.mkdir(parents=True)
    old.touch()
    os.utime(old, (time.time() - 40 * 86_400,) * 2)
    score_items(KeptScores(Counting(), "cpu"), ITEMS)
    assert [path.name[:10] for path in old.parent.iterdir()] == ["counting@1"]


def test_where_nothing_can_be_written_scoring_goes_on(folder: Path) -> None:
    """Without a writable folder scoring goes on."""
    folder.write_text("no folder")
    assert score_items(KeptScores(Counting(), "cpu"), ITEMS) == Counting().score_batch(ITEMS)
    assert kept_fit(["x"], lambda: np.array([0.5])).tolist() == [0.5]


def test_fits_are_kept(folder: Path) -> None:
    """A fit is kept for the same rows, and made again for others or when asked to."""
    fits: list[int] = []

    def fit() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        fits.append(1)
        return np.array([0.25, 0.75])

    rows, others = labelled(10, seed=1), labelled(10, seed=2)
    for parts in ([digest_of_rows(rows)], [digest_of_rows(rows)], [digest_of_rows(others)]):
        assert kept_fit(parts, fit).tolist() == [0.25, 0.75]
    assert len(fits) == 2
    kept_fit([digest_of_rows(rows)], fit, is_renewed=True)
    assert len(fits) == 3


def test_commands_say_what_they_reused(tmp_path: Path) -> None:
    """`evaluate` after `score` reuses the scores, says so, and has the same figures."""
    rows = write(tmp_path / "rows.jsonl", raw_rows(60, seed=2))
    arguments = (rows, "--calibrator", save_tiny(tmp_path / "tiny"))
    first = run("score", *arguments)
    assert (first.exit_code, first.stderr) == (0, "")
    again = run("evaluate", *arguments, "--json")
    assert "60 scores were kept from an earlier run; --rescore makes them again" in again.stderr
    anew = run("evaluate", *arguments, "--json", "--rescore")
    assert "kept" not in anew.stderr
    assert again.stdout == anew.stdout


def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    """A `score` command that Ctrl-C interrupted goes on with the kept scores."""
    rows = write(tmp_path / "rows.jsonl", raw_rows(MANY, seed=2))
    out = tmp_path / "out.jsonl"
    command, told_in = ["score", str(rows), "-o", str(out)], tmp_path / "told"
    with told_in.open("w") as file:
        process = WarmProcess(command, stdout=file, stderr=file, cwd=tmp_path, env=environment())
    deadline = time.monotonic() + 60
    while not (found := list(cache_folder().glob("scores/*"))) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert found, "nothing was scored within a minute"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    output = told_in.read_text()
    assert "interrupted; what is done is kept, the same command goes on from there" in output
    assert "Traceback" not in output
    assert not out.exists()
    kept = len(keeping_scores("embedded"))
    assert 0 < kept < MANY
    done = run_warm(command, cwd=tmp_path, env=environment(), timeout_s=120)
    assert done.returncode == 0
    assert f"{kept:,} scores were kept from an earlier run" in done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [f"2-{n}" for n in range(MANY)]


def keeping_scores(name: str) -> list[str]:
    """Return the lines of the one file of cached scores with this name."""
    (path,) = cache_folder().glob(f"scores/{name}*")
    return [line for line in path.read_text().splitlines() if line]


def test_a_fake_computes_nothing_worth_keeping() -> None:
    """Scores of a fake calibrator are not kept."""
    fake = load_scorer("fake:0.5")
    assert cache_scores(fake, "cpu") is fake
