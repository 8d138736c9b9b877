"""What follows the last step of a training: recalibrate, measure, write the checkpoint."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from calibrator.checkpoint import WEIGHTS, CheckpointConfig, sha256_of, write_config
from calibrator.familiarity import Familiarity, fit_familiarity
from calibrator.layout import TokenRow, assemble
from calibrator.metrics import auroc, brier, ece
from calibrator.recalibration import Platt, fit_platt
from calibrator.torch_encoder import CrossEncoderModel, collate
from calibrator.tower import PREFIX as TOWER
from calibrator.tower_stage import TowerStage
from calibrator.training_data import Batch, Example, Visits
from calibrator.weights import SCALE, WORDS, packed

if TYPE_CHECKING:
    from calibrator.train import Run, TrainData

BASE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # all-MiniLM-L6-v2
FEATURE_BATCH = 32

Floats = NDArray[np.float64]


@torch.inference_mode()
def predict(
    model: CrossEncoderModel, given: Iterable[Batch], device: torch.device
) -> tuple[Floats, Floats]:
    """Targets and P(correct) of all rows, in the batches' order."""
    model.eval()
    targets: list[float] = []
    scores: list[float] = []
    for batch in given:
        logits = model(*(t.to(device) for t in collate(batch.rows)))
        odds = logits[:, 1] - logits[:, 0] + torch.tensor(batch.offsets, device=device)
        scores += torch.sigmoid(odds).tolist()
        targets += batch.targets
    model.train()
    return np.array(targets), np.array(scores)


@torch.inference_mode()
def features_of(run: Run, examples: Sequence[Example]) -> NDArray[np.float32]:
    """The features (N, D) of examples, every other one with its tags."""
    run.model.eval()
    rows = [_token_row(run, example, is_tagged=i % 2 == 0) for i, example in enumerate(examples)]
    order = sorted(range(len(rows)), key=lambda i: len(rows[i].ids))
    found: dict[int, NDArray[np.float32]] = {}
    for start in range(0, len(order), FEATURE_BATCH):
        chosen = order[start : start + FEATURE_BATCH]
        tokens = (t.to(run.device) for t in collate([rows[i] for i in chosen]))
        features = run.model.features(*tokens).float().cpu().numpy()
        found.update(zip(chosen, features, strict=True))
    run.model.train()
    return np.stack([found[i] for i in range(len(rows))])


def _token_row(run: Run, example: Example, is_tagged: bool) -> TokenRow:
    tags = run.tags(example.benchmark, example.source_model) if is_tagged else run.tags(None, None)
    question, answer = example.question.tolist(), example.answer.tolist()
    return assemble(tags, question, answer, run.config.layout)


def measure_familiarity(run: Run, data: TrainData, rng: random.Random) -> Familiarity | None:
    """What the known benchmarks look like to the trained model."""
    known = data.train[: len(data.rows)]  # the outliers come after them
    count = run.config.familiarity_rows
    chosen = rng.sample(known, min(count, len(known)))
    held = rng.sample(data.validation, min(count // 2, len(data.validation)))
    groups = [example.benchmark for example in chosen]
    return fit_familiarity(features_of(run, chosen), groups, features_of(run, held))


def finish(run: Run, data: TrainData, tower: TowerStage) -> Path:
    """Recalibrates on the validation questions, measures, and writes the checkpoint.

    The averaged weights are what is measured and written.
    """
    rng = random.Random(run.config.seed + 1)
    order = range(len(data.validation))
    with run.optimizer.averaged():
        plain, named = (
            predict(
                run.model,
                Visits(run.tags, run.config.layout, run.config.token_budget, hidden, 1.0).batches(
                    data.validation, tower.validation_logits, order, rng
                ),
                run.device,
            )
            for hidden in (1.0, 0.0)
        )
        labels, scores = (np.concatenate(pair) for pair in zip(plain, named, strict=True))
        platt = fit_platt(labels, scores)
        quality = {"validation_plain": _quality(*plain), "validation_named": _quality(*named)}
        run.say(f"validation: {quality}")
        familiarity = measure_familiarity(run, data, rng)
        return write_checkpoint(run, data, tower, platt, familiarity, quality)


def _quality(labels: Floats, scores: Floats) -> dict[str, float]:
    return {
        "auroc": round(auroc(labels, scores), 4),
        "brier": round(brier(labels, scores), 4),
        "ece": round(ece(labels, scores), 4),
        "rows": len(labels),
    }


def write_checkpoint(
    run: Run,
    data: TrainData,
    tower: TowerStage,
    platt: Platt,
    familiarity: Familiarity | None,
    quality: dict[str, Any],
) -> Path:
    """Weights in bf16 (words in int8), the tokenizer and `calibrator.json`; returns the folder."""
    target = run.folder / "checkpoint"
    target.mkdir(exist_ok=True)
    weights = {name: t.contiguous().cpu() for name, t in run.model.state_dict().items()}
    table, scale = packed(weights[WORDS].float().numpy())
    others: dict[str, Any] = {WORDS: table, WORDS + SCALE: scale}
    for number, member in enumerate(tower.members):
        others |= {f"{TOWER}{number}.{name}": array for name, array in member.items()}
    others |= familiarity.state() if familiarity else {}
    weights |= {name: torch.tensor(array) for name, array in others.items()}
    save_file(weights, target / WEIGHTS)
    (target / "tokenizer.json").write_text(run.tokenizer.to_str())
    unsaid = ("data", "layout", "device")  # paths of this machine, or said elsewhere
    training = {k: v for k, v in run.config.as_dict().items() if k not in unsaid}
    config = CheckpointConfig(
        name=run.config.name,
        weights_sha256=sha256_of(target / WEIGHTS),
        base_rate=round(data.base_rate, 4),
        encoder=run.encoder_config,
        layout=run.config.layout,
        recalibration=platt,
        source_models=tuple(sorted({row.model.lower() for row in data.rows if row.model})),
        benchmarks=tuple(sorted({row.benchmark for row in data.rows if row.benchmark})),
        training={
            **training,
            "start": Path(run.config.start).name,
            "base": "all-MiniLM-L6-v2",
            "base_sha256": BASE_SHA256,
            "questions": len({row.question_id for row in data.rows}),
            "row_visits": run.rows_seen,
            "loss_curve": run.watched,
        },
        quality=quality,
    )
    write_config(target, config)
    return target
