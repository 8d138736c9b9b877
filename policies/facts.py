"""What a policy may look at: the facts of one choice of one completion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that the model asks for; `arguments` is the JSON text as it arrived."""

    name: str
    arguments: str = "{}"


@dataclass(slots=True)  # not frozen: one is made for every completion, at twice the speed
class Facts:
    """The facts that rules are matched against, taken before a policy changes anything.

    `confidence` is P(correct), 0 to 1, or None where there is no score. Whatever else it is given,
    NaN included, is no probability and becomes None: a broken scorer must not pass for a sure one.

    `model`, `stream`, `n`, `domain` and `tags` describe the request and so are the same for the
    reply of a stronger model after an escalation: `model` is the one that the client asked for.
    """

    confidence: float | None
    model: str
    tools: tuple[ToolCall, ...] = ()
    stream: bool = False
    finish_reason: str | None = None
    n: int = 1
    domain: str | None = None
    tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.confidence is not None and not 0.0 <= self.confidence <= 1.0:
            self.confidence = None
