"""Writes figures.json: lm-polygraph's results for replies and scores drawn at random.

lm-polygraph and what it needs are heavy, so the suite does not install it; its figures are kept.
In an environment of its own that has numpy, SciPy and scikit-learn:

    pip install --no-deps lm-polygraph==0.7.0
    python -m tests.calibrator.lab.judging.baselines.polygraph.make
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

FIGURES = Path(__file__).with_name("figures.json")
SEEDS, SAMPLES, TOKENS, VOCABULARY, ROWS = range(6), 8, 5, 6, 200


def _without_their_packages() -> None:
    """Import modules alone: their packages would import all of lm-polygraph."""
    found = importlib.util.find_spec("lm_polygraph")
    assert found is not None
    [root] = found.submodule_search_locations or ()
    for name in ("", ".estimators", ".stat_calculators", ".ue_metrics", ".utils"):
        package = ModuleType(f"lm_polygraph{name}")
        package.__path__ = [str(Path(root, *name.split(".")))]
        sys.modules[package.__name__] = package
    model: Any = ModuleType("lm_polygraph.utils.model")
    model.WhiteboxModel = model.BlackboxModel = model.Model = object
    sys.modules[model.__name__] = model


def _of(module: str, name: str, **options: Any) -> Any:
    return getattr(importlib.import_module(f"lm_polygraph.{module}"), name)(**options)


def samples_figures(seed: int) -> dict[str, Any]:
    """Return P(entailment, neutral, contradiction) of pairs of samples, and their measures."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(((1, 1, 2), (3, 1, 1))[seed % 2], size=(SAMPLES, SAMPLES))
    for at in range(SAMPLES):
        table[at, at] = (1.0, 0.0, 0.0)
    stats: dict[str, Any] = {
        "sample_texts": [[f"t{n}" for n in range(SAMPLES)]],
        "semantic_matrix_entail": table[None, ..., 0],
        "semantic_matrix_contra": table[None, ..., 2],
        "semantic_matrix_classes": table.argmax(axis=2)[None],
        "entailment_id": 0,
    }
    classes = _of("stat_calculators.semantic_classes", "SemanticClassesCalculator")
    stats |= classes(stats, [], None)
    by_name = {
        "sets": _of("estimators.num_sem_sets", "NumSemSets"),
        "degree": _of("estimators.deg_mat", "DegMat"),
        "eigenvalues": _of("estimators.eig_val_laplacian", "EigValLaplacian"),
        "semantic_entropy": _of(
            "estimators.semantic_entropy",
            "SemanticEntropy",
            class_probability_estimation="frequency",
        ),
    }
    measured = {name: float(each(stats)[0]) for name, each in by_name.items()}
    groups = stats["semantic_classes_entail"]["sample_to_class"][0]
    clusters = [int(groups[n]) for n in range(SAMPLES)]
    return {"table": table.tolist(), "clusters": clusters, "measures": measured}


def tokens_figures(seed: int) -> dict[str, Any]:
    """Return log-probabilities of the vocabulary and of the taken tokens, and their measures."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(TOKENS, VOCABULARY))
    places = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    taken = [float(place[rng.integers(VOCABULARY)]) for place in places]
    stats: dict[str, Any] = {"greedy_log_likelihoods": [taken], "greedy_log_probs": [places]}
    stats |= _of("stat_calculators.entropy", "EntropyCalculator")(stats)
    measured = {
        "perplexity": float(_of("estimators.perplexity", "Perplexity")(stats)[0]),
        "probability": float(
            _of("estimators.max_probability", "MaximumSequenceProbability")(stats)[0]
        ),
        "entropy": float(_of("estimators.token_entropy", "MeanTokenEntropy")(stats)[0]),
    }
    return {"places": places.tolist(), "taken": taken, "measures": measured}


def scores_figures(seed: int) -> dict[str, Any]:
    """Return labels and different confidences, and their metrics."""
    rng = np.random.default_rng(seed)
    confidences = rng.permutation(np.arange(1, ROWS + 1) / (ROWS + 1)).round(6)
    correct = (rng.random(ROWS) < 0.2 + 0.6 * confidences).astype(int)
    bins = _of("ue_metrics.ece", "ECE", n_bins=10)
    measured = {
        "auroc": float(_of("ue_metrics.roc_auc", "ROCAUC")(confidences, correct)),
        "auprc_incorrect": float(
            _of("ue_metrics.pr_auc", "PRAUC")(-confidences, (1 - correct).tolist())
        ),
        "aurc": float(
            _of("ue_metrics.risk_cov_curve", "RiskCoverageCurveAUC")(-confidences, correct)
        ),
        "ece": float(bins(-confidences, correct)),
    }
    return {"confidences": confidences.tolist(), "correct": correct.tolist(), "measures": measured}


def main() -> None:
    _without_their_packages()
    figures = {
        "of": f"lm-polygraph {importlib.metadata.version('lm-polygraph')}",
        "samples": [samples_figures(seed) for seed in SEEDS],
        "tokens": [tokens_figures(seed) for seed in SEEDS],
        "scores": [scores_figures(seed) for seed in SEEDS],
    }
    FIGURES.write_text(json.dumps(figures) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
