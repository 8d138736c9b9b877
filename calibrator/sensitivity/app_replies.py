"""Two hundred replies of five kinds of app: a hundred conversations, each with a right and a wrong.

They are in `apps/`, were written for this project before any calibrator had scored one of them, and
are a test set: no calibrator is trained or tuned on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

APPS = ("support", "rag", "json", "code", "chat")


@dataclass(frozen=True, slots=True)
class AppReplies:
    """A conversation with a right and a wrong reply; `fault` is what the wrong one has wrong."""

    app: str
    id: str
    fault: str
    messages: Sequence[Mapping[str, Any]]
    right: str
    wrong: str


@cache
def app_replies() -> tuple[AppReplies, ...]:
    """Return all conversations, in the order of `APPS` and of the files."""
    folder = files("calibrator.sensitivity").joinpath("apps")
    return tuple(
        AppReplies(app, **each)
        for app in APPS
        for each in yaml.safe_load(folder.joinpath(f"{app}.yaml").read_text(encoding="utf-8"))
    )
