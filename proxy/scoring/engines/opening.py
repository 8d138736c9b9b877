"""The engine that `calibrator:` of a configuration names, and the name of its scores.

A recalibration belongs to a calibrator in an engine's precision, so scores that an engine computes
in its own way have a name of their own: `pinocchio@3f2a91c0~vllm`, `typesafe/jev~decisions`. Our
own scoring server gives the same number, under the same name, as the calibrator in this process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from calibrator import CheckpointError
from proxy.config.settings.engines import Decisions, InProcess, ScoringServer, Sglang, TokenIds

if TYPE_CHECKING:
    from calibrator import Scorer
    from proxy.config.sections import CalibratorConfig
    from proxy.scoring.engines.remote import Engine


def engine_loader(config: CalibratorConfig) -> Callable[[], Scorer]:
    """Return a function that connects to the configured engine.

    It raises EngineError while the engine is not there.
    """
    from proxy.scoring.engines.remote import connect_to

    engine = config.engine
    assert not isinstance(engine, InProcess)
    return partial(
        connect_to,
        partial(open_engine, config),
        timeout_s=config.timeout_s,
        concurrency=engine.concurrency,
    )


def open_engine(config: CalibratorConfig) -> Engine:
    """Build the configured engine, not yet connected; raises CheckpointError."""
    match config.engine:
        case ScoringServer() as settings:
            from proxy.scoring.engines.scoring_server import ScoringServerEngine

            return ScoringServerEngine(settings, name_of_scores(config), config.timeout_s)
        case TokenIds() as settings:
            from proxy.scoring.engines.token_ids import (
                GenerativeScoring,
                LabelScores,
                TokenIdEngine,
            )

            dialect = LabelScores() if isinstance(settings, Sglang) else GenerativeScoring()
            return TokenIdEngine(settings, dialect, config.checkpoint, config.timeout_s)
        case Decisions() as settings:
            from proxy.scoring.engines.decisions import DecisionsEngine

            return DecisionsEngine(settings, config.timeout_s)
        case InProcess():
            raise AssertionError("a calibrator in this process is no engine")


def name_of_scores(config: CalibratorConfig) -> str | None:
    """Return the name of the scores before recalibration; None if only the scoring server knows.

    Raises CheckpointError or HubError.
    """
    from calibrator import name_elsewhere, version_of

    match config.engine:
        case InProcess():
            return version_of(config.checkpoint)
        case ScoringServer():
            return version_of(config.checkpoint) if config.names_checkpoint else None
        case TokenIds() as settings:
            omits = settings.omit_placeholder
            return name_elsewhere(config.checkpoint, settings.kind, omits_placeholder=omits)
        case Decisions() as settings:
            return f"{settings.model}~{settings.kind}"


def known_name(config: CalibratorConfig) -> str:
    """Return the name of the scores, such as `pinocchio@3f2a91c0~vllm`.

    Raises CheckpointError where only the scoring server knows it (`name_of_scores` gives None), and
    HubError.
    """
    if (name := name_of_scores(config)) is None:
        raise CheckpointError(
            "calibrator.engine is a scoring server whose calibrator proxy.yaml does not name; add "
            "calibrator.checkpoint"
        )
    return name


def check_calibrator_config(config: CalibratorConfig) -> None:
    """Check quickly that the checkpoint works and its recalibration fits.

    The checkpoint itself is only checked for a calibrator in this process. Raises CheckpointError.
    """
    from calibrator import check_checkpoint, resolve_recalibrations

    if isinstance(config.engine, InProcess):
        check_checkpoint(config.checkpoint, config.recalibration)
        return
    name = name_of_scores(config)
    if not config.recalibration or name is None:
        return
    resolve_recalibrations(config.recalibration).check_fit(name)
