"""Figures equal lm-polygraph's to 1e-6 (written by `polygraph/make.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrator.lab.judging.baselines.samples import ReplySamples, likelihoods, token_certainty
from calibrator.metrics.metrics import Floats, auprc_incorrect, aurc, auroc, ece

FIGURES: dict[str, Any] = json.loads(
    Path(__file__).with_name("polygraph").joinpath("figures.json").read_text(encoding="utf-8")
)


def near(value: float) -> Any:
    return pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("drawn", FIGURES["samples"])
def test_measures_of_several_replies(drawn: dict[str, Any]) -> None:
    """Clusters, entropy, NumSemSets, Deg and EigV equal its uncertainties (I08, I10, I12)."""
    table = np.array(drawn["table"])
    names = [f"t{n}" for n in range(len(table))]

    def entailment(pairs: Sequence[tuple[str, str]]) -> Floats:
        return np.array([table[names.index(a), names.index(b)] for a, b in pairs])

    samples, theirs = ReplySamples(names[-1], names, entailment), drawn["measures"]
    assert samples.clusters[:-1].tolist() == drawn["clusters"]
    assert -samples.semantic_entropy() == near(theirs["semantic_entropy"])
    assert -samples.sets() == theirs["sets"]
    assert -samples.degree() == near(theirs["degree"])
    assert -samples.eigenvalues() == near(theirs["eigenvalues"])


@pytest.mark.parametrize("drawn", FIGURES["tokens"])
def test_measures_of_tokens(drawn: dict[str, Any]) -> None:
    """Mean and sum of log-probabilities, and mean entropy, are the same (I15)."""
    found, theirs = likelihoods(drawn["taken"]), drawn["measures"]
    assert -found["mean"] == near(theirs["perplexity"])
    assert -found["sum"] == near(theirs["probability"])
    assert -token_certainty(drawn["places"]) == near(theirs["entropy"])


@pytest.mark.parametrize("drawn", FIGURES["scores"])
def test_metrics(drawn: dict[str, Any]) -> None:
    """AUROC, ECE of ten bins, average precision and AURC are the same (H01, H04, H08)."""
    correct, confidences, theirs = drawn["correct"], drawn["confidences"], drawn["measures"]
    assert auroc(correct, confidences) == near(theirs["auroc"])
    assert auprc_incorrect(correct, confidences) == near(theirs["auprc_incorrect"])
    assert aurc(correct, confidences) == near(theirs["aurc"])
    assert ece(correct, confidences, bins=10) == near(theirs["ece"])
