"""Whether an optional library is installed, asked before the work that needs it."""

from __future__ import annotations

from importlib.util import find_spec

from calibrator.errors import MissingExtraError


def is_installed(module: str) -> bool:
    """Whether a module can be imported, without importing it."""
    return find_spec(module) is not None


def check_installed(module: str, package: str, extra: str) -> None:
    """Before the work: raises MissingExtraError where a module that it comes to is missing."""
    if not is_installed(module):
        raise MissingExtraError(package, extra)


def check_scikit_learn() -> None:
    """Raises MissingExtraError without scikit-learn, by which the small parts are fitted."""
    check_installed("sklearn", "scikit-learn", "train")
