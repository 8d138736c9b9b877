"""Train a calibrator that is a language model: one run, top to bottom, resumable (E01-E10).

    rows -> split by question -> base with an adapter -> epochs -> [probe] -> recalibrate, save

The run's folder holds `train.json` (its configuration), `state.pt` (to resume from) and in the end
`checkpoint/`, which is an ordinary one. The same command resumes an interrupted run, also with
another number of processes. A base is checked first by the layers for scoring, which training does
not use: an unsuitable one would be found only when its checkpoint is loaded, after hours.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from calibrator.checkpoints.checkpoint import digest_of, write_config
from calibrator.checkpoints.devices import default_dtype
from calibrator.checkpoints.llm_config import AdapterConfig, LlmConfig
from calibrator.errors import NotScorableError, TrainingError
from calibrator.lab.training.llm.adapter_run import STATE, AdapterRun
from calibrator.lab.training.llm.adapters import (
    adapter_state,
    begin_adapter,
    go_on_from_adapter,
    trainable_share,
)
from calibrator.lab.training.llm.config import LlmTrainConfig, RunStart, find_start
from calibrator.lab.training.llm.probe import fit_probe
from calibrator.lab.training.llm.processes import Processes
from calibrator.lab.training.llm.samples import Sample, Samples, check_questions_apart, read_samples
from calibrator.lab.training.rows.run_folder import adopt_folder
from calibrator.llm.layers.last_layer import LastLayer, read_at
from calibrator.llm.layers.replace import Norm, text_model_of
from calibrator.llm.serving.calibrator import LlmCalibrator
from calibrator.llm.serving.loading import ADAPTER, load_base
from calibrator.llm.serving.model import LabelModel
from calibrator.llm.serving.pixels import load_pixel_reader
from calibrator.llm.serving.probe import Probe, features_of
from calibrator.llm.serving.prompts import load_prompts
from calibrator.metrics.metrics import Floats, auroc, brier, ece
from calibrator.metrics.numbers import validation_text
from calibrator.recalibration.curves import Platt, fit_platt, sigmoid
from calibrator.recalibration.fit import MIN_LABELS

_TESTED: Final = ("qwen3_5", "qwen3_vl")  # the tests compare all layers of these
_TOKENS: Final = 12
_TOLERANCE: Final = 1e-3

CHECKPOINT = "checkpoint"
_NOT_STORED = ("data", "device", "base", "start")  # paths of a machine, or stored elsewhere


def train_llm(
    folder: Path,
    config: LlmTrainConfig,
    say: Callable[[str], None] = print,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    save_every_s: float = 600,
) -> Path:
    """Run or resume the training in `folder`, and return the checkpoint's folder inside it.

    `progress` is called with the number of steps, and the total; `say` gets lines of text, both in
    the first process only. The state is saved after each epoch and every `save_every_s` seconds.
    Raises TrainingError if there is nothing to train on or the folder belongs to another run,
    CheckpointError or HubError for a base or a start that cannot be used.
    """
    processes = Processes(config.device)
    if not processes.is_first:
        say, progress = (lambda _: None), (lambda _done, _total: None)
    with processes.first_alone():
        begun = find_start(config)
        if processes.is_first:
            adopt_folder(folder, config.as_dict(), (STATE, CHECKPOINT))
    samples = read_samples(config)
    check_questions_apart(samples)
    known = _with_names(begun.config, samples)
    run = _prepare_run(folder, config, replace(begun, config=known), processes, say)
    samples = _keep_readable(samples, run.calibrator, say)
    _say_what(run, samples)
    run.fit(samples, progress, save_every_s)
    checkpoint = _finish(run, known, begun.base, samples)
    say(f"the checkpoint is in {checkpoint}")
    processes.close()
    return checkpoint


def _with_names(config: LlmConfig, samples: Samples) -> LlmConfig:
    """Return the configuration with the models and benchmarks of the samples added to its own.

    Both lists are sorted, each name once.
    """
    return replace(
        config,
        source_models=tuple(sorted({*config.source_models, *samples.source_models})),
        benchmarks=tuple(sorted({*config.benchmarks, *samples.benchmarks})),
    )


def _prepare_run(
    folder: Path,
    config: LlmTrainConfig,
    begun: RunStart,
    processes: Processes,
    say: Callable[[str], None],
) -> AdapterRun:
    """Load base, prompts and adapter, and return the run, which continues from a saved state.

    The base is in bf16 if the device has it, else in fp32; the adapter is in fp32 (E06). It is a
    new one unless `begun` names an adapter. Raises TrainingError for a base that could not be
    served, CheckpointError for files that cannot be read.
    """
    known = begun.config
    prompts = load_prompts(known, begun.base)
    pixels = None if known.images is None else load_pixel_reader(known.images, begun.base)
    model = load_base(begun.base, known.architecture)
    check_servable(model)
    dtype = default_dtype(processes.device)
    model.to(processes.device, torch.float32 if dtype == torch.float16 else dtype)
    wanted = known.adapter or AdapterConfig()
    if begun.adapter is None:
        adapted = begin_adapter(model, wanted, config.dropout, config.seed)
    else:
        adapted = go_on_from_adapter(model, begun.adapter, wanted)
    labels = LabelModel(model, prompts.label_ids)
    calibrator = LlmCalibrator(known, labels, prompts, pixels)
    return AdapterRun(folder, config, calibrator, adapted, processes, say)


def _keep_readable(
    samples: Samples, calibrator: LlmCalibrator, say: Callable[[str], None]
) -> Samples:
    """Return the samples without those whose images cannot be read.

    `say` gets their number and the first reason. This runs before the training, which takes hours.
    Raises TrainingError if no sample is left for training or for validation.
    """

    def keep_samples(candidates: list[Sample]) -> list[Sample]:
        """Return the samples whose images can be read, and report the number of the others."""
        found, reasons = [], []
        for sample in candidates:
            try:
                if sample.item.images:
                    calibrator.rows([sample.item])
                found.append(sample)
            except NotScorableError as error:
                reasons.append(str(error))
        if reasons:
            say(f"{len(reasons)} rows are left out, the first because: {reasons[0]}")
        return found

    readable = Samples(keep_samples(samples.train), keep_samples(samples.validation))
    if not (readable.train and readable.validation):
        raise TrainingError("no row is left that this base can read, or none for validation")
    return readable


def _say_what(run: AdapterRun, samples: Samples) -> None:
    """Report the numbers of rows, questions, epochs and processes, and the adapter's size."""
    config, count = run.config, run.processes.count
    processes, share = "processes" if count > 1 else "process", trainable_share(run.adapted)
    run.say(
        f"{len(samples.train)} rows of {samples.questions} questions, "
        f"{len(samples.validation)} rows for validation"
    )
    run.say(
        f"{config.epochs} epochs of {config.batch_rows} rows a step, altogether, by {count} "
        f"{processes}; the adapter has {share:.2%} as many weights as the base"
    )


