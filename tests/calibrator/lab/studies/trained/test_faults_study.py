"""Kinds of faults left out of the inspector's lessons (`pinocchio study faults`)."""

from __future__ import annotations

import random

import pytest
from typer.testing import CliRunner

from calibrator.errors import JudgingError
from calibrator.lab.data.corruptions import KINDS, TAUGHT_KINDS
from calibrator.lab.studies.studies import Study, read_study
from calibrator.lab.studies.trained import faults_study as room
from calibrator.lab.studies.trained.faults_study import HELD_OUT, HeldOut, faults_study
from calibrator.lab.training.fits.inspection.config import InspectorConfig
from calibrator.readers.inspection.inspector import CHECKS
from calibrator.rows.rows import Row, parse_row
from pinocchio.commands import cli
from tests.builders.labelled_rows import write

NUMBERS = ("last number", "working", "arrival")
SMALL = InspectorConfig(
    right_rows=60, irrelevant_rows=20, faulty_rows=60, trees=12, leaf_rows=5, rarity_rows=100
)
KINDS_HELD = (HeldOut("last number"), HeldOut("last number", NUMBERS[1:]), HeldOut("off topic"))


def raw_sums(count: int, seed: int) -> list[dict[str, object]]:
    """Return right replies to small sums, each with its working."""
    rng = random.Random(seed)
    found: list[dict[str, object]] = []
    for number in range(count):
        first, second = rng.randint(12, 99), rng.randint(12, 99)
        found.append(
            {
                "question_id": f"{seed} {number}",
                "benchmark": "shelves",
                "question": f"Shelf {number} has {first} cups and gets {second} more. How many?",
                "response": f"Shelf {number} had {first} cups. With {second} more that makes "
                f"{first} + {second} = {first + second} cups. The answer is {first + second}.",
                "correct": 1,
            }
        )
    return found


def rows(count: int, seed: int) -> list[Row]:
    return [parse_row(raw) for raw in raw_sums(count, seed)]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Study]:
    """Return what `pinocchio study faults` prints, and the study that it writes."""
    folder = tmp_path_factory.mktemp("faults")
    train = write(folder / "train" / "rows.jsonl", raw_sums(80, 1))
    test = write(folder / "test" / "rows.jsonl", raw_sums(25, 2))
    output = folder / "study.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "HELD_OUT", KINDS_HELD)
        patch.setattr(room, "InspectorConfig", lambda: SMALL)
        command = ["study", "faults", str(test), "--train", str(train), "-o", str(output)]
        done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.stderr
    return done.stdout, read_study(output)


@pytest.fixture
def study(written: tuple[str, Study]) -> Study:
    return written[1]


def test_a_check_without_its_kind_is_taught_by_what_is_left(study: Study) -> None:
    """Each entry is beside the inspector of all lessons, and has fewer lessons."""
    strict, wide, off_topic = study.entries
    assert strict.label == "last number, without last number"
    assert wide.label == "last number, without last number + working + arrival"
    assert strict.trained > wide.trained == 0
    assert off_topic.trained > 0
    assert strict.reference == wide.reference > 0.6  # all three kinds teach that inspector
    assert [entry.rows for entry in study.entries] == [25, 25, 25]


def test_without_all_kinds_of_a_check_it_sees_nothing(study: Study) -> None:
    """Without any of its kinds a check sees nothing."""
    strict, wide, off_topic = study.entries
    assert wide.auroc < 0.6
    assert strict.auroc > wide.auroc
    assert off_topic.auroc > 0.9  # replies to other questions teach it


def test_every_kind_that_is_left_out_is_taught() -> None:
    """Every kind that is left out teaches a check."""
    taught = {fault for check in CHECKS for fault in check.faults}
    assert {kind for one in HELD_OUT for kind in one.left_out} <= taught
    assert taught <= KINDS.keys() | TAUGHT_KINDS.keys()


def test_too_few_replies_are_refused() -> None:
    """Too few right replies are refused."""
    with pytest.raises(JudgingError, match="too few right replies"):
        faults_study(rows(20, 1), rows(5, 2), config=SMALL, held_out=KINDS_HELD[:1])


def test_the_command_prints_each_line(written: tuple[str, Study]) -> None:
    """The table has the labels of the written entries."""
    assert all(entry.label in written[0] for entry in written[1].entries)
