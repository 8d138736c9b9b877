"""For pydantic-ai: which calls of tools are deferred until a person has approved them.

    seen = SeenCalls()
    http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
    model = OpenAIChatModel("gpt-5.6", provider=OpenAIProvider(
        openai_client=AsyncOpenAI(base_url=URL, http_client=http_client)))
    toolset = FunctionToolset([refund_order]).approval_required(unsure(below=0.9, seen=seen))
    agent = Agent(model, toolsets=[toolset], output_type=[str, DeferredToolRequests])

A run with such a call ends with `DeferredToolRequests`, and goes on with `DeferredToolResults`.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from pinocchio.calls import SeenCalls
from pinocchio.doubt import doubt

__all__ = ["SeenCalls", "unsure"]


def unsure(
    below: float | None = None,
    *,
    policy: str | PathLike[str] | None = None,
    seen: SeenCalls,
) -> Callable[[Any, Any, Any], bool]:
    """A predicate for `approval_required`, by a threshold or by a policy (a pack's name or a file).

    A call without a number needs approval.
    """
    is_unsure = doubt(below, policy)

    def approval_required(context: Any, tool: Any, arguments: Any) -> bool:
        confidence = seen.confidence(context.tool_call_id or "")
        return is_unsure(tool.name, arguments, confidence)

    return approval_required
