"""`workers` of proxy.yaml: how many processes serve, and where their scores are computed."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from proxy.config.settings.section import Section

MOST_WORKERS = 64


class WorkersConfig(Section):
    """The number of workers, and the place of their calibrator.

    `scorer` is `each` for a calibrator in every worker, `shared` for one in a process of its own
    that all workers ask, and `auto` for a choice by calibrator: a language model is shared.
    """

    count: int = Field(default=1, ge=1, le=MOST_WORKERS)
    scorer: Literal["auto", "each", "shared"] = "auto"

    @field_validator("count")
    @classmethod
    def _can_fork(cls, value: int) -> int:
        """Return the count unchanged; raise ValueError for more than one worker on Windows."""
        if value > 1 and sys.platform == "win32":
            raise ValueError(
                "several workers need fork, which Windows does not have; run several proxies"
            )
        return value


def _workers(value: Any) -> Any:
    """Read a number such as `4` as `{count: 4}`; return any other value unchanged."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return {"count": value} if is_number else value


Workers = Annotated[WorkersConfig, BeforeValidator(_workers)]