# --- after the last step ------------------------------------------------------------------------


def _finish(run: AdapterRun, known: LlmConfig, base: Path, samples: Samples) -> Path:
    """Fit probe and recalibration, measure, and write the checkpoint; return its folder.

    There is no probe with the elicitation `logit`. Validation rows are scored without the
    benchmark's name, once with and once without the model's; quality is that before recalibration.
    `known` is the configuration to complete, `base` the base's folder. Only the first process
    writes.
    """
    probe = None if run.config.elicitation == "logit" else _probe(run, samples)
    targets = np.array([sample.target for sample in samples.validation])
    as_served = partial(replace, benchmark=None)
    named = _scores(run, probe, samples.validation, lambda item: as_served(item))
    plain = _scores(run, probe, samples.validation, lambda item: as_served(item, source_model=None))
    quality = {
        "validation_plain": _quality(targets, plain),
        "validation_named": _quality(targets, named),
    }
    run.say(validation_text(quality["validation_plain"], quality["validation_named"]))
    target = run.folder / CHECKPOINT
    if run.processes.is_first:
        config = replace(
            known,
            elicitation=run.config.elicitation,
            recalibration=_recalibration(targets, plain, named, run.say),
            canary=run.calibrator.canary_scores(),
            training=_facts(run, samples, base),
            quality=quality,
        )
        _write(target, run, config, probe)
    return target


def _probe(run: AdapterRun, samples: Samples) -> Probe:
    """Fit the probe on the states of the first `config.probe_rows` training samples.

    With the elicitation `both` it also reads the labels' log-odds. The validation samples decide
    when to stop.
    """
    chosen = samples.train[: run.config.probe_rows]
    has_odds = run.config.elicitation == "both"
    train, held = (
        features_of(*run.states(part), has_odds=has_odds) for part in (chosen, samples.validation)
    )
    targets, held_targets = (
        torch.tensor([float(sample.target) for sample in part])
        for part in (chosen, samples.validation)
    )
    return fit_probe(train, targets, held, held_targets, run.config.seed)


def _scores(
    run: AdapterRun, probe: Probe | None, samples: list[Sample], view: Callable[[Any], Any]
) -> Floats:
    """Return P(correct) of samples, (N,), by the probe, or by the labels if it is None.

    `view` maps each sample's item to the item to score, for example to one without names.
    """
    states, odds = run.states([sample.with_item(view(sample.item)) for sample in samples])
    if probe is not None:
        odds = probe.odds(features_of(states, odds, has_odds=run.config.elicitation == "both"))
    return np.asarray(sigmoid(odds.double().numpy()))


def _recalibration(
    targets: Floats, plain: Floats, named: Floats, say: Callable[[str], None]
) -> Platt | None:
    """Fit Platt scaling on scores (N,) without names (`plain`) and with (`named`), together.

    `targets` (N,) are the labels of both. Returns None, and reports it, for fewer than `MIN_LABELS`
    labels or labels of one kind.
    """
    if len(targets) < MIN_LABELS or targets.min() == targets.max():
        say(f"{len(targets)} validation rows allow no recalibration; the confidence is the score")
        return None
    return fit_platt(np.concatenate([targets, targets]), np.concatenate([plain, named]))


