"""Loads the scorer and the recalibration that a configuration names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from calibrator import CheckpointError, HubError, Scorer, load_scorer
from proxy.config.engines import InProcess
from proxy.config.sections import NO_CALIBRATOR, CalibratorConfig, Config
from proxy.config.setup import refusal_placed
from proxy.errors import ExitStatus, StartupError

if TYPE_CHECKING:
    from calibrator import Recalibrations


def scorer_loader(config: CalibratorConfig) -> Callable[[], Scorer] | None:
    """How the configured calibrator is loaded, later and on another thread."""
    if not isinstance(config.engine, InProcess):
        from proxy.scoring.engines.opening import engine_loader

        return engine_loader(config)
    if config.checkpoint == NO_CALIBRATOR:
        return None
    threads = config.threads or min(4, max(1, (os.cpu_count() or 1) // 2))
    return partial(
        load_scorer,
        config.checkpoint,
        config.device,
        threads=threads,
        dtype=None if config.dtype == "auto" else config.dtype,
    )


def shares_scorer(config: Config) -> bool:
    """Whether one process computes the scores of all workers.

    The embedded calibrator takes a core for what it computes and little memory, so each worker has
    its own; a language model would fill the memory, or the GPU, once for each of them.
    """
    calibrator, wanted = config.calibrator, config.workers.scorer
    is_here = isinstance(calibrator.engine, InProcess) and calibrator.checkpoint != NO_CALIBRATOR
    if not is_here or wanted == "each" or config.workers.count == 1:
        return False
    return wanted == "shared" or _is_large(calibrator)


def _is_large(calibrator: CalibratorConfig) -> bool:
    from calibrator import checkpoint_card

    card = checkpoint_card(calibrator.checkpoint)
    return card is not None and card.get("architecture", "embedded") != "embedded"


def load_recalibrations(config: CalibratorConfig) -> Recalibrations | None:
    """What the configuration corrects confidences with now, None for nothing.

    Raises CheckpointError.
    """
    if not config.recalibration:
        return None
    from calibrator import resolve_recalibrations

    return resolve_recalibrations(config.recalibration) or None


def check_calibrator(config: CalibratorConfig, path: Path | None) -> None:
    """The checkpoint and its recalibration must be there, and fit; raises StartupError.

    An engine need not be there yet.
    """
    if config.checkpoint == NO_CALIBRATOR:
        return
    from proxy.scoring.engines.opening import check_calibrator_config

    with calibrator_refusal_placed(path, "recalibration"):
        load_recalibrations(config)
    with calibrator_refusal_placed(path, "checkpoint"):
        check_calibrator_config(config)


@contextmanager
def calibrator_refusal_placed(path: Path | None, key: str) -> Iterator[None]:
    """What the calibrator refuses, with file and line of the key that names it."""
    with refusal_placed(path, "calibrator", key):
        try:
            yield
        except HubError as error:
            raise StartupError(ExitStatus.HUB_UNREACHABLE, str(error)) from error
        except CheckpointError as error:
            raise StartupError(ExitStatus.CHECKPOINT_MISSING, str(error)) from error
