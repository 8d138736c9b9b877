"""Three sets of a hundred conversations of five kinds of app, with a right and a wrong reply each.

They are in `apps/`, were written for this project before any calibrator had scored one of them,
and are a test set: no calibrator is trained or tuned on them. The first two sets were in view while
checks were written. The third is by an author who had seen neither the checks nor the other sets,
so its figures predict those of other replies.
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
    """A conversation with a right and a wrong reply; `fault` is the fault of the wrong one."""

    app: str
    edition: str  # of the set: empty for the first, "second" or "third"
    id: str
    fault: str
    messages: Sequence[Mapping[str, Any]]
    right: str
    wrong: str


@cache
def app_replies() -> tuple[AppReplies, ...]:
    """Return all three hundred conversations with their replies, set by set; they are read once.

    Within a set they are in the order of `APPS`, then of the files.
    """
    folder = files("calibrator.lab.judging.sensitivity").joinpath("apps")
    return tuple(
        AppReplies(app, ending.removeprefix("_"), **each)
        for ending in ("", "_second", "_third")
        for app in APPS
        for each in yaml.safe_load(folder.joinpath(f"{app}{ending}.yaml").read_text("utf-8"))
    )