def _quality(targets: Floats, scores: Floats) -> dict[str, float]:
    """Return `brier`, `ece` and `auroc` of scores (N,), rounded to four decimals, and `rows`.

    `auroc` is missing if all targets are equal.
    """
    is_mixed = targets.min() != targets.max()
    found = {"brier": brier(targets, scores), "ece": ece(targets, scores)}
    found |= {"auroc": auroc(targets, scores)} if is_mixed else {}
    return {**{name: round(value, 4) for name, value in found.items()}, "rows": len(targets)}


def _facts(run: AdapterRun, samples: Samples, base: Path) -> dict[str, Any]:
    """Return the facts about the run that are stored in the checkpoint, by name.

    They are the configuration without paths of this machine, the base's hash, the numbers of rows,
    questions, steps and processes, the validation losses and the epoch of the adapter.
    """
    settings = {k: v for k, v in run.config.as_dict().items() if k not in _NOT_STORED}
    return {
        **settings,
        "start": Path(run.config.start).name,
        "base_sha256": digest_of(base),
        "rows": len(samples.train),
        "questions": samples.questions,
        "steps": run.at.step,
        "validation_losses": [round(loss, 6) for loss in run.at.losses],
        "epoch": int(np.argmin(run.at.losses)) + 1,  # the epoch of this adapter
        "trainable_share": round(trainable_share(run.adapted), 6),
        "precision": {"base": str(run.calibrator.model.model.dtype), "adapter": "torch.float32"},
        "processes": run.processes.count,
    }


def _write(target: Path, run: AdapterRun, config: LlmConfig, probe: Probe | None) -> None:
    """Write adapter, probe (unless None) and configuration into the folder `target`.

    All is written into `<target>.partial`, which then replaces `target`.
    """
    partial_folder = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial_folder, ignore_errors=True)
    partial_folder.mkdir()
    save_file(adapter_state(run.adapted), partial_folder / ADAPTER, {"format": "pt"})
    lora = run.adapted.peft_config["default"]
    lora.base_model_name_or_path, lora.revision = config.base, config.base_revision
    lora.save_pretrained(str(partial_folder))
    if probe is not None:
        probe.save(partial_folder)
    write_config(partial_folder, replace(config, weights_sha256=digest_of(partial_folder)))
    shutil.rmtree(target, ignore_errors=True)
    partial_folder.replace(target)


def check_servable(model: Any) -> None:
    """Raise TrainingError for a base that could be trained, but not be served afterwards.

    Its last layer and its norms are computed as for scoring, and must give the numbers of
    transformers' own. Models whose type begins with `qwen3_5` or `qwen3_vl` pass unchecked, since
    the tests compare them. The model is unchanged afterwards.
    """
    kind = str(getattr(model.config, "model_type", "of an unknown kind"))
    if kind.startswith(_TESTED):
        return
    try:
        is_right = _is_last_layer_right(model) and _are_norms_right(text_model_of(model))
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise _refusal(kind, str(error)) from error
    if not is_right:
        raise _refusal(kind, "other numbers than transformers' own")


def _refusal(kind: str, why: str) -> TrainingError:
    """Return the error for a base of type `kind`, such as `llama`, with the reason."""
    return TrainingError(
        f"a base of the kind {kind!r} could be trained, but not be served: the layers for scoring "
        f"do not fit it ({why}). Known to fit are Qwen3.5, Qwen3-VL, Qwen3, Qwen2.5, Llama and "
        "SmolLM2"
    )


@torch.no_grad()
def _is_last_layer_right(model: Any) -> bool:
    """Return whether our last layer gives what the model's own gives, for the last of 12 tokens.

    The layer is replaced for one forward pass and then restored.
    """
    text_model = text_model_of(model)
    vocabulary = text_model.get_input_embeddings().weight
    ids = torch.arange(_TOKENS, device=vocabulary.device)[None] % len(vocabulary)
    own = text_model.layers[-1]
    before: Tensor = text_model(input_ids=ids, use_cache=False).last_hidden_state[:, -1]
    text_model.layers[-1] = LastLayer(own)
    try:
        with read_at(torch.tensor([_TOKENS - 1], device=ids.device)):
            found = text_model(input_ids=ids, use_cache=False).last_hidden_state
    finally:
        text_model.layers[-1] = own
    return found.shape[1] == 1 and _are_alike(before, found[:, 0])


@torch.no_grad()
def _are_norms_right(text_model: Any) -> bool:
    """Return whether our norms give what the last layer's two norms give, for -2 to 2."""
    layer = text_model.layers[-1]
    for norm in (layer.input_layernorm, layer.post_attention_layernorm):
        states = torch.linspace(-2, 2, norm.weight.numel(), device=norm.weight.device)[None]
        if not _are_alike(norm(states), Norm(norm, is_for_matrices=False)(states)):
            return False
    return True


def _are_alike(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal within 0.001, relative and absolute."""
    return torch.allclose(one.float(), other.float(), rtol=_TOLERANCE, atol=_TOLERANCE)
