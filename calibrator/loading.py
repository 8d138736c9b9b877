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
    """Return a checkpoint's version, such as `embedded@3f2a`, without loading weights.

    `name` is as in `load_scorer`; `fake:0.73` is its own version. Downloads a hub name that is not
    here yet. Raises CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        return _fake(name).name
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint

    return read_config(resolve_checkpoint(name), name).version


def check_checkpoint(name: str, recalibration: Path | Sequence[Path] | None = None) -> None:
    """Raise CheckpointError or HubError if `load_scorer` would certainly fail for these files.

    This is quick and needs no torch, but downloads a hub name that is not here yet. A recalibration
    made for another checkpoint fails too.
    """
    version = version_of(name)
    if recalibration:
        from calibrator.recalibration.versions import resolve_recalibrations

        resolve_recalibrations(recalibration).check_fit(version)


def checkpoint_card(name: str) -> dict[str, Any] | None:
    """Return the values of a checkpoint's `calibrator.json` with its `version`, or None.

    None for a fake such as `fake:0.73`. Downloads a hub name that is not here yet. Raises
    CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        return None
    from calibrator.checkpoints.checkpoint import read_config, resolve_checkpoint

    found = read_config(resolve_checkpoint(name), name)
    return {**found.as_dict(), "version": found.version}


def load_facts_for(name: str, path: Path) -> FactFile:
    """Read the file of facts at `path` for the calibrator `name` of a configuration.

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
    """Raise CheckpointError for a name that is none of `DEVICES`.

    A number may follow, as in `cuda:1`. Whether the device exists is checked by torch when a model
    is loaded.
    """
    kind, colon, number = name.partition(":")
    if kind not in DEVICES or (colon and not number.isdigit()):
        known = ", ".join(DEVICES)
        raise CheckpointError(f"device {name!r} cannot be used here: it is none of {known}")


def recalibrate_scorer(scorer: Scorer, recalibration: Path | Sequence[Path] | None) -> Scorer:
    """Return a scorer that applies recalibration files to this one's numbers.

    The scorer itself is returned without any. Raises CheckpointError for the file of another
    scorer.
    """
    if not recalibration:
        return scorer
    from calibrator.recalibration.recalibrated_scorer import RecalibratedScorer
    from calibrator.recalibration.versions import resolve_recalibrations

    found = resolve_recalibrations(recalibration)
    return RecalibratedScorer(scorer, found) if found else scorer


def _load(name: str, device: str, threads: int | None, dtype: str | None) -> Scorer:
    """Load a scorer by name: a fake one, an embedded checkpoint, or a language model.

    Raises CheckpointError, also for a `dtype` of an embedded checkpoint, HubError, and
    MissingExtraError where torch or transformers are missing.
    """
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
    """Return a scorer that gives every item the confidence P of the name `fake:P`.

    Raises CheckpointError unless P is a number from 0 to 1.
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
