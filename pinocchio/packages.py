"""A check that `policies`, `calibrator` and `proxy` are this project's packages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

PACKAGES: Final = ("proxy", "policies", "calibrator")
MISSING: Final = "it is missing: install the whole project instead of pinocchio-agents"
ROOT: Final = Path(__file__).resolve().parent.parent


def place_of(name: str) -> Path | None:
    """Return the folder in which a package of this name is found, or None without one."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    if not places:
        return None
    place = Path(places[0])
    return (place.parent if place.name == "__init__.py" else place).parent.resolve()


def check_own(name: str, root: Path = ROOT) -> None:
    """Raise ImportError where an application's own package hides ours of the same name."""
    place = place_of(name)
    if place != root:
        raise ImportError(
            f"pinocchio needs its own package {name!r} from {root}, but "
            + (f"{name!r} in {place} comes before it: rename yours" if place else MISSING)
        )


def has_lab() -> bool:
    """Return whether this installation has the researchers' part of the calibrator."""
    return importlib.util.find_spec("calibrator.lab") is not None
