"""Loading of the scorer and the recalibration that a configuration names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from calibrator import (
    CalibratorError,
    CheckpointError,
    HubError,
    InputError,
    Scorer,
    load_scorer,
)
from proxy.config.sections import NO_CALIBRATOR, CalibratorConfig, Config, StandInConfig
from proxy.config.settings.engines import InProcess
from proxy.config.setup import locate_error
from proxy.errors import ExitStatus, StartupError

if TYPE_CHECKING:
    from calibrator import FactFile, Recalibrations


def scorer_loader(config: CalibratorConfig) -> Callable[[], Scorer] | None:
    """Return a function that loads the configured calibrator, for use later on another thread.

    None if the checkpoint is `none`, unless scores come from an engine elsewhere.
    """
    if not isinstance(config.engine, InProcess):
        from proxy.scoring.engines.opening import engine_loader

        return engine_loader(config)
    if config.checkpoint == NO_CALIBRATOR:
        return None
    threads = config.threads or min(4, max(1, (os.cpu_count() or 1) // 2))
    return partial(load_scorer, config.checkpoint, config.device, threads=threads)


def stand_in_loader(config: CalibratorConfig) -> Callable[[], Scorer] | None:
    """Return a function that loads the stand-in calibrator; None if none is configured."""
    if config.stand_in is None:
        return None
    return partial(load_scorer, config.stand_in.checkpoint, "cpu", threads=1)


@dataclass(frozen=True, slots=True)
class PreloadedCalibrators:
    """Calibrators that are loaded before workers are forked, so that these share their memory."""

    calibrator: Scorer | None = None
    stand_in: Scorer | None = None

    def loader(self, config: CalibratorConfig) -> Callable[[], Scorer] | None:
        """Return a function that gives the calibrator, preloaded or loaded by `scorer_loader`.

        None if none is preloaded and `scorer_loader` returns None.
        """
        calibrator = self.calibrator
        return scorer_loader(config) if calibrator is None else lambda: calibrator

    def loader_of_stand_in(self, config: CalibratorConfig) -> Callable[[], Scorer] | None:
        """Return a function that gives the stand-in, preloaded or loaded by `stand_in_loader`.

        None if no stand-in is preloaded or configured.
        """
        calibrator = self.stand_in
        return stand_in_loader(config) if calibrator is None else lambda: calibrator


NOTHING_LOADED: Final = PreloadedCalibrators()


def preload(config: CalibratorConfig) -> PreloadedCalibrators:
    """Load the calibrators that forked workers can share: read-only arrays, no threads.

    ONNX Runtime and torch compute on threads that a fork does not copy, so that a forked session
    would wait for them forever; each worker loads such checkpoints itself. It also loads one that
    fails to load here, and reports the error.
    """
    loaders = [scorer_loader(config) if isinstance(config.engine, InProcess) else None]
    loaders += [stand_in_loader(config)]
    names = [config.checkpoint, config.stand_in.checkpoint if config.stand_in is not None else ""]
    found: list[Scorer | None] = []
    for name, load in zip(names, loaders, strict=True):
        try:
            found.append(load() if load is not None and can_be_forked(name) else None)
        except CalibratorError:
            found.append(None)
    return PreloadedCalibrators(*found)


def can_be_forked(checkpoint: str) -> bool:
    """Return whether a checkpoint computes with numpy alone, so that a forked process can use it.

    False for a checkpoint without a card. Raises CheckpointError or HubError.
    """
    from calibrator import checkpoint_card

    card = None if checkpoint == NO_CALIBRATOR else checkpoint_card(checkpoint)
    if card is None:
        return False
    return bool(card.get("architecture", "embedded") == "embedded")


def shares_scorer(config: Config) -> bool:
    """Return whether one process computes the scores of all workers.

    As `workers.scorer` says (`each` or `shared`), and otherwise for a language model: it would fill
    the memory, or the GPU, once for each worker. False with one worker, without a calibrator, and
    with an engine elsewhere.
    """
    calibrator, wanted = config.calibrator, config.workers.scorer
    is_here = isinstance(calibrator.engine, InProcess) and calibrator.checkpoint != NO_CALIBRATOR
    if not is_here or wanted == "each" or config.workers.count == 1:
        return False
    return wanted == "shared" or _is_large(calibrator.checkpoint)


def _is_large(checkpoint: str) -> bool:
    """Return whether a checkpoint is of another kind than the embedded calibrator, so slower.

    False for a checkpoint without a card. Raises CheckpointError or HubError.
    """
    from calibrator import checkpoint_card

    card = checkpoint_card(checkpoint)
    return card is not None and card.get("architecture", "embedded") != "embedded"


def load_recalibrations(config: CalibratorConfig | StandInConfig) -> Recalibrations | None:
    """Load the configured recalibrations; returns None if there are none.

    Raises CheckpointError.
    """
    if not config.recalibration:
        return None
    from calibrator import resolve_recalibrations

    return resolve_recalibrations(config.recalibration) or None


def recalibrations_of_stand_in(config: CalibratorConfig) -> Recalibrations | None:
    """Load the recalibrations of the stand-in; None without a stand-in, or if it has none.

    Raises CheckpointError.
    """
    return None if config.stand_in is None else load_recalibrations(config.stand_in)


def load_fact_file(config: CalibratorConfig) -> FactFile | None:
    """Read the configured facts; returns None if there are none.

    Raises CheckpointError for a checkpoint that reads no facts, and InputError for a file that
    cannot be used.
    """
    if config.facts is None:
        return None
    from calibrator import load_facts, load_facts_for

    if isinstance(config.engine, InProcess):
        return load_facts_for(config.checkpoint, config.facts)
    return load_facts(config.facts)


def check_calibrator(config: CalibratorConfig, path: Path | None) -> None:
    """Check that the checkpoint, its recalibration and the stand-in are there and fit.

    An engine need not be there yet. Raises StartupError.
    """
    if config.checkpoint == NO_CALIBRATOR:
        return
    from proxy.scoring.engines.opening import check_calibrator_config

    with locate_calibrator_error(path, "recalibration"):
        load_recalibrations(config)
    with locate_calibrator_error(path, "checkpoint"):
        check_calibrator_config(config)
    if config.stand_in is not None:
        with locate_calibrator_error(path, "stand_in"):
            _check_stand_in(config.stand_in)


def _check_stand_in(config: StandInConfig) -> None:
    """Raise CheckpointError if the stand-in is missing or its recalibration does not fit.

    Raises StartupError for a language model, which would be too slow like the calibrator that it
    replaces.
    """
    from calibrator import check_checkpoint

    load_recalibrations(config)
    check_checkpoint(config.checkpoint, config.recalibration)
    if _is_large(config.checkpoint):
        raise StartupError(
            ExitStatus.UNUSABLE_INPUT,
            f"{config.checkpoint} is a language model, which would be late too; a stand-in is the "
            "embedded calibrator, or a checkpoint like it",
        )


@contextmanager
def locate_calibrator_error(path: Path | None, key: str) -> Iterator[None]:
    """Convert the calibrator's errors in the block to StartupError, with an exit status.

    The message has file and line of the key at fault in the section `calibrator`.
    """
    with locate_error(path, "calibrator", key):
        try:
            yield
        except HubError as error:
            raise StartupError(ExitStatus.HUB_UNREACHABLE, str(error)) from error
        except CheckpointError as error:
            raise StartupError(ExitStatus.CHECKPOINT_MISSING, str(error)) from error
        except InputError as error:
            raise StartupError(ExitStatus.UNUSABLE_INPUT, str(error)) from error
