"""One call of a model for a completion: its purpose, its model and its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.errors import ProxyError
from proxy.exchange.answer import Answer, Unread
from proxy.exchange.outcome import round_confidence
from proxy.http.wire.upstream import UpstreamReply

Purpose = Literal["answer", "clarification", "second_opinion", "judge"]
INPUT_TOKENS: Final = (  # Anthropic counts cached tokens separately
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


@dataclass(slots=True)
class Call:
    """One call to a model.

    `error` is None where an answer arrived, and otherwise a machine word. What arrived instead of
    an answer is in `raised`, or in `reply` and, if that was read, in `unread`.
    """

    model: str
    purpose: Purpose = "answer"
    upstream: str | None = None
    error: str | None = "unfinished"
    answer: Answer | None = None
    raised: ProxyError | None = None
    reply: UpstreamReply | None = None
    unread: Unread | None = None
    is_altered: bool = False  # more than the model's name was changed in the client's request
    is_kept: bool = False  # whether its answer is the one that the policy decided on

    @property
    def whole(self) -> Answer:
        """The answer of a call that got one."""
        assert self.answer is not None
        return self.answer

    @property
    def confidence(self) -> float | None:
        """The confidence of the least sure choice, or None."""
        lowest = self.answer.lowest if self.answer is not None else None
        return None if lowest is None else lowest.value

    def member_json(self) -> dict[str, Any]:
        """Return the call as JSON for the `pinocchio` object, the log and the record.

        It has the model, and where there is one: purpose, error, confidence, usage, kept.
        """
        fields: dict[str, Any] = {"model": self.model}
        if self.purpose != "answer":
            fields["purpose"] = self.purpose
        if self.error is not None:
            fields["error"] = self.error
        if self.confidence is not None:
            fields["confidence"] = round_confidence(self.confidence)
        if self.answer is not None and (usage := tokens(self.answer.completion.get("usage"))):
            fields["usage"] = usage
        if self.is_kept:
            fields["kept"] = True
        return fields

    async def aclose(self) -> None:
        """Cancel the unread rest of a reply that is no completion."""
        if self.reply is not None and self.unread is None:
            await self.reply.aclose()


def tokens(usage: Any) -> dict[str, int]:
    """Return `prompt_tokens` and `completion_tokens` of a reply's `usage`, in any format's names.

    Counts that are unknown are left out. A stream reports them only to a client that asked for
    usage, or in formats where it always does.
    """
    fields = usage if isinstance(usage, Mapping) else {}
    counts = {name: count for name, count in fields.items() if type(count) is int}
    if any(name in counts for name in INPUT_TOKENS) and "prompt_tokens" not in counts:
        counts["prompt_tokens"] = sum(counts.get(name, 0) for name in INPUT_TOKENS)
    if "output_tokens" in counts:
        counts.setdefault("completion_tokens", counts["output_tokens"])
    return {name: counts[name] for name in ("prompt_tokens", "completion_tokens") if name in counts}
