"""A folder of recalibrations: promoting, rolling back, history, and refusal of damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrator import CheckpointError, Item, OtherReply, Score, opinion_of
from calibrator.loading import check_checkpoint, load_scorer, recalibrate_scorer
from calibrator.recalibration.curves import Platt, Recalibration
from calibrator.recalibration.versions import RecalibrationVersions, resolve_recalibrations
from tests.running.live_proxy import HearingScorer

FIRST = Recalibration("platt", Platt(1.0, -1.0), labels=100, calibrator="fake:0.5")
SECOND = Recalibration("platt", Platt(0.5, 0.0), "team", {"law": Platt(2.0, 0.0)}, 200)


def name_of(path: Path) -> str | None:
    found = resolve_recalibrations(path).alone
    return found.name if found else None


def test_each_promotion_can_be_taken_back_one_by_one(tmp_path: Path) -> None:
    """Each promotion can be rolled back, one by one, until none is left."""
    versions, current = RecalibrationVersions(tmp_path / "r"), tmp_path / "r" / "current"
    assert name_of(current) is None  # nothing was promoted yet
    versions.promote(FIRST, {"ece": 0.1})
    versions.promote(SECOND, {})
    assert name_of(current) == SECOND.name
    assert versions.roll_back().after == FIRST.name
    versions.promote(SECOND, {})
    for expected in (FIRST.name, None):
        versions.roll_back()
        assert name_of(current) == expected
    with pytest.raises(CheckpointError, match="nothing to take back"):
        versions.roll_back()
    kinds = [change.kind for change in versions.history()]
    assert kinds == [*["promoted"] * 2, "rolled_back", "promoted", *["rolled_back"] * 2]
    assert versions.history()[0].figures == {"ece": 0.1}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("../secrets.json", "must hold the name of a recalibration beside it"),
        ("platt-00000000.json", "there is no recalibration"),
    ],
)
def test_a_pointer_to_nothing_is_refused(tmp_path: Path, content: str, sentence: str) -> None:
    """A pointer must name an existing file of its own folder."""
    (tmp_path / "current").write_text(content)
    with pytest.raises(CheckpointError, match=sentence):
        check_checkpoint("fake:0.5", tmp_path / "current")


def test_files_are_named_one_for_each_kind_of_numbers(tmp_path: Path) -> None:
    """Files are named one for each kind of numbers; two for the same are refused."""
    knowing = Recalibration("platt", Platt(2.0, 0.0), calibrator="fake:0.5+opinion@1")
    paths = [tmp_path / f"{at}.json" for at in range(3)]
    for path, each in zip(paths, (FIRST, knowing, SECOND), strict=True):
        each.save(path)
    for named in (paths[:2], paths[1::-1]):
        found = resolve_recalibrations(named)
        assert (found.alone, found.with_others) == (FIRST, knowing)
    with pytest.raises(CheckpointError, match=r"2\.json is a second recalibration of numbers of"):
        resolve_recalibrations(paths)
    with pytest.raises(CheckpointError, match="means all that was promoted there: name it alone"):
        resolve_recalibrations([paths[0], tmp_path / "current"])


def test_numbers_that_know_others_have_one_of_their_own(tmp_path: Path) -> None:
    """Numbers that know others have a recalibration of their own, in a folder or by files."""
    hearing = HearingScorer()
    alone = Recalibration("platt", Platt(1.0, 1.0), labels=100, calibrator=hearing.name)
    knowing = Recalibration("platt", Platt(1.0, -1.0), labels=100, calibrator=hearing.opinion)
    items = [Item("?", "Paris p=0.5"), Item("?", "Paris p=0.5", others=(OtherReply("Paris"),))]

    def scores_with(*promoted: Recalibration) -> list[Score]:
        versions = RecalibrationVersions(tmp_path / "-".join(each.name for each in promoted))
        for each in promoted:
            versions.promote(each, {})
        scorer = recalibrate_scorer(hearing, versions.folder / "current")
        assert scorer.name == "+".join([hearing.name, *(p.name for p in promoted if p is alone)])
        assert opinion_of(scorer) == "+".join(
            [hearing.opinion, *(p.name for p in promoted if p is knowing)]
        )
        return scorer.score_batch(items)

    first, second = scores_with(alone)
    assert first.confidence == second.alone == pytest.approx(alone.apply(0.5))
    assert second.confidence == 0.7  # unchanged
    first, second = scores_with(knowing)
    assert first.confidence == second.alone == 0.5
    assert second.confidence == pytest.approx(knowing.apply(0.7))
    first, second = scores_with(alone, knowing)
    assert first.confidence == second.alone == pytest.approx(alone.apply(0.5))
    assert second.confidence == pytest.approx(knowing.apply(0.7))


@pytest.mark.parametrize("name", ["words@1+opinion@2", "words@2+opinion@1"])
def test_a_curve_of_other_numbers_is_refused(name: str, tmp_path: Path) -> None:
    """A curve fitted for another calibrator or second stage is refused."""
    path = tmp_path / "r.json"
    Recalibration("platt", Platt(), labels=100, calibrator=name).save(path)
    with pytest.raises(CheckpointError, match="was fitted for words"):
        recalibrate_scorer(HearingScorer(), path)


def test_a_pointer_to_a_curve_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    """A pointer to a curve of the other kind is refused."""
    RecalibrationVersions(tmp_path).promote(FIRST, {})
    (tmp_path / "current-with-others").write_text((tmp_path / "current").read_text())
    with pytest.raises(CheckpointError, match=r"is for numbers of fake:0\.5"):
        check_checkpoint("fake:0.5", tmp_path / "current")


def test_a_damaged_history_takes_nothing_back(tmp_path: Path) -> None:
    """With a damaged history nothing is rolled back."""
    versions = RecalibrationVersions(tmp_path)
    versions.promote(FIRST, {})
    for content in ("{", ""):
        (tmp_path / "history.jsonl").write_text(content)
        with pytest.raises(CheckpointError):
            versions.roll_back()
    assert name_of(tmp_path / "current") == FIRST.name


def test_a_scorer_takes_the_version_that_counts(tmp_path: Path) -> None:
    """A scorer uses the promoted version of a folder."""
    current = tmp_path / "current"
    assert load_scorer("fake:0.5", recalibration=current).name == "fake:0.5"
    RecalibrationVersions(tmp_path).promote(FIRST, {})
    assert load_scorer("fake:0.5", recalibration=current).name == f"fake:0.5+{FIRST.name}"
    with pytest.raises(CheckpointError, match=r"was fitted for fake:0\.5"):
        load_scorer("fake:0.7", recalibration=current)


def test_a_team_has_its_own_curve() -> None:
    """A team has its own curve, in any case of letters."""
    assert SECOND.apply_to(0.7, None, None, "Law") == pytest.approx(
        SECOND.groups["law"].apply(0.7), abs=0
    )
    assert SECOND.apply_to(0.7, "law", "law", None) == SECOND.pooled.apply(0.7)
