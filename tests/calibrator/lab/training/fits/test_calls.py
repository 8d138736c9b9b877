"""The arrays of the trees for calls: the same for a seed, small, and readable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from calibrator.errors import TrainingError
from calibrator.lab.data.calls.changes import KINDS
from calibrator.lab.data.calls.corruptions import OTHER_REQUEST
from calibrator.lab.data.calls.domains import DOMAINS
from calibrator.lab.data.calls.lessons import GRADED, lessons_of
from calibrator.lab.data.calls.stages import TWISTS
from calibrator.lab.data.calls.worlds import scenes
from calibrator.lab.studies.trained import calls_study as study
from calibrator.lab.training.fits.calls import (
    CallConfig,
    _held_out,
    _sources_out,
    fit_calls,
    material_of,
)
from calibrator.metrics.metrics import auroc
from calibrator.readers.calls import PREFIX, CallTrees
from calibrator.rows.rows import Row, parse_row

SMALL = CallConfig(trees=25, learning_rate=0.3, leaf_rows=10, fits=1, folds=2, scenes=40, faults=1,
                   remarks=60, claim_trees=10)  # fmt: skip
TINY = replace(SMALL, trees=4, scenes=10, remarks=20, claim_trees=4)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Limit libraries to one thread: with few rows threads wait longer than they work."""
    import sklearn.ensemble  # noqa: F401  (what is loaded later is not limited)

    with threadpool_limits(1):
        yield


def rows(count: int, seed: int) -> list[Row]:
    """Return graded calls of two sources, made of scenes in different domains."""
    found = []
    for source, domains in (("shore", DOMAINS[:4]), ("hill", DOMAINS[4:8])):
        for number, scene in enumerate(scenes(count, seed, domains)):
            raw = {
                "messages": scene.used.messages, "tools": scene.used.tools,
                "response": scene.used.message, "question_id": f"{source} {scene.group}",
                "benchmark": source, "domain": scene.domain, "model": f"model-{number % 3}",
                "correct": scene.correct, "label_level": "call",
            }  # fmt: skip
            found.append(parse_row(raw))
    return found


@pytest.fixture(scope="module")
def trained(one_thread: None) -> dict[str, np.ndarray]:
    return fit_calls(rows(30, 1), 0, SMALL)


def test_it_learns_and_is_read_back(trained: dict[str, np.ndarray]) -> None:
    """The trees rank unseen calls, in a state of less than two megabytes."""
    model = CallTrees.from_state(trained)
    assert model is not None
    fresh = rows(40, 2)
    odds = model.odds([row.tool_use for row in fresh if row.tool_use], ["m"] * len(fresh))
    assert auroc(np.array([row.correct for row in fresh]), odds) > 0.65
    assert all(name.startswith(PREFIX) for name in trained)
    assert sum(array.nbytes for array in trained.values()) < 2_000_000


def test_claims_are_part_of_the_state(trained: dict[str, np.ndarray]) -> None:
    """Replies of text get a number from the same arrays."""
    model = CallTrees.from_state(trained)
    assert model is not None
    replies = [replace(row.tool_use, message={"content": "Done."}) for row in rows(4, 3)
            if row.tool_use]  # fmt: skip
    odds = model.claim_odds(replies)
    assert odds.shape == (len(replies),)
    assert (odds < 7).any()
    assert model.claim_odds([]).shape == (0,)


def test_the_same_seed_gives_the_same_arrays(trained: dict[str, np.ndarray]) -> None:
    """The same seed gives the same arrays."""
    one, again = (fit_calls(rows(12, 1), 0, TINY) for _ in range(2))
    assert one.keys() == again.keys() == trained.keys()
    assert all(np.array_equal(one[name], again[name]) for name in one)


def test_a_batch_is_as_one_by_one(trained: dict[str, np.ndarray]) -> None:
    """A reply's number is the same alone and in a batch."""
    model = CallTrees.from_state(trained)
    assert model is not None
    used = [row.tool_use for row in rows(6, 3) if row.tool_use]
    single = [model.odds([each], [None])[0] for each in used]
    assert np.allclose(model.odds(used, [None] * len(used)), single)
    assert model.odds([], []).shape == (0,)


def test_other_checkpoints_have_none(trained: dict[str, np.ndarray]) -> None:
    """Without these arrays there is no model, and arrays of another shape are refused."""
    assert CallTrees.from_state({"head.weight": np.zeros(3)}) is None
    with pytest.raises(ValueError, match="shape"):
        CallTrees.from_state({**trained, f"{PREFIX}familiar": np.zeros(2)})


def test_one_label_is_no_training() -> None:
    """Calls of one label are refused."""
    with pytest.raises(TrainingError):
        fit_calls([row for row in rows(10, 1) if row.correct], 0, SMALL)


def test_the_study_leaves_out_sources_faults_and_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study leaves out sources, faults and domains, each with fewer lessons and a reference."""
    monkeypatch.setattr(study, "FAMILIES", {"values": ("other entity", "placeholder")})
    monkeypatch.setattr(study, "DOMAIN_FOLDS", 1)
    monkeypatch.setattr(study, "MIN_ROWS", 12)
    found = study.calls_study(rows(14, 1), rows(14, 2), TINY, most=20, resamples=5)
    labels = [entry.label for entry in found.entries]
    assert labels[0] == "as trained"
    for start in ("source: shore", "source: hill", "values: other entity", "domains 1", "attack"):
        assert any(label.startswith(start) for label in labels), start
    fewer = [one for one in found.entries if not one.label.startswith(("as trained", "attack"))]
    assert all(entry.trained < found.entries[0].trained for entry in fewer)
    assert all(np.isfinite(entry.reference) for entry in found.entries)


def test_every_fault_is_of_one_family() -> None:
    """Each kind of corruption and twist of scenes is in one family of faults."""
    listed = [kind for kinds in study.FAMILIES.values() for kind in kinds]
    assert len(set(listed)) == len(listed)
    assert {*KINDS, OTHER_REQUEST, *TWISTS} - {"plain"} == set(listed)


def test_numbers_of_one_source_belong_to_their_labels() -> None:
    """If questions have no other source, odds and labels still have one order."""
    own = [row for row in rows(30, 1) if row.benchmark == "shore"]
    lessons = lessons_of(own, 0, scene_count=10, faults=1, domains=DOMAINS)
    material = material_of(lessons, 0)
    odds, targets, weights = _sources_out(material, TINY, 0)
    known, same_targets, same_weights = _held_out(material, TINY, 0)
    assert np.array_equal(odds, known[:, 0])
    assert np.array_equal(targets, same_targets)
    assert np.array_equal(weights, same_weights)
    assert not np.array_equal(targets, material.targets[material.origins == GRADED])
