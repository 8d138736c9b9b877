"""From a name to a scorer. torch is imported only when a checkpoint that needs it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from calibrator.errors import CheckpointError
from calibrator.scorer import FakeScorer, Scorer

if TYPE_CHECKING:
    from calibrator.training_data import Selection

FAKE = "fake:"


def check_checkpoint(name: str) -> None:
    """Says quickly, without torch, whether `load_scorer` can be expected to work.

    Downloads a hub name that is not here yet. Raises CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        _fake(name)
    else:
        from calibrator.checkpoint import read_config, resolve_checkpoint

        read_config(resolve_checkpoint(name))


def load_scorer(name: str, device: str = "auto", *, threads: int | None = None) -> Scorer:
    """The scorer that a configuration names: `embedded`, a folder, a hub name, `fake:0.73`.

    `threads` bounds the CPU threads of one score; None leaves torch its default, all cores.
    Raises CheckpointError or HubError.
    """
    if name.startswith(FAKE):
        return _fake(name)
    from calibrator.checkpoint import resolve_checkpoint
    from calibrator.cross_encoder import load_cross_encoder

    return load_cross_encoder(resolve_checkpoint(name), device, threads=threads)


def _fake(name: str) -> FakeScorer:
    try:
        confidence = float(name.removeprefix(FAKE))
    except ValueError:
        confidence = -1.0
    if not 0 <= confidence <= 1:
        raise CheckpointError(
            f"{name!r}: a fake scorer is fake:P with P from 0 to 1, e.g. fake:0.73"
        )
    return FakeScorer(confidence)


def read_selection(name: str) -> Selection:
    """Which rows a checkpoint was trained on, as far as it says so; the usual ones otherwise."""
    from calibrator.checkpoint import read_config, resolve_checkpoint
    from calibrator.training_data import Selection

    if name.startswith(FAKE):
        return Selection()
    try:
        return Selection(**read_config(resolve_checkpoint(name)).training["selection"])
    except (KeyError, TypeError):
        return Selection()
