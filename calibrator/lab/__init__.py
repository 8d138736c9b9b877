"""What makes and judges calibrators: training, evaluation, the paper's study, and their commands.

Nothing that serves imports it, and an installation may leave it out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calibrator.lab.commands.app import cli

__all__ = ["cli"]


def __getattr__(name: str) -> Any:
    if name == "cli":
        from calibrator.lab.commands.app import cli

        return cli
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
