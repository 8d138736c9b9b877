"""Loading of a scorer by name. torch is imported only for a device that needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calibrator.errors import CheckpointError, MissingExtraError
from calibrator.scorer import FakeScorer, Scorer

if TYPE_CHECKING:
    from calibrator.readers.evidence.facts.fact_file import FactFile

FAKE = "fake:"
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")  # also with a number, as in `cuda:1`


def version_of(name: str) -> str:
    """Return the name of a checkpoint's scorer without loading it.

    Downloads a hub name that is not here yet. Raises CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        return _fake(name).name
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint

    return read_config(resolve_checkpoint(name), name).version


def check_checkpoint(name: str, recalibration: Path | Sequence[Path] | None = None) -> None:
    """Check quickly, without torch, that `load_scorer` can be expected to work.

    Raises as `version_of`, also for a recalibration of another checkpoint.
    """
    version = version_of(name)
    if recalibration:
        from calibrator.recalibration.versions import resolve_recalibrations

        resolve_recalibrations(recalibration).check_fit(version)


def checkpoint_card(name: str) -> dict[str, Any] | None:
    """Return the checkpoint's `calibrator.json` with its `version`, or None for a fake.

    Raises CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        return None
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint

    found = read_config(resolve_checkpoint(name), name)
    return {**found.as_dict(), "version": found.version}


def load_facts_for(name: str, path: Path) -> FactFile:
    """Read a file of facts for the calibrator that a configuration names.

    Raises CheckpointError for a checkpoint that compares no reply with facts, HubError, and
    InputError for a file that cannot be used.
    """
    from calibrator.readers.evidence.facts.fact_file import load_facts

    card = checkpoint_card(name)
    if card is not None and not card.get("evidence_sha256"):
        raise CheckpointError(
            f"{name} compares no reply with facts; leave out facts, or use the embedded calibrator"
        )
    return load_facts(path)


def load_scorer(
    name: str,
    device: str = "auto",
    *,
    threads: int | None = None,
    recalibration: Path | Sequence[Path] | None = None,
    dtype: str | None = None,
) -> Scorer:
    """Return the scorer that a configuration names: `embedded`, a folder, a hub name, `fake:0.73`.

    `recalibration` is a file of `pinocchio recalibrate` for this very calibrator, or one for each
    kind of its numbers. The others are for language models: `threads` bounds the CPU threads of one
    score, None takes all cores; `dtype` is float32, bfloat16 or float16, None the device's default.
    Raises CheckpointError, HubError, or MissingExtraError where `device` needs torch.
    """
    check_device(device)
    return recalibrate_scorer(_load(name, device, threads, dtype), recalibration)


def check_device(name: str) -> None:
    """Raise CheckpointError for an invalid device name; torch checks later if it is present."""
    kind, colon, number = name.partition(":")
    if kind not in DEVICES or (colon and not number.isdigit()):
        known = ", ".join(DEVICES)
        raise CheckpointError(f"device {name!r} cannot be used here: it is none of {known}")


def recalibrate_scorer(scorer: Scorer, recalibration: Path | Sequence[Path] | None) -> Scorer:
    """Return the scorer with its recalibration files applied.

    Raises CheckpointError for the file of another scorer.
    """
    if not recalibration:
        return scorer
    from calibrator.recalibration.recalibrated_scorer import RecalibratedScorer
    from calibrator.recalibration.versions import resolve_recalibrations

    found = resolve_recalibrations(recalibration)
    return RecalibratedScorer(scorer, found) if found else scorer


def _load(name: str, device: str, threads: int | None, dtype: str | None) -> Scorer:
    """Load a scorer by name: a fake one, an embedded checkpoint, or a language model."""
    if name.startswith(FAKE):
        return _fake(name)
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint
    from calibrator.checkpoints.llm_config import LlmConfig

    folder = resolve_checkpoint(name)
    config = read_config(folder, name)
    if not isinstance(config, LlmConfig):
        if dtype is not None:
            raise CheckpointError(f"{name} has one precision; dtype is for language models")
        from calibrator.embedded.calibrator import load_embedded

        return load_embedded(folder)
    try:
        from calibrator.llm.serving.calibrator import load_llm
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} (for {config.name})", "torch") from error
    return load_llm(config, folder, device, dtype=dtype, threads=threads)


def _fake(name: str) -> FakeScorer:
    """Return a scorer with one constant confidence.

    Raises CheckpointError unless it is from 0 to 1.
    """
    try:
        confidence = float(name.removeprefix(FAKE))
    except ValueError:
        confidence = -1.0
    if not 0 <= confidence <= 1:
        raise CheckpointError(
            f"{name!r}: a fake scorer is fake:P with P from 0 to 1, e.g. fake:0.73"
        )
    return FakeScorer(confidence)
