"""A comparison of ways to read P(correct) from one adapter, on the same rows (K14, K15, I16).

Asking the calibrator to write a number, the paper's worst way, is left out, as it needs generation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
from calibrator.checkpoints.llm_config import LlmConfig
from calibrator.errors import JudgingError
from calibrator.lab.judging.baselines.fitted import check_questions
from calibrator.lab.studies.mc_dropout import PASSES, McDropout, load_unmerged
from calibrator.lab.studies.studies import SEED, Study, entry_of
from calibrator.lab.training.llm.probe import fit_probe
from calibrator.lab.training.llm.states import last_states
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.probe import features_of
from calibrator.metrics.metrics import Floats
from calibrator.recalibration.curves import sigmoid
from calibrator.recalibration.fit import fit_temperature
from calibrator.rows.rows import Row, labels_of
from calibrator.rows.scores import score_items
from calibrator.rows.selection import share_of

HELD_SHARE = 0.2  # share of training questions held out to stop a probe and fit a temperature
BUDGET = 8_192  # tokens in a forward pass


def compare_elicitations(
    checkpoint: str,
    train: Sequence[Row],
    test: Sequence[Row],
    device: str = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Score the test rows in each way and return a study with an entry for each way.

    Ways are the labels' tokens, plain and with a temperature, MC dropout, probes on the last state,
    and the entropy of the next token. Probes and temperature are fitted on the training rows.
    `reference` is the AUROC of the labels' tokens. Raises JudgingError for questions on both sides,
    too few training questions, or a calibrator that is no language model, CheckpointError for one
    without an adapter.
    """
    check_questions(train, test)
    folder = resolve_checkpoint(checkpoint)
    config = read_config(folder, checkpoint)
    if not isinstance(config, LlmConfig):
        raise JudgingError(f"{checkpoint} is no language model: it has one way to be read")
    calibrator, adapted = load_unmerged(config, folder, device)
    # This hash differs from the one that split the training files.
    is_held = [share_of(f"elicitations {row.question_id}") < HELD_SHARE for row in train]
    fitted, held = (
        [row for row, h in zip(train, is_held, strict=True) if h == side] for side in (False, True)
    )
    if not (fitted and held):
        raise JudgingError("too few training questions to fit a probe and to say where it stops")
    say(f"reading {len(train) + len(test)} rows")
    states, odds = zip(*(_states(calibrator, rows) for rows in (fitted, held, test)), strict=True)
    found = {"labels": sigmoid(odds[2].double().numpy())}
    warm = fit_temperature(labels_of(held), sigmoid(odds[1].double().numpy()))
    found["labels, temperature"] = warm.apply_all(found["labels"])
    say(f"{PASSES} passes with dropout")
    scores = score_items(McDropout(calibrator, adapted), [row.item() for row in test])
    found[f"MC dropout, {PASSES} passes"] = np.array([score.score for score in scores])
    for label, has_odds in (("state", False), ("state and labels", True)):
        say(f"fitting a probe on {label}")
        features = [
            features_of(one, its_odds, has_odds=has_odds)
            for one, its_odds in zip(states, odds, strict=True)
        ]
        probe = fit_probe(features[0], _targets(fitted), features[1], _targets(held), SEED)
        found[label] = sigmoid(probe.odds(features[2]).double().numpy())
    found["token entropy"] = _certainty(calibrator, states[2])
    entries = [
        entry_of(label, len(fitted), test, confidence, found["labels"])
        for label, confidence in found.items()
    ]
    return Study("elicitations", calibrator.name, entries)


def _states(calibrator: LlmCalibrator, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return the rows' last hidden states (n, width) and the labels' log-odds (n,)."""
    return last_states(calibrator, [row.item() for row in rows], BUDGET)


def _targets(rows: Sequence[Row]) -> Tensor:
    """Return the rows' labels as floats, (n,)."""
    return torch.tensor(labels_of(rows), dtype=torch.float32)


@torch.no_grad()
def _certainty(calibrator: LlmCalibrator, states: Tensor) -> Floats:
    """Return for each state a certainty from 0 to 1, (n,): 1 less the next token's entropy.

    The entropy is divided by that of a uniform token; it does not depend on which token is likely.
    """
    model = calibrator.model.model
    head = model.get_output_embeddings()
    found = []
    for some in torch.split(states, 64):
        log_p = head(some.to(model.device, head.weight.dtype)).float().log_softmax(dim=-1)
        found.append(1 + (log_p.exp() * log_p).sum(dim=-1).cpu() / math.log(log_p.shape[-1]))
    return np.asarray(torch.cat(found).double().numpy())
