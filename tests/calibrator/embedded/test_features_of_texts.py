"""Counts in texts are the same as before most patterns were skipped.

Every recalibration and every certificate depends on these numbers. They were written by the plain
code, which tried each pattern at each character; whoever changes them must train again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.features.traits import traits_of
from calibrator.readers.inspection.wanted import wanted_kinds
from calibrator.readers.inspection.working import working_traits

LINES = Path(__file__).with_name("features_of_texts.jsonl").read_text("utf-8").splitlines()


@pytest.mark.parametrize("row", [json.loads(line) for line in LINES])
def test_what_is_counted_in_a_text_stays_what_it_was(row: dict[str, Any]) -> None:
    """Traits, working and wanted kinds of each text are those in the file."""
    texts = row["question"] * row["times"], row["answer"] * row["times"]
    assert np.allclose(traits_of(*texts), row["traits"], rtol=1e-6, atol=1e-6)
    assert np.allclose(working_traits(*texts), row["working"], rtol=1e-6, atol=1e-6)
    assert "".join(f"{each:.0f}" for each in wanted_kinds(*texts)) == row["wanted"]
